"""The link between a worker and its fleet.

The supervisor beats for its workers; the replies come over a socket. The worker itself beats once at its start, so that it need
not wait for the supervisor's next beat.

Enters: `BeatReply`.  Leaves: the reply, to the session.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from laneway.errors import StoreUnavailable
from laneway.logs import log
from laneway.store.contract import BeatReply, Store, WorkerInfo
from laneway.worker.board import Board
from laneway.worker.duties.service import Service

if TYPE_CHECKING:
    from laneway.fleet.messages import MessageSocket

__all__ = ["SupervisorListener", "FleetLink"]


class FleetLink(Struct, frozen=True):
    """What a supervisor gives to a worker of its fleet."""

    id: str
    fleet: str
    board: Board
    wire: MessageSocket  #: to the supervisor
    zygote: MessageSocket  #: to the process that forks
    max_jobs: int | None = None  #: the worker ends after this many jobs


class SupervisorListener(Service):
    """Receives messages of the supervisor."""

    name = "supervisor-listener"

    def __init__(self, link: FleetLink, store: Store, worker: WorkerInfo, heard: Callable[[BeatReply], None]) -> None:
        super().__init__()
        self._wire = link.wire
        self._store = store
        self._worker = worker
        self._heard = heard
        self._woken, self._wakes = os.pipe()
        self.known = False  #: the store knows this worker
        self._complained = False  # a failed beat was logged

    def tick(self) -> None:
        """Beat once for this worker."""
        try:
            heard = self._store.beat([self._worker])[self._worker.id]
        except StoreUnavailable as error:
            log.log(logging.DEBUG if self._complained else logging.WARNING, "heartbeat failed: %s", error)
            self._complained = True
            return
        self.known = True
        self._heard(BeatReply(known=True, marks=heard.marks, commands=heard.commands))

    def wake(self) -> None:
        """Wake the thread, so that it sees that it must end."""
        os.write(self._wakes, b".")

    def run(self) -> None:
        """Receive messages until the supervisor is gone or this worker must end."""
        poll = select.poll()
        poll.register(self._wire.fileno(), select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            poll.poll(None if self.known else 1000)
            if self._stopping.is_set():
                return
            if not self.known:
                self.tick()
            for message in self._wire.read():
                if isinstance(message, BeatReply):
                    self._heard(message)
            if self._wire.closed:
                # The supervisor is gone: no process beats for this worker any more, and other workers will get its jobs.
                os._exit(1)
