"""Reloading: looks for changes in the app's files, in a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from laneway.errors import ConfigError

__all__ = ["Reload", "check_reload"]


def check_reload() -> None:
    """Raise ConfigError if --reload cannot work here."""
    try:
        import watchfiles  # noqa: PLC0415, F401 # pyright: ignore[reportUnusedImport] - an extra
    except ImportError:
        raise ConfigError('--reload needs the package watchfiles: pip install "laneway[reload]"') from None


class Reload:
    """Calls `changed` with the file that has changed, from its own thread."""

    def __init__(self, files: Sequence[str], changed: Callable[[str], None]) -> None:
        self._folders = sorted({os.path.dirname(file) for file in files})
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="laneway-reload", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(2.0)

    def _watch(self) -> None:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415

        for changes in watch(*self._folders, watch_filter=PythonFilter(), stop_event=self._stop, raise_interrupt=False):
            self._changed(min(path for _, path in changes))
