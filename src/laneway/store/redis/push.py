"""Pushing: jobs and payloads arrive, each queue's by a script of its own.

A script sees one queue. Ids that `new_id` made never come twice into different queues, so they need no more than that. A job
with an id of the user's, or a unique key, is first looked for in the other queues. Two processes that push such a job into two
queues at the same moment are not kept apart: a store of one server could, a cluster can not.

Many jobs whose records begin with equal bytes are pushed by a script that does little else (`push_uniform`). If it finds anything
unusual it does nothing, and `push` does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from laneway.core.job import Gather, Job, UniformJobs, payload_id
from laneway.errors import StoreCorrupt, WrongQueue
from laneway.ids import is_made
from laneway.store.contract import Occurrence
from laneway.store.redis.keys import queue_base, queue_key
from laneway.store.redis.queues import Queues
from laneway.store.redis.record import UNIQUE, before_body, pushed, with_headers
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Asked, Command, Wire

__all__ = ["FIRED", "UNREGISTERED", "WRONG_KIND", "Answers", "Push", "SentJobs", "is_special", "queues_of"]

_encode = msgspec.msgpack.Encoder().encode

UNREGISTERED, FIRED, WRONG_KIND = -1, -2, -3
Answers = list[str | None]


class Push:
    """Pushes jobs."""

    def __init__(self, wire: Wire, queues: Queues, clock: Callable[[], str]) -> None:
        self._wire = wire
        self._queues = queues
        self._clock = clock
        self._digest = script("push").digest
        self._uniform_digest = script("push_uniform").digest
        self._gather_digest = script("gather").digest

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None, until: float) -> Answers:
        """Insert jobs, in order; return for each None, or the id of the job that prevented it. All steps end at `until`."""
        if len(jobs) == 1 and jobs[0].unique is None and is_made(jobs[0].id):
            return self._push_one_queue(jobs, occurrence, until)
        if type(jobs) is UniformJobs:
            return self._push_one_queue(jobs, occurrence, until)
        payloads = [job for job in jobs if job.gather is not None]
        if len({job.queue for job in jobs}) > 1 or 0 < len(payloads) < len(jobs):
            self._check_kinds(jobs, payloads, until)
        if not payloads:
            return self._push_jobs(jobs, occurrence, until)
        if self._gather(payloads, occurrence, until):
            return [""] * len(jobs)
        plain = iter(self._push_jobs([job for job in jobs if job.gather is None], None, until))
        return [next(plain) if job.gather is None else None for job in jobs]

    def begin(self, jobs: Sequence[Job], patience: float) -> Callable[[], Answers | None] | None:
        """Send jobs whose records begin alike; calling the returned function returns the answers, or None: nothing was done.

        Each of the two steps may take `patience` seconds: the caller may have been busy in between.
        """
        if len(jobs) < 2 or type(jobs) is not UniformJobs:
            return None
        asked = self._wire.send_all((self._uniform_command(*_uniform_arguments(jobs)),), time.monotonic() + patience)

        def hear() -> Answers | None:
            taken: Answers = [None] * len(jobs)
            return taken if asked.hear(patient=True, until=time.monotonic() + patience)[0] == 0 else None

        return hear

    def send(self, jobs: Sequence[Job], until: float) -> SentJobs | None:
        """Send new jobs of one queue without waiting for a connection; None: nothing was sent."""
        queue = jobs[0].queue
        if any(job.queue != queue or job.gather is not None or job.unique is not None or not is_made(job.id) for job in jobs):
            return None
        asked = self._wire.send_now((self._command(queue, jobs, len(jobs)),), until)
        return None if asked is None else SentJobs(asked, queue, len(jobs))

    def _uniform_command(self, queue: str, rest: Command) -> Command:
        return ("EVALSHA", self._uniform_digest, "1", queue_base(queue), self._clock(), *rest)

    def _check_kinds(self, jobs: Sequence[Job], payloads: Sequence[Job], until: float) -> None:
        """Check the kind of each queue: it has jobs or lanes of a collector, never both. If one is wrong, nothing is pushed.

        The scripts check again, each for its own queue.
        """
        of_collectors = {job.queue for job in payloads}
        of_jobs = {job.queue for job in jobs if job.gather is None}
        if both := sorted(of_jobs & of_collectors):
            raise WrongQueue.of(both[0], collects=True)
        names = [*of_jobs, *of_collectors]
        commands: list[Command] = [("HGET", queue_key(name, "META"), "kind") for name in names]
        commands += [("HLEN", queue_key(name, "JOB")) for name in names]
        found = self._wire.ask_all(commands, until=until)
        for name, kind, size in zip(names, found, found[len(names) :], strict=False):
            if size and (kind == b"lanes") != (name in of_collectors):
                raise WrongQueue.of(name, collects=name in of_collectors)

    def _gather(self, payloads: Sequence[Job], occurrence: Occurrence | None, until: float) -> bool:
        """Let payloads join their lanes; return whether the occurrence had fired, and nothing was done."""
        groups: dict[str, list[Job]] = {}
        for job in payloads:
            groups.setdefault(job.queue, []).append(job)
        for queue, jobs in groups.items():
            answer = self._wire.ask(self._gathering(queue, jobs, "", occurrence), until)
            if answer == UNREGISTERED:
                answer = self._wire.ask(self._gathering(queue, jobs, self._number(queue, until), occurrence), until)
            if answer == FIRED:
                return True
            if answer == WRONG_KIND:
                raise WrongQueue.of(queue, collects=True)
            occurrence = None
        return False

    def _gathering(self, queue: str, jobs: Sequence[Job], number: str, occurrence: Occurrence | None) -> Command:
        return self.gather_command(queue, jobs, number, *_named(occurrence))

    def gather_command(self, queue: str, jobs: Sequence[Job], number: str, name: str, at: str) -> Command:
        """Return the call that lets payloads of one queue join their lanes. What `name` counts comes to `at` with it."""
        arguments: list[str | bytes] = []
        for job in jobs:
            gather = job.gather or Gather()
            score = "" if gather.score is None else repr(float(gather.score))
            lane = job.lane or ""
            digest = bytes.fromhex(payload_id(queue, lane, job.body)[2:])
            body = with_headers(job.body, gather.headers)
            arguments += (job.id, lane, job.task, _when(job), score, str(gather.quiet), str(gather.longest), digest, body)
        return ("EVALSHA", self._gather_digest, "1", queue_base(queue), self._clock(), number, name, at, *arguments)

    def _push_jobs(self, jobs: Sequence[Job], occurrence: Occurrence | None, until: float) -> Answers:
        if not jobs:
            return []
        names = {job.queue for job in jobs}
        special = is_special(jobs)
        if not special and len(names) > 1:
            return self._push_many_queues(jobs, occurrence, until)
        if not special or (len(names | self._queues.numbers.keys()) == 1 and self._is_alone(until)):
            return self._push_one_queue(jobs, occurrence, until)
        answers: Answers = []
        for _, group in groupby(jobs, key=lambda job: job.queue):
            answers += self._push_special(list(group), len(answers), len(jobs), occurrence, until)
            if occurrence is not None and answers[:1] == [""]:
                return [""] * len(jobs)
            occurrence = None
        return answers

    def _is_alone(self, until: float) -> bool:
        """Return whether the known queues are all there are."""
        return bool(self._wire.ask(self._queues.asks, until) <= len(self._queues.numbers))

    def _push_special(self, jobs: list[Job], before: int, length: int, occurrence: Occurrence | None, until: float) -> Answers:
        """Push jobs of one queue whose ids or keys may be in other queues: a part of a push."""
        met_ids, met_keys, finished = self.look(jobs, until)
        answers: Answers = []
        sent: set[str] = set()
        for job in jobs:
            if job.id in sent and job.unique in met_keys:
                break  # which of the two it meets depends on the jobs before it
            answers.append(job.id if job.id in met_ids else met_keys.get(job.unique or ""))
            if answers[-1] is None:
                sent.add(job.id)
        rest = jobs[len(answers) :]
        new = [n for n, met in enumerate(answers) if met is None]
        if new:
            order = _encode([before + n for n in new])
            found = self._push_one_queue([jobs[n] for n in new], occurrence, until, length, order)
            if found[0] == "":
                return [""] * len(jobs)
            _fill(answers, new, found)
            pushed_ids = [jobs[n].id for n in new if answers[n] is None]
            if finished and pushed_ids:  # in other queues; the script forgets those in its own
                self._wire.ask_all([("HDEL", key, *pushed_ids) for key in finished], until=until)
        return answers + self._push_special(rest, before + len(answers), length, None, until) if rest else answers

    def look(self, jobs: list[Job], until: float) -> tuple[set[str], dict[str, str], list[str]]:
        """Return which ids of these jobs are in the store, and which keys, with the ids of the jobs that have them.

        And the keys of other queues that have records of finished jobs with these ids.
        """
        ids = [job.id for job in jobs]
        keys = [job.unique for job in jobs if job.unique is not None]
        names = self._queues.read(until)
        commands: list[Command] = [("HMGET", queue_key(name, "JOB"), *ids) for name in names]
        others = [name for name in names if name != jobs[0].queue]
        commands += [("ZMSCORE", queue_key(name, "ENDED"), *ids) for name in others]
        commands += [("HMGET", queue_key(name, "UNIQUE"), *keys) for name in names if keys]
        found = self._wire.ask_all(commands, until=until)
        ended = zip(others, found[len(names) :], strict=False)
        finished = [queue_key(name, "FINISHED") for name, scores in ended if any(score is not None for score in scores)]
        met_ids = {id_ for answer in found[: len(names)] for id_, record in zip(ids, answer, strict=True) if record is not None}
        met_keys = {
            key: holder.decode(errors="replace")
            for answer in found[len(names) + len(others) :]
            for key, holder in zip(keys, answer, strict=True)
            if holder is not None
        }
        return met_ids, met_keys, finished

    def _push_many_queues(self, jobs: Sequence[Job], occurrence: Occurrence | None, until: float) -> Answers:
        """Push jobs of several queues in one round trip. An occurrence goes with the first, and fires before the others come."""
        groups: dict[str, list[int]] = {}
        for number, job in enumerate(jobs):
            groups.setdefault(job.queue, []).append(number)
        answers: Answers = [None] * len(jobs)
        if occurrence is not None:
            first = groups.pop(jobs[0].queue)
            found = self._push_one_queue([jobs[n] for n in first], occurrence, until)
            if found and found[0] == "":
                return [""] * len(jobs)
            _fill(answers, first, found)
        commands = {
            queue: self._command(queue, [jobs[n] for n in numbers], len(jobs), _encode(numbers))
            for queue, numbers in groups.items()
        }
        heard = self._wire.ask_all(list(commands.values()), until=until)
        for at, (queue, numbers) in enumerate(groups.items()):
            if heard[at] == UNREGISTERED:
                registered = self._number(queue, until)
                again = self._command(queue, [jobs[n] for n in numbers], len(jobs), _encode(numbers), registered)
                heard[at] = self._wire.ask(again, until)
            _fill(answers, numbers, _answers(queue, len(numbers), heard[at]))
        return answers

    def _push_one_queue(
        self, jobs: Sequence[Job], occurrence: Occurrence | None, until: float, length: int = 0, order: bytes = b""
    ) -> Answers:
        uniform = _uniform(jobs) if len(jobs) > 1 and occurrence is None and not order else None
        if uniform is not None and self._wire.ask(self._uniform_command(*uniform), until) == 0:
            return [None] * len(jobs)
        queue, length = jobs[0].queue, length or len(jobs)
        answer = self._wire.ask(self._command(queue, jobs, length, order, occurrence=occurrence), until)
        if answer == UNREGISTERED:
            answer = self._wire.ask(self._command(queue, jobs, length, order, self._number(queue, until), occurrence), until)
        return _answers(queue, len(jobs), answer)

    def _number(self, queue: str, until: float) -> str:
        return str(self._queues.number(queue, until))

    def _command(
        self, queue: str, jobs: Iterable[Job], length: int, order: bytes = b"", number: str = "",
        occurrence: Occurrence | None = None,
    ) -> Command:  # fmt: skip
        return self.push_command(queue, jobs, length, order, number, *_named(occurrence))

    def push_command(
        self, queue: str, jobs: Iterable[Job], length: int, order: bytes, number: str, name: str, at: str
    ) -> Command:
        """Return the call that inserts jobs of one queue. What `name` counts comes to `at` with it."""
        head: Command = ("EVALSHA", self._digest, "1", queue_base(queue), self._clock(), number, str(length), order, name, at)
        arguments: list[str | bytes] = []
        for job in jobs:
            arguments += (job.id, _when(job), pushed(job))
        return (*head, *arguments)


class SentJobs:
    """Jobs on their way. See `SentPush`."""

    def __init__(self, asked: Asked, queue: str, number: int) -> None:
        self._asked = asked
        self._queue = queue
        self._number = number
        self.fileno = asked.fileno
        self.comes_at_once = asked.comes_at_once
        self.give_up = asked.give_up

    def hear(self) -> Answers | None:
        """Return the answers; None: the queue has no number yet, or must be mended."""
        try:
            [answer] = self._asked.hear()
        except StoreCorrupt:
            return None
        return None if answer == UNREGISTERED else _answers(self._queue, self._number, answer)


def is_special(jobs: Iterable[Job]) -> bool:
    """Return whether some of these jobs must be looked for in other queues."""
    return any(job.unique is not None or not is_made(job.id) for job in jobs)


def queues_of(jobs: Sequence[Job]) -> set[str]:
    """Return the queues of jobs."""
    return {jobs.first.queue} if type(jobs) is UniformJobs else {job.queue for job in jobs}


def _uniform(jobs: Sequence[Job]) -> tuple[str, Command] | None:
    """Return the queue of jobs whose records begin alike, and the arguments of `push_uniform`.

    None if they differ in when, flags or rank, or have unique keys.
    """
    if type(jobs) is UniformJobs:
        return _uniform_arguments(jobs)
    records = [pushed(job) for job in jobs]
    begin = records[0][:2]
    if begin[0] & UNIQUE or any(job.delay or job.at for job in jobs) or any(record[:2] != begin for record in records):
        return None
    return jobs[0].queue, ("", begin, *[job.id for job in jobs], *[record[2:] for record in records])


def _uniform_arguments(jobs: UniformJobs) -> tuple[str, Command]:
    return jobs.first.queue, (_when(jobs.first), before_body(jobs.first), *jobs.ids, *jobs.bodies)


def _named(occurrence: Occurrence | None) -> tuple[str, str]:
    return ("", "0") if occurrence is None else (occurrence.schedule, str(occurrence.at))


def _when(job: Job) -> str:
    return f"{max(job.delay, 0)}@{max(job.at, 0)}" if job.delay or job.at else ""


def _answers(queue: str, number: int, answer: Any) -> Answers:
    if answer == 0:
        return [None] * number
    if answer == FIRED:
        return [""] * number
    if answer == WRONG_KIND:
        raise WrongQueue.of(queue, collects=False)
    return [None if met == 1 else met.decode(errors="replace") for met in answer]


def _fill(answers: Answers, numbers: Sequence[int], found: Answers) -> None:
    for number, answer in zip(numbers, found, strict=True):
        answers[number] = answer
