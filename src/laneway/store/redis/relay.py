"""Relaying: jobs of an outbox arrive, each once.

A queue has the highest number that it has taken of each outbox (`SOURCES`). The script that inserts jobs refuses them all if the
first of their numbers is not above it, and else notes the last one in the same step. A client that was refused reads the number,
leaves out what the queue has, and sends the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laneway.core.job import Job
from laneway.errors import WrongQueue
from laneway.store.contract import Relayed
from laneway.store.redis.keys import queue_key
from laneway.store.redis.push import FIRED, UNREGISTERED, WRONG_KIND, Push, is_special
from laneway.store.redis.queues import Queues
from laneway.store.redis.reading import number as as_number
from laneway.store.redis.wire import Command, Wire

__all__ = ["RedisRelay"]


class RedisRelay:
    """Pushes jobs of outboxes."""

    def __init__(self, wire: Wire, queues: Queues, push: Push) -> None:
        self._wire = wire
        self._queues = queues
        self._push = push

    def relay(self, source: str, rows: Sequence[tuple[int, Job]], until: float) -> list[Relayed]:
        """Insert jobs, in order, except those whose numbers were taken. See the contract. All steps end at `until`."""
        groups: dict[str, list[int]] = {}
        for at, (_, job) in enumerate(rows):
            groups.setdefault(job.queue, []).append(at)
        parts = [QueuePart(queue, source, rows, positions) for queue, positions in groups.items()]
        for part in parts:
            self._look(part, until)
        asked = [part for part in parts if part.left]
        heard = self._wire.ask_all([part.command(self._push, "") for part in asked], until=until)
        for part, answer in zip(asked, heard, strict=True):
            self._hear(part, answer, until)
        answers: list[Relayed] = [""] * len(rows)
        for part in parts:
            for at, answer in part.answers.items():
                answers[at] = answer
        return answers

    def taken(self, source: str) -> int:
        """Return the highest number that any queue has taken."""
        found = self._wire.ask_all([("HGET", queue_key(name, "SOURCES"), source) for name in self._queues.read()])
        return max([as_number(one) for one in found if one is not None], default=0)

    def _look(self, part: QueuePart, until: float) -> None:
        """Leave out jobs that are in the store, in any queue, or whose unique key another job has."""
        jobs = part.jobs()
        if part.collects or not is_special(jobs):
            return
        ids, keys, part.finished = self._push.look(jobs, until)
        for at, job in zip(part.left, jobs, strict=True):
            met = job.id if job.id in ids else keys.get(job.unique or "")
            if met is not None:
                part.answers[at] = met
        part.left = [at for at in part.left if at not in part.answers]

    def _hear(self, part: QueuePart, answer: Any, until: float) -> None:
        while answer in (UNREGISTERED, FIRED) if isinstance(answer, int) else False:
            number = ""
            if answer == UNREGISTERED:
                number = str(self._queues.number(part.queue, until))
            else:
                taken = self._wire.ask(("HGET", queue_key(part.queue, "SOURCES"), part.source), until)
                part.leave_out(as_number(taken))
                if not part.left:
                    return
            answer = self._wire.ask(part.command(self._push, number), until)
        if isinstance(answer, Exception):
            raise answer
        part.hear(answer)
        new = [job.id for at, job in zip(part.left, part.jobs(), strict=True) if part.answers[at] is None]
        if part.finished and new:  # their records are in other queues; the script forgets those in its own
            self._wire.ask_all([("HDEL", key, *new) for key in part.finished], until=until)


class QueuePart:
    """The rows of one queue."""

    def __init__(self, queue: str, source: str, rows: Sequence[tuple[int, Job]], positions: list[int]) -> None:
        self.queue = queue
        self.source = source
        self.finished: list[str] = []  #: keys with records of finished jobs that may have the same ids
        self.answers: dict[int, Relayed] = {}  #: by their positions among all rows; without one it was passed over
        self._rows = rows
        self.collects = rows[positions[0]][1].gather is not None
        self.left = [at for at in positions if (rows[at][1].gather is not None) is self.collects]  #: what is to be sent
        for at in set(positions).difference(self.left):
            self.answers[at] = WrongQueue.of(queue, collects=not self.collects)

    def jobs(self) -> list[Job]:
        """Return the jobs that are to be sent."""
        return [self._rows[at][1] for at in self.left]

    def leave_out(self, taken: int) -> None:
        """Leave out what the queue has taken."""
        self.left = [at for at in self.left if self._rows[at][0] > taken]

    def command(self, push: Push, number: str) -> Command:
        """Return the call that sends them."""
        at = f"{self._rows[self.left[0]][0]}-{self._rows[self.left[-1]][0]}"
        if self.collects:
            return push.gather_command(self.queue, self.jobs(), number, self.source, at)
        return push.push_command(self.queue, self.jobs(), len(self.left), b"", number, self.source, at)

    def hear(self, answer: Any) -> None:
        """Take the answer of the script."""
        if answer == WRONG_KIND:
            self.answers |= dict.fromkeys(self.left, WrongQueue.of(self.queue, collects=self.collects))
        elif answer == 0:
            self.answers |= dict.fromkeys(self.left)
        else:
            for at, met in zip(self.left, answer, strict=True):
                self.answers[at] = None if met == 1 else met.decode(errors="replace")
