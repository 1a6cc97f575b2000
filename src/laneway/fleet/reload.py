"""Reloading: watches the app's files for changes, in a thread."""

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
    """Notes files that have changed, and rings, from its own thread."""

    name = "reload"

    def __init__(self, files: Sequence[str], ring: Callable[[], None]) -> None:
        super().__init__()
        self._folders = sorted({os.path.dirname(file) for file in files})
        self._ring = ring
        self.changed: list[str] = []  #: files

    def run(self) -> None:
        """Watch until told to end."""
        from watchfiles import PythonFilter, watch  # noqa: PLC0415

        for changes in watch(*self._folders, watch_filter=PythonFilter(), stop_event=self._stopping, raise_interrupt=False):
            self.changed.append(min(path for _, path in changes))
            self._ring()
