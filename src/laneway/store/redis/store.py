"""The Redis store: the contract's verbs over scripts.

Each verb is one round trip of one script per queue that takes part. A script is one atomic step; a verb over several queues is
several, and the second of them can be repeated. Time is the server's. If something becomes claimable, the bell rings in the
same step.

Enters: the verbs of `laneway.store.contract`.  Leaves: keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from laneway.core.buckets import Report, Seen
from laneway.core.job import Job
from laneway.core.outcome import Settled
from laneway.errors import StoreCorrupt, StoreError
from laneway.store.contract import BeatReply, Capabilities, ClaimRequest, Exchange, Occurrence, Relayed, Schedules, WorkerInfo
from laneway.store.error_history import worker_lost
from laneway.store.liveness import Observer
from laneway.store.redis import opening
from laneway.store.redis.bell import RedisBell
from laneway.store.redis.connection import as_words
from laneway.store.redis.exchange import Exchanges
from laneway.store.redis.keys import SHARED_KEYS, STORE, WORKER_KEYS, WORKERS, queue_base, queue_key
from laneway.store.redis.outcomes import error_text
from laneway.store.redis.push import Push, SentJobs, queues_of
from laneway.store.redis.queues import Queues
from laneway.store.redis.reading import number
from laneway.store.redis.relay import RedisRelay
from laneway.store.redis.scripts import script
from laneway.store.redis.statistics import Statistics
from laneway.store.redis.tokens import queue_number
from laneway.store.redis.wire import Command, Connection, Wire
from laneway.store.transfer import Transfer, read_move
from laneway.store.workers import read_worker

__all__ = ["RedisStore"]

DAY = 24 * 3600 * 1_000_000
#: The most dead jobs that one call removes, so that none is long.
TRIM_AT_ONCE = 1000
#: The most notes in one call.
NOTES_AT_ONCE = 500

_ASK_MOVED: Command = ("HGET", STORE + SHARED_KEYS["MOVE"], "moved")
_to_msgpack = msgspec.msgpack.Encoder().encode


class RedisStore:
    """Jobs in Redis or Valkey."""

    capabilities = Capabilities(pipelined=True)

    def __init__(
        self, url: str, *, connections: int = 5, timeout: float = 5.0, enqueue_timeout: float = 2.0, dead_days: float = 30,
        dead_max: int = 10_000, dead_after: float = 15.0, clock: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """Open nothing yet. A `clock` is for tests: its time is used in place of the server's."""
        self.dead_days = dead_days
        self.dead_max = dead_max
        self.enqueue_timeout = min(enqueue_timeout, timeout)
        self._clock = clock
        self.wire = Wire(url, connections=connections, timeout=timeout)
        self.wire.opened = self._opened
        self.queues = Queues(self.wire)
        self.bell = RedisBell(self.wire)
        self.wire.on_fork = self.bell.after_fork
        self._push = Push(self.wire, self.queues, self.clock)
        self._relay = RedisRelay(self.wire, self.queues, self._push)
        self._exchanges = Exchanges(self.wire, self.queues, self.clock)
        self.statistics = Statistics(self.wire, self.queues)
        self._observer = Observer(dead_after)

    def __str__(self) -> str:
        return str(self.wire)

    def _opened(self, line: Connection) -> None:
        opening.warn(line, str(self))
        opening.ensure(line, str(self))

    def clock(self) -> str:
        """Return the time for scripts: '' is the server's."""
        return "" if self._clock is None else str(self._clock())

    def now(self) -> int:
        """Return the store's time."""
        return self.time_of(self.wire.ask(("TIME",)))

    def time_of(self, answer: Sequence[bytes]) -> int:
        """Return the store's time, by the server's answer."""
        given = self.clock()
        return int(given) if given else int(answer[0]) * 1_000_000 + int(answer[1])

    def command(self, name: str, queue: str, *arguments: str | bytes | int) -> Command:
        """Return the call of a script on a queue."""
        return ("EVALSHA", script(name).digest, "1", queue_base(queue), self.clock(), *as_words(arguments))

    def change(self, name: str, queues: Collection[str], *arguments: str | bytes | int) -> list[Any]:
        """Run a script that changes these queues, for a user; return its answer for each. Their remembered depths are dropped."""
        self._exchanges.memory.forget(queues)
        return self.wire.ask_all([self.command(name, queue, *arguments) for queue in queues])

    # -- jobs ------------------------------------------------------------------------------------------------

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        """Insert jobs, in order. See the contract."""
        until = self._until(timeout)
        try:
            if occurrence is not None and not self._fires(occurrence, bool(jobs), until):
                return [""] * len(jobs)
            self._exchanges.memory.forget(queues_of(jobs))
            answers = self._push.push(jobs, occurrence, until) if jobs else []
            if occurrence is not None and all(answers):  # other queues have these jobs: no script has advanced the schedule
                self._skip(occurrence, until)
            return answers
        except StoreCorrupt:
            self._mend(queues_of(jobs))
            raise

    def _until(self, timeout: float | None) -> float:
        return time.monotonic() + (self.enqueue_timeout if timeout is None else timeout)

    def _mend(self, queues: Collection[str]) -> None:
        """Repair half-written changes. A repeated push finds the existing jobs by their ids."""
        mended = [self._exchanges.set_aside_foreign_keys(queue) for queue in queues]
        if any(mended):
            what = "had a key of a type that Laneway did not give it. It is set aside now, the log says where: try again."
            raise StoreCorrupt(f"{self.wire} {what}") from None

    def relay(self, source: str, rows: Sequence[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        """Insert jobs of an outbox, in order, each once. See the contract."""
        queues = {job.queue for _, job in rows}
        self._exchanges.memory.forget(queues)
        try:
            return self._relay.relay(source, rows, self._until(timeout))
        except StoreCorrupt:
            self._mend(queues)
            raise

    def taken(self, source: str) -> int:
        """Return the highest number that any queue has taken of an outbox. See the contract."""
        return self._relay.taken(source)

    def begin_push(self, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
        """Push in two steps, where jobs begin alike: the server works meanwhile. See the contract."""
        self._exchanges.memory.forget(queues_of(jobs))
        hear = self._push.begin(jobs, self.enqueue_timeout)
        # Unusual jobs were not pushed: `push` does it.
        return lambda: (hear() if hear is not None else None) or self.push(jobs)

    def send_push(self, jobs: Sequence[Job], timeout: float) -> SentJobs | None:
        """Begin a push without waiting for a connection. See the contract."""
        self._exchanges.memory.forget(queues_of(jobs))
        return self._push.send(jobs, time.monotonic() + timeout)

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write outcomes, then claim what may run. See the contract."""
        return self.begin(worker, settled, wants, limit)()

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        """Exchange in two steps: the server works meanwhile. See the contract."""
        if wants or limit:
            self.bell.listen([want.queue for want in wants])
        hear = self._exchanges.begin(worker, settled, wants, limit)
        return lambda: self._heard(hear())

    def _heard(self, answer: Exchange) -> Exchange:
        if sum(self._exchanges.dead.values()) > self.dead_max:
            self._exchanges.dead.clear()
            self._trim_dead()
        return answer

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims to the store, except those to keep. See the contract."""
        return self._take_back(worker, keep, "", {})

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back and forget the worker. See the contract."""
        error = error_text(worker_lost(cause), 0, worker)
        ids = self._take_back(worker, (), error, lost)
        self.wire.ask_all([("HDEL", WORKERS + WORKER_KEYS[name], worker) for name in ("INFO", "BEATS", "AT", "COMMANDS")])
        self._observer.forget(worker)
        return ids

    def _take_back(self, worker: str, keep: Collection[int], error: str, lost: Mapping[int, str]) -> list[str]:
        self.clock()
        kept = _to_msgpack([str(token) for token in keep])
        words = _to_msgpack([text for token, word in lost.items() for text in (str(token), word)])
        names = self.queues.read()
        self._exchanges.memory.forget()
        commands = [self.command("give_back", name, worker, kept, error, words) for name in names]
        answers = self.wire.ask_all(commands, patient=True)
        return [id_.decode(errors="replace") for answer in self.mended(names, commands, answers) for id_ in answer]

    def mended(self, names: Sequence[str], commands: Sequence[Command], answers: list[Any]) -> list[Any]:
        """Return answers; queues with a foreign key are mended and asked again, which must do no harm."""
        for n, name in enumerate(names):
            if isinstance(answers[n], StoreCorrupt) and self._exchanges.set_aside_foreign_keys(name):
                answers[n] = self.wire.ask(commands[n])
            if isinstance(answers[n], StoreError):
                raise answers[n]
        return answers

    # -- schedules -------------------------------------------------------------------------------------------

    def schedules(self) -> Schedules:
        """Return the state of the schedules. See the contract."""
        names = self.queues.read()
        times = _ask_times(names)
        commands: list[Command] = [("HGETALL", STORE + SHARED_KEYS[key]) for key in ("PAUSED", "KEPT", "SKIPPED")]
        commands += [("HGETALL", queue_key(name, "SLOTS")) for name in names]
        answers = self.wire.ask_all([*times, *commands], patient=True)
        now = self._latest(*answers[: len(times)])
        paused, kept, *slots = _checked(answers[len(times) :])
        last: dict[str, int] = {}
        for answer in slots:
            for schedule, at in _pairs(answer).items():
                last[schedule] = max(number(at), last.get(schedule, 0))
        by = {name: who.decode(errors="replace") for name, who in _pairs(paused).items()}
        return Schedules(now, last, by, _pairs(kept))

    def time_of_schedules(self) -> int:
        """Return the time that `schedules` tells workers."""
        return self._latest(*self.wire.ask_all(_ask_times(self.queues.read()), patient=True))

    def _latest(self, time: Any, *seen: Any) -> int:
        """Return the later of the server's clock, which may have been set back, and what queues have seen, if it can be read."""
        (server,) = _checked([time])
        known = _checked([answer for answer in seen if not isinstance(answer, StoreCorrupt)])
        return max([self.time_of(server), *map(number, known)])

    def _fires(self, occurrence: Occurrence, pushes: bool, until: float) -> bool:
        """Return whether an occurrence is to fire, as far as can be seen here. If not, its schedule still advances.

        The final decision is made where its jobs are pushed, in the same step.
        """
        keys = [STORE + SHARED_KEYS[name] for name in ("PAUSED", "KEPT", "SKIPPED")]
        keys += [queue_key(name, "SLOTS") for name in self.queues.read(until)]
        commands: list[Command] = [_ASK_MOVED, *(("HGET", key, occurrence.schedule) for key in keys)]
        moved, paused, kept, *slots = self.wire.ask_all(commands, until=until)
        if moved is not None:
            raise read_move(moved).refusal(self)
        if occurrence.entry is not None and kept != occurrence.entry:
            return False
        if any(number(last) >= occurrence.at for last in slots if last is not None):
            return False
        if paused is None and pushes:
            return True
        self._skip(occurrence, until)
        return False

    def _skip(self, occurrence: Occurrence, until: float) -> None:
        self.wire.ask(("EVALSHA", script("skip").digest, "1", STORE, occurrence.schedule, str(occurrence.at)), until)

    def check_open(self) -> None:
        """Raise an error if a copy has closed the store."""
        moved = self.wire.ask(_ASK_MOVED)
        if moved is not None:
            raise read_move(moved).refusal(self)

    # -- workers ---------------------------------------------------------------------------------------------

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, BeatReply]:
        """Report that these workers live; return what is asked of them. See the contract."""
        arguments = [part for worker in workers for part in (worker.id, msgspec.json.encode(worker))]
        names = self.queues.read()
        beat: Command = ("EVALSHA", script("beat").digest, "1", WORKERS, self.clock(), *arguments)
        marks: list[Command] = [("HGETALL", queue_key(name, "MARKS")) for name in names]
        heard, *marked = self.wire.ask_all([beat, *marks])
        asked: dict[str, dict[str, str]] = {}
        for answer in marked:
            for id_, mark in _pairs(answer).items():
                what, _, worker = mark.decode(errors="replace").partition(" ")
                asked.setdefault(worker, {})[id_] = what
        self._trim_dead()
        return {
            worker.id: BeatReply(known=bool(known), marks=asked.get(worker.id, {}), commands=tuple(commands.decode().split()))
            for worker, known, commands in zip(workers, heard[::2], heard[1::2], strict=True)
        }

    def dead_workers(self) -> list[str]:
        """Return the ids of the workers that are dead, as far as this observer can tell. See the contract."""
        names = self.queues.read()
        # A write comes first: an observer that cannot write declares no worker dead.
        commands: list[Command] = [("SET", WORKERS + WORKER_KEYS["LOOKED"], self.clock() or "1")]
        commands += [("HGETALL", WORKERS + WORKER_KEYS[name]) for name in ("INFO", "BEATS", "AT")]
        commands += [("SMEMBERS", queue_key(name, "HOLDERS")) for name in names]
        _, info, beats, at, *holders = self.wire.ask_all(commands)
        numbers, times = _pairs(beats), _pairs(at)
        known: dict[str, tuple[WorkerInfo, object]] = {
            id_: (read_worker(id_, raw), (numbers.get(id_), times.get(id_))) for id_, raw in _pairs(info).items()
        }
        for members in holders:
            for member in members:
                id_ = member.decode(errors="replace")
                known.setdefault(id_, (WorkerInfo(id_), None))
        return self._observer.dead(known.values())

    def _trim_dead(self) -> None:
        """Remove the oldest dead jobs beyond the limits."""
        names = self.queues.read()
        died: list[tuple[int, str]] = []
        sizes = self.wire.ask_all([("ZCARD", queue_key(name, kind)) for kind in ("DEAD", "HALTED") for name in names])
        too_many = min(sum(sizes) - self.dead_max, TRIM_AT_ONCE)  # jobs that halt their lane count, and stay
        some = [name for name, size in zip(names, sizes, strict=False) if size]
        if too_many > 0:
            oldest = self.wire.ask_all(
                [("ZRANGE", queue_key(name, "DEAD"), "0", str(too_many - 1), "WITHSCORES") for name in some]
            )
            died = sorted((int(float(at)), name) for name, answer in zip(some, oldest, strict=True) for at in answer[1::2])
        excess = [name for _, name in died[: max(too_many, 0)]]
        age = round(self.dead_days * DAY)
        self.wire.ask_all([self.command("trim", name, age, excess.count(name), TRIM_AT_ONCE) for name in some])

    # -- the rest --------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable. See the contract."""
        rang = self.bell.wait(timeout)
        if self.bell.rung:
            self.bell.rung = False
            self._exchanges.memory.forget()
        return rang

    def wake(self) -> None:
        """End a wait of this store."""
        self.bell.wake()

    def note(self, notes: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep the notes of runs. See the contract."""
        if not notes:
            self.wire.ask(("HDEL", WORKERS + WORKER_KEYS["COMMANDS"], ""))  # a write without effect: is the server writable?
            return
        names = {place: name for name, place in self.queues.numbers.items()}
        if any(queue_number(token) not in names for _, token, _ in notes):
            self.queues.read()
            names = {place: name for name, place in self.queues.numbers.items()}
        by_queue: dict[str, list[str | bytes]] = {}
        for id_, token, told in notes:
            if (name := names.get(queue_number(token))) is not None:
                by_queue.setdefault(name, []).extend((id_, str(token), told))
        digest, step = script("note").digest, 3 * NOTES_AT_ONCE
        self.wire.ask_all([
            ("EVALSHA", digest, "1", queue_base(name), *parts[start : start + step])
            for name, parts in by_queue.items()
            for start in range(0, len(parts), step)
        ])  # fmt: skip

    def record(self, report: Report) -> None:
        """Keep a worker's report. See the contract."""
        self.statistics.record(report, self.clock())

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks. See the contract."""
        return self.statistics.learned()

    def reserve(self, connections: int) -> None:
        """Set the most connections at a time; the one that waits for jobs comes on top."""
        self.wire.pool.reserve(connections)

    def migrate(self) -> None:
        """Bring the layout to this version."""
        self.wire.close()
        self.wire.dial(opened=lambda line: opening.migrate(line, str(self))).close()

    def transfer(self) -> Transfer:
        """Return the side that takes part in copies."""
        from laneway.store.redis.transfer import RedisTransfer  # noqa: PLC0415 - few processes copy a store

        return RedisTransfer(self)

    def close(self) -> None:
        """Close the connections."""
        self.bell.close()
        self.wire.close()


def _ask_times(names: Sequence[str]) -> list[Command]:
    """Return the questions for the server's time, and for the highest time that each of these queues has seen."""
    return [("TIME",), *(("HGET", queue_key(name, "META"), "now") for name in names)]


def _checked(answers: list[Any]) -> list[Any]:
    """Return answers; an error among them is raised."""
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
    return answers


def _pairs(answer: Sequence[bytes]) -> dict[str, bytes]:
    """Return a flat answer as a dict."""
    return {name.decode(errors="replace"): value for name, value in zip(answer[::2], answer[1::2], strict=True)}
