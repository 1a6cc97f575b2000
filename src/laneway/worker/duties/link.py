"""The link: what ties a worker to its fleet.

The supervisor beats for its workers and hears for them; what it heard comes over a wire. The worker itself says once that it
is there, so that it can start before the supervisor's next beat.

Enters: `BeatReply`.  Leaves: the same, to the session.
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
    """What a worker of a fleet was given by its supervisor."""

    id: str
    fleet: str
    board: Board
    wire: MessageSocket  #: to the supervisor
    zygote: MessageSocket  #: to who forks
    max_jobs: int | None = None  #: end after so many


class SupervisorListener(Service):
    """Listens to the supervisor."""

    name = "supervisor-listener"

    def __init__(self, link: FleetLink, store: Store, worker: WorkerInfo, heard: Callable[[BeatReply], None]) -> None:
        super().__init__()
        self._wire = link.wire
        self._store = store
        self._worker = worker
        self._heard = heard
        self._woken, self._wakes = os.pipe()
        self.known = False  #: the store has heard of this worker
        self._complained = False  # that it has not: once is enough

    def tick(self) -> None:
        """Say that this worker is there."""
        try:
            heard = self._store.beat([self._worker])[self._worker.id]
        except StoreUnavailable as error:
            log.log(logging.DEBUG if self._complained else logging.WARNING, "no beat: %s", error)
            self._complained = True
            return
        self.known = True
        self._heard(BeatReply(known=True, marks=heard.marks, commands=heard.commands))

    def wake(self) -> None:
        """Let the thread see that it is to end."""
        os.write(self._wakes, b".")

    def run(self) -> None:
        """Hear what the supervisor says, until it is gone or we are to end."""
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
                # Nobody beats for us any more, and others will have our jobs: this is the fleet's end.
                os._exit(1)
