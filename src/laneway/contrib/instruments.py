"""What instruments (tracing, error tracking) have in common.

An instrument must harm no job: an error in one is caught and logged once. Nor does a run's timeout strike inside it: a span would
never end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from laneway import shield
from laneway.logs import log

__all__ = ["Guard", "add_headers", "within"]

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Calls functions of an instrument."""

    def __init__(self, instrument: str) -> None:
        self._instrument = instrument
        self._reported: set[str] = set()

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call a function; if it raises an error, log that once and return None."""
        shield.up()
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - exporters and samplers are other people's code, and may raise anything
            name = getattr(function, "__qualname__", repr(function))
            if name not in self._reported:
                self._reported.add(name)
                log.warning(
                    "%s: %s failed. Jobs are not affected; further errors of this kind are not logged",
                    self._instrument, name, exc_info=True,
                )  # fmt: skip
            return None
        finally:
            shield.down()


def add_headers(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Add headers of a trace. `baggage` is a list that several tracers may add to."""
    for name, value in more.items():
        before = headers.get(name) if name == "baggage" else None
        headers[name] = f"{before},{value}" if before else value


def within(seconds: float, work: Callable[[], object]) -> None:
    """Do some work in a thread, and wait for it for a limited time."""
    thread = threading.Thread(target=work, name="laneway-flush", daemon=True)
    thread.start()
    thread.join(seconds)
