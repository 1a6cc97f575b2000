"""Readiness of a fleet: whether its supervisor's loop turns, and whether all workers claim. `probes` shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from laneway.fleet.position import Position
from laneway.fleet.store_thread import StoreThread

__all__ = ["Readiness", "not_ready"]

#: A supervisor whose loop has not turned for this long is not alive, seconds: it turns ten times a second.
ALIVE_WITHIN = 30.0


def not_ready(stopping: bool, store_thread: StoreThread | None, positions: Sequence[Position]) -> str:
    """Say why a fleet does not claim jobs with all its workers; nothing if it does."""
    if stopping:
        return "stopping"
    if store_thread is not None and store_thread.away:
        return "the store is away"
    wanted = [position.member for position in positions if position.open]
    working = sum(member is not None and member.board.phase == "working" for member in wanted)
    return "" if working == len(wanted) else f"{working} of {len(wanted)} workers claim jobs"


class Readiness:
    """What the supervisor's loop says of itself with each turn."""

    def __init__(self) -> None:
        self._turned = time.monotonic()
        self._not_ready = "starting"

    def beat(self, not_ready: str) -> None:
        """The loop has turned; `not_ready` says why the fleet is not, or nothing."""
        self._turned = time.monotonic()
        self._not_ready = not_ready

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the line for a path."""
        silent = time.monotonic() - self._turned
        late = f"the supervisor's loop has not turned for {silent:.0f} s" if silent > ALIVE_WITHIN else ""
        match path.partition("?")[0]:
            case "/livez":
                why = late
            case "/readyz":
                why = late or self._not_ready
            case _:
                return 404, "there are /livez and /readyz"
        return (503, why) if why else (200, "ok")
