"""Transfer over keys: see `laneway.store.transfer`.

Each queue is a section, since a script can change no more than one: its cursor is beside its books, and so is the flag that
closes it. A source is closed by one key of the store, which refuses new queues, and then queue by queue.

Enters and leaves: `Portion`s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from laneway.core.instant import SECOND
from laneway.errors import GarbageError
from laneway.store.inspection import sum_counts
from laneway.store.redis.inspection import RedisInspect
from laneway.store.redis.keys import QUEUE_KEYS, SHARED_KEYS, STORE, queue_base, queue_key
from laneway.store.redis.portions import read_job, read_payload, read_record, shared_commands, take_commands
from laneway.store.redis.reading import instant, number
from laneway.store.redis.record import HALTS, read
from laneway.store.redis.scan import walk_hash
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Command
from laneway.store.statistics import LEVELS
from laneway.store.transfer import (
    JOBS,
    PAYLOADS,
    PORTION,
    QUEUE,
    RECORDS,
    SHARED,
    Cursor,
    Move,
    Portion,
    SharedState,
    StoredCounts,
    StoredQueue,
    StoredSchedule,
    chunks,
    out_of_step,
    read_cursor,
    read_move,
    write_cursor,
    write_move,
)

if TYPE_CHECKING:
    from laneway.store.redis.store import RedisStore

__all__ = ["RedisTransfer"]

MOVE = STORE + SHARED_KEYS["MOVE"]


class RedisTransfer:
    """The side of a Redis store that takes part in copies."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._wire = store.wire

    # -- the store's part ------------------------------------------------------------------------------------

    def move(self) -> Move | None:
        """Return its part in a copy."""
        found = self._wire.ask(("HGET", MOVE, "move"))
        return None if found is None else read_move(found)

    def close(self, move: Move) -> Move:
        """Close a source, and wake all waiting workers."""
        return self._close(move, self._store.queues.read)

    def begin(self, move: Move, queues: Collection[str]) -> Move:
        """Close a target, and make these queues."""

        def registered() -> list[str]:
            for queue in queues:
                self._store.queues.number(queue, copied=True)
            return self._store.queues.read()

        return self._close(move, registered)

    def _close(self, move: Move, names: Callable[[], list[str]]) -> Move:
        raw = write_move(move)
        found = read_move(self._wire.ask(("EVALSHA", script("move").digest, "1", STORE, raw, move.copy)))
        if found.copy == move.copy and found.closed:
            known = names()  # read after the store's key was set: from then on there are no others
            numbers = self._store.queues.numbers
            self._wire.ask_all([
                ("HSET", queue_key(name, "META"), "moved", raw, "number", str(numbers[name])) for name in known
            ])  # fmt: skip
            self._ring()
        return found

    def finish(self) -> None:
        """Note that all was copied."""
        move = self.move()
        if move is not None:
            self._wire.ask(("HSET", MOVE, "move", write_move(replace(move, finished=True))))
            if move.fills:
                self._open(("HDEL", MOVE, "moved", "copied"))

    def reopen(self) -> None:
        """Forget the copy, and wake all waiting workers."""
        self._open(("UNLINK", MOVE))

    def _open(self, last: Command) -> None:
        names = self._store.queues.read()
        self._wire.ask_all([*(("HDEL", queue_key(name, "META"), "moved", "copied") for name in names), last])
        self._ring()

    def _ring(self) -> None:
        bells = [queue_key(name, "BELL") for name in self._store.queues.read()]
        self._wire.ask_all([
            command for bell in bells for command in (("RPUSH", bell, "1"), ("PEXPIRE", bell, "10000"))
        ])  # fmt: skip

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        return self._store.queues.read()

    def copied(self) -> dict[str, str]:
        """Return the cursors of a target."""
        names = self._store.queues.read()
        keys = {SHARED: MOVE, **{name: queue_key(name, "META") for name in names}}
        found = self._wire.ask_all([("HGET", key, "copied") for key in keys.values()])
        return {name: cursor.decode() for name, cursor in zip(keys, found, strict=True) if cursor}

    def stored_counts(self) -> StoredCounts:
        """Count what the store holds."""
        payloads, now = 0, self._store.now()
        queues = RedisInspect(self._store).queues()
        counts = sum_counts(queue.counts for queue in queues)
        for queue in queues:
            if queue.collects:
                lanes = [lane for _, _, lane in self._in_order(queue.name) if lane is not None]
                payloads += sum(self._wire.ask_all([("ZCARD", queue_key(queue.name, "WAITS", lane)) for lane in lanes]))
        kept = self._wire.ask_all([("ZCOUNT", queue_key(queue.name, "KEPT"), f"({now}", "+inf") for queue in queues])
        return StoredCounts(
            waiting=counts["scheduled"] + counts["ready"] + counts["retrying"], blocked=counts["blocked"],
            running=counts["running"], dead=counts["dead"], payloads=payloads, schedules=len(self._schedules()),
            records=sum(kept),
        )  # fmt: skip

    # -- the source ------------------------------------------------------------------------------------------

    def export(self, done: Mapping[str, str]) -> Iterator[Portion]:
        """Walk the content in portions. The source is at rest."""
        if SHARED not in done:
            yield Portion(section=SHARED, cursor=write_cursor((QUEUE,)), shared=self._shared())
        for name in self._store.queues.read():
            yield from self._queue(name, read_cursor(done.get(name, "")))

    def _queue(self, name: str, done: Cursor) -> Iterator[Portion]:
        if not done:
            yield Portion(section=name, cursor=write_cursor((QUEUE,)), queue=self._books(name))
        order = self._in_order(name)
        behind = [(seq, id_) for seq, id_, _ in order if (JOBS, seq, id_) > done]
        for start in range(0, len(behind), PORTION):
            ids = [id_ for _, id_ in behind[start : start + PORTION]]
            rows, lost = self._wire.ask_all([self._store.command("look", name, *ids), ("HMGET", queue_key(name, "LOST"), *ids)])
            words = dict(zip(ids, lost, strict=True))
            jobs = [read_job(row, words.get(row[0].decode()) or b"") for row in rows]
            for some in chunks(jobs):
                yield Portion(section=name, cursor=write_cursor((JOBS, some[-1].number, some[-1].id)), jobs=some)
        for seq, id_, lane in order:
            if lane is not None:
                yield from self._payloads(name, (PAYLOADS, seq, id_), lane, done)
        yield from self._records(name, done)

    def _in_order(self, name: str) -> list[tuple[int, str, str | None]]:
        """Return sequence number and id of all jobs, in order; of a collector's lane also that. Other entries stay behind."""
        key, kind = queue_key(name, "JOB"), self._wire.ask(("HGET", queue_key(name, "META"), "kind"))
        found: list[tuple[int, str, str | None]] = []
        for id_, raw in walk_hash(self._wire, key):
            with contextlib.suppress(GarbageError):
                job = read(raw)
                lane = job.lane if kind == b"lanes" and not job.flags & HALTS else None
                found.append((job.seq, id_.decode(), lane))
        return sorted(set(found))  # a scan may return an entry twice

    def _books(self, name: str) -> StoredQueue:
        fields = ("paused", "by", "kind", "seq", "score")
        (paused, by, kind, seq, score), taken = self._wire.ask_all([
            ("HMGET", queue_key(name, "META"), *fields), ("HGETALL", queue_key(name, "SOURCES"))
        ])  # fmt: skip
        return StoredQueue(
            paused_at=None if paused is None else number(paused), paused_by=(by or b"").decode(errors="replace"),
            collects=kind == b"lanes", now=self._store.now(), number=number(seq), score=float(score or 0),
            sources={source.decode(errors="replace"): number(one) for source, one in zip(taken[::2], taken[1::2], strict=True)},
        )  # fmt: skip

    def _payloads(self, queue: str, place: Cursor, lane: str, done: Cursor) -> Iterator[Portion]:
        """Walk the payloads of a lane, by score."""
        index, bodies = queue_key(queue, "WAITS", lane), queue_key(queue, "BODIES", lane)
        if done[:3] != place and place < done:
            return
        start = int(done[3]) if done[:3] == place else 0
        while True:
            entries = self._wire.ask(("ZRANGE", index, str(start), str(start + PORTION - 1)))
            if not entries:
                return
            raws = self._wire.ask(("HMGET", bodies, *[entry[7:] for entry in entries]))
            payloads = [read_payload(lane, raw) for raw in raws if raw is not None]
            for some in chunks(payloads):
                start += len(some)
                yield Portion(section=queue, cursor=write_cursor((*place, start)), payloads=some)

    def _records(self, queue: str, done: Cursor) -> Iterator[Portion]:
        """Walk the records of finished jobs, by their ids."""
        now, key = self._store.now(), queue_key(queue, "FINISHED")
        ids = sorted({id_.decode(errors="replace") for id_, _ in walk_hash(self._wire, key)})
        behind = [id_ for id_ in ids if (RECORDS, id_) > done]
        for start in range(0, len(behind), PORTION):
            some = behind[start : start + PORTION]
            raws = self._wire.ask(("HMGET", key, *some))
            found = [read_record(id_, raw, now) for id_, raw in zip(some, raws, strict=True) if raw is not None]
            for records in chunks([record for record in found if record is not None]):
                yield Portion(section=queue, cursor=write_cursor((RECORDS, records[-1].id)), records=records)

    def _schedules(self) -> list[StoredSchedule]:
        known = self._store.schedules()
        names = sorted({*known.last, *known.paused, *known.kept})
        return [StoredSchedule(name, known.last.get(name), known.paused.get(name), known.kept.get(name)) for name in names]

    def _shared(self) -> SharedState:
        keys = [f"{STORE}{SHARED_KEYS['FIGURES']}{level // SECOND}" for level in LEVELS]
        figures: list[tuple[int, int, bytes]] = []
        for level, answer in zip(LEVELS, self._wire.ask_all([("HGETALL", key) for key in keys]), strict=True):
            for at, raw in zip(answer[::2], answer[1::2], strict=True):
                figures.append((level, number(at) * level, raw))
        return SharedState(
            schedules=self._schedules(), totals=RedisInspect(self._store).totals(), learned=self._store.learned(),
            figures=figures, faults=self._faults(),
        )  # fmt: skip

    def _faults(self) -> list[tuple[str, int, int, int, bytes]]:
        last, *others = self._wire.ask_all([
            ("ZRANGE", STORE + SHARED_KEYS["FAULT_LAST"], "0", "-1", "WITHSCORES"),
            *(("HGETALL", STORE + SHARED_KEYS[name]) for name in ("FAULT_COUNTS", "FAULT_FIRST", "FAULTS")),
        ])  # fmt: skip
        counts, firsts, samples = [dict(zip(answer[::2], answer[1::2], strict=True)) for answer in others]
        return [
            (id_.decode(errors="replace"), number(counts.get(id_)), number(firsts.get(id_)), instant(at), samples.get(id_, b""))
            for id_, at in zip(last[::2], last[1::2], strict=True)
        ]

    # -- the target ------------------------------------------------------------------------------------------

    def take(self, portion: Portion) -> None:
        """Take a portion and its cursor, by one script."""
        if portion.section == SHARED:
            base, books, ranks = STORE, SHARED_KEYS["MOVE"], b""
            commands = shared_commands(portion.shared) if portion.shared is not None else []
        else:
            base, books = queue_base(portion.section), QUEUE_KEYS["META"]
            ranks = bytes({job.priority + 100 for job in portion.jobs if job.priority})
            commands = take_commands(portion)
        words = [word for command in commands for word in (str(len(command)), *command)]
        head = ("EVALSHA", script("take").digest, "1", base, self._store.clock(), books, portion.before, portion.cursor, ranks)
        if not self._wire.ask((*head, *words)):
            raise out_of_step(portion.section)
