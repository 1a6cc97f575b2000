"""Finding: the jobs of the Redis store that may match a filter, by their indexes and records, read in portions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from laneway.store.inspection import Filter
from laneway.store.redis.keys import queue_base, queue_key
from laneway.store.redis.reading import record_of
from laneway.store.redis.record import id_of_entry
from laneway.store.redis.scan import walk_hash
from laneway.store.redis.store import RedisStore

__all__ = ["PORTION", "Candidate", "candidate_of", "find_candidates"]

#: How many jobs are read at once.
PORTION = 500


class Candidate(Struct, frozen=True, order=True):
    """A job that may match, sorted by arrival."""

    seq: int
    queue: str
    id: bytes


def find_candidates(store: RedisStore, which: Filter) -> list[Candidate]:
    """Return the jobs that may match: those in the right index, and with the right task and lane."""
    names = [name for name in store.queues.read() if which.queue in (None, name)]
    found: dict[tuple[str, bytes], Candidate] = {}
    for queue in names:
        for id_, raw in _records(store, queue, which):
            if raw is not None and (one := candidate_of(queue, id_, raw, which)) is not None:
                found[queue, id_] = one
    return list(found.values())


def _records(store: RedisStore, queue: str, which: Filter) -> Iterator[tuple[bytes, bytes | None]]:
    if which.ids is None and which.state is None:
        yield from walk_hash(store.wire, queue_key(queue, "JOB"))
        return
    ids = list(_index(store, queue, which.state)) if which.ids is None else [id_.encode() for id_ in which.ids]
    for start in range(0, len(ids), PORTION):
        portion = ids[start : start + PORTION]
        yield from zip(portion, store.wire.ask(("HMGET", queue_key(queue, "JOB"), *portion)), strict=True)


def _index(store: RedisStore, queue: str, state: str | None) -> Iterable[bytes]:
    """Return the ids of a queue's jobs in a state, or at least of those that may be in it."""
    ask = store.wire.ask
    match state:
        case "dead":
            return [
                *ask(("ZRANGE", queue_key(queue, "DEAD"), "0", "-1")),
                *ask(("ZRANGE", queue_key(queue, "HALTED"), "0", "-1")),
            ]
        case "running":
            workers = ask(("SMEMBERS", queue_key(queue, "HOLDERS")))
            held = [ask(("HKEYS", queue_base(queue).encode() + b"running:" + worker)) for worker in workers]
            return [id_ for ids in held for id_ in ids]
        case "retrying":
            found: list[bytes] = ask(("ZRANGE", queue_key(queue, "RETRY"), "0", "-1"))
            return found
        case "blocked":
            return _parked(store, queue)
        case "waiting":
            return [*_waiting(store, queue), *_parked(store, queue)]
        case _:
            return _waiting(store, queue)


def _waiting(store: RedisStore, queue: str) -> list[bytes]:
    ranks = [0, *(rank - 100 for rank in store.wire.ask(("HGET", queue_key(queue, "META"), "ranks")) or b"")]
    answers = store.wire.ask_all([("ZRANGE", queue_key(queue, "DUE", str(rank)), "0", "-1") for rank in ranks])
    return [id_of_entry(entry) for answer in answers for entry in answer]


def _parked(store: RedisStore, queue: str) -> list[bytes]:
    lanes = store.wire.ask(("HKEYS", queue_key(queue, "LANES")))
    base = queue_key(queue, "PARKED").encode()
    answers = store.wire.ask_all([("ZRANGE", base + lane, "0", "-1") for lane in lanes])
    return [id_of_entry(entry) for answer in answers for entry in answer]


def candidate_of(queue: str, id_: bytes, raw: bytes, which: Filter) -> Candidate | None:
    """Return a record as a candidate, if its task, lane and attempts match."""
    if which.lane is not None and which.lane.encode(errors="replace") not in raw:
        return None  # this rules out by far the most
    record = record_of(raw)
    if which.task not in (None, record.task) or which.lane not in (None, record.lane) or (which.failing and not record.attempt):
        return None
    return Candidate(record.seq, queue, id_)
