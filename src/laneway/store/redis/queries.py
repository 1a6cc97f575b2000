"""Queries: what the Redis store shows.

Counts are read off the indexes and never scan. Lists go through the indexes (see `scan`), as far as needed. Only counts and
actions by something else than state and queue look at all jobs, read in portions.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from laneway.core.buckets import Depth
from laneway.core.job import FINISHED, STATES, lane_id
from laneway.core.outcome import ErrorInfo
from laneway.errors import NotFound
from laneway.store.error_groups import ErrorGroup
from laneway.store.inspection import (
    Counts,
    Filter,
    JobInfo,
    LanePage,
    Page,
    PayloadPage,
    QueueInfo,
    StoredResult,
    WorkerStatus,
    sum_counts,
)
from laneway.store.paging import read_position, write_position
from laneway.store.redis.candidates import PORTION, Candidate, candidate_of, find_candidates
from laneway.store.redis.finished import FinishedJob, find_finished
from laneway.store.redis.keys import SHARED_KEYS, STORE, WORKER_KEYS, WORKERS, queue_base, queue_key
from laneway.store.redis.lane_queries import FoundLane, lane_of, lanes_found_in, list_lanes, list_payloads
from laneway.store.redis.reading import held_job, job_info, number, queue_info, record_of, runs_of
from laneway.store.redis.record import Record, parked_entry
from laneway.store.redis.scan import ENDED, Cursor, Walk, cursor_of
from laneway.store.redis.scripts import KEEP_RUNS
from laneway.store.redis.store import RedisStore
from laneway.store.redis.wire import Command
from laneway.store.runs import Run
from laneway.store.statistics import TOTALS, Kept, Level
from laneway.store.workers import Held, read_worker, status

__all__ = ["RedisQueries"]

#: In a queue with more jobs than this, a lane that was found in the indexes is not looked for among all jobs.
MANY = 100_000


class RedisQueries:
    """The half of the inspection side that changes nothing."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    # -- counts ----------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Count the jobs in each state."""
        return sum_counts(queue.counts for queue in self.queues())

    def queues(self) -> list[QueueInfo]:
        """List the queues by name, with counts as of now."""
        return self._queues(sorted(self._store.queues.read()))

    def _queues(self, names: Sequence[str]) -> list[QueueInfo]:
        commands = [self._store.command("count", name) for name in names]
        answers = self._store.mended(names, commands, self._store.wire.ask_all(commands, patient=True))
        return [queue_info(name, answer) for name, answer in zip(names, answers, strict=True)]

    def count(self, which: Filter) -> int:
        """Count jobs."""
        if which == Filter(state=which.state, queue=which.queue) and which.state in (None, *STATES):
            names = [name for name in self._store.queues.read() if which.queue in (None, name)]
            found = self._queues(names)
            return sum(sum(q.counts.values()) if which.state is None else q.counts[which.state] for q in found)
        return sum(1 for _ in self.matching(which))

    def totals(self) -> dict[str, int]:
        """Return the counters since the store was created."""
        names = self._store.queues.read()
        counters, *answers = self._store.wire.ask_all([
            ("HGETALL", STORE + SHARED_KEYS["COUNTERS"]), *(("HMGET", queue_key(name, "META"), *TOTALS) for name in names),
        ])  # fmt: skip
        counted = {name.decode(errors="replace"): number(n) for name, n in zip(counters[::2], counters[1::2], strict=True)}
        # Those of a store that was copied into this one belong to no queue.
        sums = {name: counted.get(name, 0) + sum(number(answer[n]) for answer in answers) for n, name in enumerate(TOTALS)}
        return {**counted, **sums}

    # -- jobs ------------------------------------------------------------------------------------------------

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        """List jobs in the order of the indexes, or in the opposite order."""
        begin = self._cursor(after, which)
        found: list[tuple[Cursor, JobInfo]] = []
        last: Cursor | None = None
        for portion, meant in self._walk(which, newest, begin, limit + 1):
            found += meant
            if len(found) > limit:
                last = found[limit - 1][0] if limit else None
                break
            if portion is not None:
                last = portion  # it has examined enough
        page = Page(info for _, info in found[:limit])
        if last is not None:
            page.next = write_position((last.group, last.at, last.queue, last.entry.hex()))
        return page

    def _walk(
        self, which: Filter, newest: bool, begin: Cursor | None, first: int
    ) -> Iterator[tuple[Cursor | None, list[tuple[Cursor, JobInfo]]]]:
        """Walk the jobs that match a filter, and read no more of them than needed.

        Yields portions of matching jobs; with the last one the cursor at which it ended, if there may be more.
        """
        names = sorted(name for name in self._store.queues.read() if which.queue in (None, name))
        walk = Walk(self._store.wire, names, which, self._store.now(), newest=newest)
        cursors = walk.cursors(begin, first)
        size, looked = first, 0
        while portion := list(itertools.islice(cursors, size)):
            meant = portion if which.is_indexed or which.state in FINISHED else self._sift(which, portion)
            infos = self._look([(cursor.queue, cursor.id) for cursor in meant], which)
            shown = [(cursor, infos[cursor.queue, cursor.id]) for cursor in meant if (cursor.queue, cursor.id) in infos]
            looked += len(portion)
            enough = which.look is not None and looked >= which.look and not which.is_indexed
            yield (portion[-1] if enough else None), [(cursor, info) for cursor, info in shown if _fits(which, info)]
            if enough:
                return
            size = PORTION if which.is_indexed else 4 * PORTION

    def _sift(self, which: Filter, cursors: Sequence[Cursor]) -> list[Cursor]:
        """Return those whose records may match."""
        ids = None if which.ids is None else {id_.encode(errors="replace") for id_ in which.ids}
        pairs = [
            (cursor, raw) for cursor, raw in zip(cursors, self._raw(cursors), strict=True) if ids is None or cursor.id in ids
        ]
        return [p for p, raw in pairs if raw is not None and candidate_of(p.queue, p.id, raw, which) is not None]

    def matching(self, which: Filter) -> Iterator[tuple[Candidate, JobInfo]]:
        """Walk all jobs that match a filter, by arrival; finished ones by their end."""
        if which.state in FINISHED:
            for _, cursors in self._walk(which, newest=False, begin=None, first=PORTION):
                yield from ((Candidate(0, cursor.queue, cursor.id), info) for cursor, info in cursors)
            return
        found = sorted(find_candidates(self._store, which))
        for start in range(0, len(found), PORTION):
            portion = found[start : start + PORTION]
            infos = self._look([(one.queue, one.id) for one in portion], which)
            for one in portion:
                info = infos.get((one.queue, one.id))
                if info is not None and _fits(which, info):
                    yield one, info

    def job(self, id: str) -> JobInfo | None:  # noqa: A002
        """Return a job that is in the store, or the record of a finished one."""
        found = self._find(id)
        if found is not None:
            return found[1]
        finished = self._finished(id)
        return None if finished is None else finished.info

    def lane_holder(self, queue: str, lane: str) -> JobInfo | None:
        """Return the job that holds a lane."""
        holder = self._store.wire.ask(("HGET", queue_key(queue, "LANES"), lane))
        return None if holder is None else self._look_at([(queue, holder)]).get((queue, holder))

    def parked_before(self, id: str) -> int:  # noqa: A002
        """Count the jobs that wait before a parked job in its lane."""
        found = self._find(id)
        if found is None or found[1].state != "blocked":
            return 0
        record, info = found
        entry = parked_entry(record, id.encode())
        rank = self._store.wire.ask(("ZRANK", queue_key(info.queue, "PARKED", info.lane or ""), entry))
        return int(rank or 0)

    def result(self, id: str) -> StoredResult:  # noqa: A002
        """Return the state of a job."""
        found = self._find(id)
        if found is not None:
            info = found[1]
            return StoredResult(info.state, error=info.errors[-1] if info.errors else None)
        finished = self._finished(id)
        if finished is not None:
            return StoredResult(finished.info.state, value=finished.value, task=finished.info.task)
        names = self._store.queues.read()
        commands: list[Command] = [("TIME",), *(("GET", queue_key(name, "RESULT", id)) for name in names)]
        time, *results = self._store.wire.ask_all(commands)
        now = self._store.time_of(time)
        for kept in results:
            if kept is not None and len(kept) >= 8 and int.from_bytes(kept[:8]) > now:
                return StoredResult("done", value=kept[8:])
        for run in self.recent(KEEP_RUNS):
            if run.id == id and run.outcome in ("done", "cancelled"):
                return StoredResult("done" if run.outcome == "done" else "cancelled")
        return StoredResult("gone")

    def recent(self, limit: int) -> list[Run]:
        """Return the last runs, newest first."""
        names = self._store.queues.read()
        answers = self._store.wire.ask_all([("LRANGE", queue_key(name, "RECENT"), "0", "-1") for name in names])
        newest_first = [portion for answer in answers for portion in reversed(answer)]
        portions = sorted(newest_first, key=lambda portion: -int.from_bytes(portion[:8]))
        runs: list[Run] = []
        for portion in portions:
            if len(runs) >= KEEP_RUNS:
                break
            runs += reversed(runs_of(portion))
        return runs[: min(limit, KEEP_RUNS)]

    # -- statistics ------------------------------------------------------------------------------------------

    def figures(self, level: Level, number: int, depth: Depth = "times") -> Kept:
        """Return the last `number` buckets of a level."""
        return self._store.statistics.figures(self._store.now(), level, number, depth)

    def errors(self, limit: int) -> list[ErrorGroup]:
        """Return failures by kind, the most recent first."""
        return self._store.statistics.faults(limit)

    # -- lanes -----------------------------------------------------------------------------------------------

    def lanes(self, queue: str | None, order: str, limit: int, after: str | None, name: str | None = None) -> LanePage:
        """List lanes in an order."""
        names = sorted(name for name in self._store.queues.read() if queue in (None, name))

        def found_lanes(sizes: bool) -> Iterable[FoundLane]:
            return lanes_found_in(self._store.wire, names, sizes=sizes) if name is None else self._found_lanes_of(names, name)

        return list_lanes(found_lanes, self._look_at, self._store.now(), order, limit, after)

    def _found_lanes_of(self, queues: Sequence[str], lane: str) -> list[FoundLane]:
        """Return the candidate heads of a lane, in each queue that has it.

        A collector's lane is one job, whose id is known. For a lane of jobs all jobs are examined; unless there are very many,
        and it is among those that hold lanes or are due first: then its size is how many of them are in it.
        """
        found_lanes: list[FoundLane] = []
        for queue in queues:
            known = [info for _, info in self.matching(Filter(queue=queue, ids=(lane_id(queue, lane),)))]
            found = [lane_of(info) for info in known if info.payloads is not None]
            if not found and self._store.wire.ask(("HLEN", queue_key(queue, "JOB"))) > MANY:
                found = [one for one in lanes_found_in(self._store.wire, [queue], sizes=False) if one.lane == lane]
            found = found or [lane_of(info) for _, info in self.matching(Filter(queue=queue, lane=lane))]
            found_lanes += filter(None, found)
        return found_lanes

    def _raw(self, cursors: Sequence[Cursor]) -> list[bytes | None]:
        """Return the records of jobs, in order."""
        by_queue: dict[str, list[bytes]] = {}
        for cursor in cursors:
            by_queue.setdefault(cursor.queue, []).append(cursor.id)
        answers = self._store.wire.ask_all([("HMGET", queue_key(queue, "JOB"), *ids) for queue, ids in by_queue.items()])
        records = {queue: iter(answer) for queue, answer in zip(by_queue, answers, strict=True)}
        return [next(records[cursor.queue]) for cursor in cursors]

    def payloads(self, queue: str, lane: str, limit: int, after: str | None) -> PayloadPage:
        """List the payloads of a collector's lane."""
        return list_payloads(self._store.wire, queue, lane, limit, after)

    # -- workers ---------------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerStatus]:
        """List the workers by host and pid, with their claims."""
        names = self._store.queues.read()
        commands: list[Command] = [("TIME",), *(("HGETALL", WORKERS + WORKER_KEYS[name]) for name in ("INFO", "AT"))]
        time, info, at, *holders = self._store.wire.ask_all(
            [*commands, *(("SMEMBERS", queue_key(name, "HOLDERS")) for name in names)]
        )
        now = self._store.time_of(time)
        beats = {name: number(value) for name, value in zip(at[::2], at[1::2], strict=True)}
        known = {id_: read_worker(id_.decode(errors="replace"), raw) for id_, raw in zip(info[::2], info[1::2], strict=True)}
        held = self._held({name: set(members) for name, members in zip(names, holders, strict=True)})
        for id_ in held.keys() - known.keys():
            known[id_] = read_worker(id_.decode(errors="replace"), None)
        workers = [status(worker, beats.get(id_), held.get(id_, []), now) for id_, worker in known.items()]
        return sorted(workers, key=lambda worker: (worker.host, worker.pid, worker.id))

    def _held(self, holders: dict[str, set[bytes]]) -> dict[bytes, list[Held]]:
        """Return the claims of workers, in the order of claiming."""
        asked = [(queue, worker) for queue, members in holders.items() for worker in members]
        keys = [queue_base(queue).encode() + b"running:" + worker for queue, worker in asked]
        claims = self._store.wire.ask_all([("HGETALL", key) for key in keys])
        records = self._store.wire.ask_all([
            ("HMGET", queue_key(queue, "JOB"), *answer[::2]) for (queue, _), answer in zip(asked, claims, strict=True) if answer
        ])  # fmt: skip
        held: dict[bytes, list[Held]] = {}
        rest = iter(records)
        for (queue, worker), answer in zip(asked, claims, strict=True):
            if answer:
                rows = zip(answer[::2], answer[1::2], next(rest), strict=True)
                held.setdefault(worker, []).extend(held_job(queue, id_, token, raw) for id_, token, raw in rows)
        return {worker: sorted(jobs, key=lambda job: job[-1]) for worker, jobs in held.items()}

    def _find(self, id_: str) -> tuple[Record, JobInfo] | None:
        """Look for a job in all queues."""
        names = self._store.queues.read()
        raw_id = id_.encode(errors="replace")
        answers = self._store.wire.ask_all([self._store.command("look", name, raw_id) for name in names])
        for name, answer in zip(names, answers, strict=True):
            if answer:
                return record_of(answer[0][1]), job_info(name, answer[0])
        return None

    def _finished(self, id_: str) -> FinishedJob | None:
        """Look for the record of a finished job in all queues; of several, the last."""
        raw, names = id_.encode(errors="replace"), self._store.queues.read()
        found = find_finished(self._store.wire, [(name, raw) for name in names], self._store.now())
        return max(found.values(), key=lambda job: job.finished, default=None)

    def _look(self, wanted: Sequence[tuple[str, bytes]], which: Filter) -> dict[tuple[str, bytes], JobInfo]:
        """Return jobs, or finished ones if those are meant."""
        if which.state not in FINISHED:
            return self._look_at(wanted)
        return {at: job.info for at, job in find_finished(self._store.wire, wanted, self._store.now()).items()}

    def _look_at(self, wanted: Sequence[tuple[str, bytes]]) -> dict[tuple[str, bytes], JobInfo]:
        by_queue: dict[str, list[bytes]] = {}
        for queue, id_ in wanted:
            by_queue.setdefault(queue, []).append(id_)
        answers = self._store.wire.ask_all([self._store.command("look", queue, *ids) for queue, ids in by_queue.items()])
        return {(queue, row[0]): job_info(queue, row) for queue, answer in zip(by_queue, answers, strict=True) for row in answer}

    def _cursor(self, after: str | None, which: Filter) -> Cursor | None:
        """Return the position in the list that a job's id or a page's `next` means."""
        if after is None:
            return None
        if after.startswith("["):
            group, at, queue, entry = read_position(after, _positions)
            with contextlib.suppress(ValueError):
                return Cursor(group, at, queue, bytes.fromhex(entry))
            raise NotFound(f"after={after!r} is not a position in this list. Go on with after=page.next", after=after)
        found = self._find(after)
        if found is None and (finished := self._finished(after)) is not None:
            return Cursor(ENDED, finished.finished, finished.info.queue, after.encode(errors="replace"))
        if found is None:
            raise NotFound(f"after={after!r}: no such job is in the store any more. Go on with after=page.next instead", id=after)
        return cursor_of(*found, which)


#: Where a page of jobs ended: group, time, queue, entry in its index.
_positions: msgspec.json.Decoder[tuple[int, int, str, str]] = msgspec.json.Decoder(tuple[int, int, str, str])


def _fits(which: Filter, info: JobInfo) -> bool:
    """Return whether a job still matches."""
    if which.state == "waiting":
        if info.state in ("running", "dead"):
            return False
    elif which.state not in (None, info.state):
        return False
    if which.failing and info.state in ("dead", *FINISHED):
        return False
    if which.task not in (None, info.task) or which.lane not in (None, info.lane) or info.id not in (which.ids or (info.id,)):
        return False
    if which.error is None:
        return True
    last = info.errors[-1] if info.errors else ErrorInfo("", "")
    return which.error in last.kind or which.error in last.message
