"""Operations: actions that take long, in a thread of their own, with their progress.

A client that starts one gets its id at once, and asks for its progress with it. An operation works in portions, and counts what
it has done. AT_ONCE operations run at a time, the others wait in a queue. KEEP are remembered; the oldest finished one is
forgotten first. They live in this process: when it ends, they end after their portion, and what was done stays done.

Enters: a function that works and counts.  Leaves: `Operation`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from laneway.errors import LanewayError
from laneway.ids import new_id
from laneway.web.refused import Refused, refusal_of

__all__ = ["KEEP", "Operation", "Operations", "Work"]

log = logging.getLogger("laneway.web")

#: The number that is remembered, those that run or wait included.
KEEP = 100
#: The number that run at a time: they all write to the same store.
AT_ONCE = 2
#: The number of jobs that are changed at a time. A store looks up each among the ids of its portion: more would not be faster.
PORTION = 100
#: A thread without work ends after this time, seconds.
IDLE = 5.0


class Operation:
    """One long action. `total` and `done` are its progress; only its own thread changes it."""

    def __init__(self, action: str, target: dict[str, Any], who: str) -> None:
        self.id = new_id()
        self.action = action
        self.target = target
        self.who = who
        self.state = "waiting"  #: then running, then done or failed
        self.total: int | None = None  #: how many it is about; None: not counted yet
        self.done = 0  #: of these, how many were looked after
        self.changed = 0  #: and how many of them were changed
        self.measure: Callable[[], int] | None = None  #: says how many are done, where the store does them all in one call
        self.error: Refused | None = None
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.created_at = datetime.now(UTC)
        self.finished = threading.Event()

    @property
    def document(self) -> dict[str, Any]:
        """It, as a client sees it. Blocks, if it has to measure."""
        if self.measure is not None and self.state == "running":
            self.done = max(self.done, self.measure())
        return {
            "id": self.id, "action": self.action, "target": self.target, "who": self.who, "state": self.state,
            "matched": self.total, "done": self.done, "changed": self.changed,
            "error": None if self.error is None else self.error.document["error"],
            "created_at": self.created_at, "started_at": self.started_at, "finished_at": self.finished_at,
        }  # fmt: skip

    def change(self, call: Callable[..., int], found: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> None:
        """Change jobs in portions: `found` are ids with the filters that they must still match."""
        self.total = sum(len(ids) for _, ids in found)
        for which, ids in found:
            for start in range(0, len(ids), PORTION):
                portion = tuple(ids[start : start + PORTION])
                self.changed += call(**which, ids=portion)
                self.done += len(portion)


#: Does an operation, and counts on it.
Work = Callable[[Operation], None]


class Operations:
    """All that run, wait, or have finished lately."""

    def __init__(self, ended: Callable[[Operation], None] = lambda _: None) -> None:
        self._ended = ended
        self._known: dict[str, Operation] = {}
        self._line: queue.SimpleQueue[tuple[Operation, Work]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._pid = os.getpid()

    def start(self, operation: Operation, work: Work) -> Operation:
        """Let an operation begin, or queue it."""
        with self._lock:
            if self._pid != os.getpid():  # this process was forked: the threads, and what they do, are its parent's
                self._pid, self._threads, self._line = os.getpid(), 0, queue.SimpleQueue()
            self._make_room()
            self._known[operation.id] = operation
            self._line.put((operation, work))
            if self._threads < AT_ONCE:
                self._threads += 1
                threading.Thread(target=self._serve, name="laneway-operation", daemon=True).start()
        return operation

    def _make_room(self) -> None:
        while len(self._known) >= KEEP:
            over = next((one.id for one in self._known.values() if one.finished.is_set()), None)
            if over is None:
                raise Refused(503, "busy", f"{KEEP} operations run or wait already: try again later", {"Retry-After": "10"})
            del self._known[over]

    def find(self, id_: str) -> Operation:
        """Return an operation."""
        with self._lock:
            found = self._known.get(id_)
        if found is None:
            raise Refused(
                404, "unknown_operation", f'no operation "{id_[:100]}" is known here: {KEEP} are kept, by the process that ran it'
            )
        return found

    def list(self) -> list[Operation]:
        """Return all, the newest first."""
        with self._lock:
            return list(reversed(self._known.values()))

    def _serve(self) -> None:
        while True:
            try:
                operation, work = self._line.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if not self._line.empty():
                        continue
                    self._threads -= 1
                    return
            self._run(operation, work)

    def _run(self, operation: Operation, work: Work) -> None:
        operation.state, operation.started_at = "running", datetime.now(UTC)
        begun = time.monotonic()
        try:
            work(operation)
        except (Refused, LanewayError) as error:
            operation.error = refusal_of(error)
        except Exception as error:  # no caller gets it: the operation has the error, and the log the traceback
            log.exception("operation %s (%s) failed", operation.id, operation.action)
            operation.error = Refused(500, "internal", f"{type(error).__name__}: the log of the dashboard has more")
        operation.finished_at = datetime.now(UTC)
        operation.state = "done" if operation.error is None else "failed"
        log.debug("operation %s (%s) took %.2f s", operation.id, operation.action, time.monotonic() - begun)
        self._ended(operation)
        operation.finished.set()
