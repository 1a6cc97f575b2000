"""The beat: reports that this worker lives, receives commands, and recovers the claims of dead workers.

The beat runs in a thread of the worker's own process: a job that holds the interpreter lock delays it. `laneway worker` has a
supervisor for that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from laneway.errors import StoreUnavailable
from laneway.kernel import memory
from laneway.logs import log
from laneway.store.contract import BeatReply, Store, WorkerInfo
from laneway.store.liveness import FORGOTTEN, recover_dead_workers
from laneway.worker.board import Board, with_runs
from laneway.worker.duties.service import Service

__all__ = ["Beat"]


class Beat(Service):
    """Beats every `every` seconds. Observers on other hosts wait 15 seconds by default, so four beats may get lost."""

    name = "beat"

    def __init__(self, store: Store, worker: WorkerInfo, board: Board, heard: Callable[[BeatReply], None], every: float) -> None:
        super().__init__()
        self.every = every
        self._store = store
        self._worker = worker
        self._board = board
        self._heard = heard
        self.known = False  #: whether the store knows this worker

    def tick(self) -> None:
        """Beat once."""
        try:
            used = memory(os.getpid()) if self.known else (0, 0)  # the first beat must be quick
            heard = self._store.beat([with_runs(self._worker, self._board, used)])[self._worker.id]
            if self.known and not heard.known:
                log.warning(FORGOTTEN, "this worker")
            first, self.known = not self.known, True
            self._heard(BeatReply(known=True, marks=heard.marks, commands=heard.commands) if first else heard)
            recover_dead_workers(self._store)
        except StoreUnavailable as error:
            log.log(logging.DEBUG if self.known else logging.WARNING, "heartbeat failed: %s", error)
