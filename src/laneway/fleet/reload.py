"""Reloading: looks for changes in the app's files, in a thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from laneway.errors import ConfigError
from laneway.worker.duties.service import Service

__all__ = ["Reload", "check_reload"]


def check_reload() -> None:
    """Raise ConfigError if --reload cannot work here."""
    try:
        import watchfiles  # noqa: PLC0415, F401 # pyright: ignore[reportUnusedImport] - an extra
    except ImportError:
        raise ConfigError('--reload needs the package watchfiles: pip install "laneway[reload]"') from None


class Reload(Service):
    """Calls `changed` with the file that has changed, from its own thread."""

    name = "reload"

    def __init__(self, files: Sequence[str], changed: Callable[[str], None]) -> None:
        super().__init__()
        self._folders = sorted({os.path.dirname(file) for file in files})
        self._changed = changed

    def run(self) -> None:
        """Look until told to end."""
        from watchfiles import PythonFilter, watch  # noqa: PLC0415

        for changes in watch(*self._folders, watch_filter=PythonFilter(), stop_event=self._stopping, raise_interrupt=False):
            self._changed(min(path for _, path in changes))
