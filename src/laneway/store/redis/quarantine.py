"""Quarantine: keys of a queue that another program wrote are set aside, and their content is rebuilt.

A key of another type stops every script that meets it, in the middle. So the keys of the queue are scanned (only here, and only
after an error), those that cannot be Laneway's are renamed, and all that follows from the others is written anew: which workers
hold claims, which priorities are in use, how many jobs are parked. Jobs that are in no index wait again, and lanes whose holder
is gone go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from laneway.logs import log
from laneway.store.redis.keys import QUEUE_KEYS, queue_base, queue_key
from laneway.store.redis.scan import walk_hash
from laneway.store.redis.scripts import script
from laneway.store.redis.wire import Wire

__all__ = ["set_aside_foreign_keys"]

PORTION = 500
ASIDE = "garbage:"

_HASHES = (
    "META", "JOB", "LANES", "RUNNING", "UNIQUE", "ERRORS", "NOTES", "LOST", "MARKS", "SLOTS", "BODIES", "RUN_BODIES", "ARRIVED",
    "FINISHED", "END_KEYS", "SOURCES",
)  # fmt: skip
_ZSETS = ("DUE", "RETRY", "PARKED", "DEAD", "HALTED", "WAITS", "RUNS", "ENDED", "KEPT")
#: The type of each key, by its beginning behind the queue's base.
_TYPES = {
    **{QUEUE_KEYS[name]: b"hash" for name in _HASHES},
    **{QUEUE_KEYS[name]: b"zset" for name in _ZSETS},
    **{QUEUE_KEYS[name]: b"list" for name in ("RECENT", "BELL")},
    QUEUE_KEYS["HOLDERS"]: b"set",
    **{QUEUE_KEYS[name]: b"string" for name in ("RESULT", "DROPPED")},
}


def set_aside_foreign_keys(wire: Wire, queue: str, number: int) -> list[str]:
    """Set foreign keys aside, and repair the rest. Returns the new names of the keys that were set aside."""
    base = queue_base(queue)
    names = [key.removeprefix(base.encode()) for key in _keys(wire, base)]
    types = wire.ask_all([("TYPE", base.encode() + name) for name in names])
    wrong = [name for name, found in zip(names, types, strict=True) if found not in (b"none", _expected(name))]
    wire.ask_all([("RENAME", base.encode() + name, base.encode() + ASIDE.encode() + name) for name in wrong])
    ours = [name.decode(errors="replace") for name in names if name not in wrong]
    _rebuild(wire, queue, number, ours)
    aside = [base + ASIDE + name.decode(errors="replace") for name in wrong]
    if aside:
        log.error('queue "%s": keys that another program wrote were renamed to %s; the queue goes on', queue, ", ".join(aside))
    return aside


def _expected(name: bytes) -> bytes:
    """Return the type a key must have; a key that was set aside may have any, and unknown ones are left alone."""
    text = name.decode(errors="replace")
    for start, kind in _TYPES.items():
        if text == start or (start.endswith(":") and text.startswith(start)):
            return kind
    return b"none"


def _keys(wire: Wire, base: str) -> Iterator[bytes]:
    """Walk the keys of a queue that have a known name."""
    pattern = base.replace("[", r"\[").replace("?", r"\?").replace("*", r"\*") + "*"
    cursor: bytes = b"0"
    while True:
        cursor, found = wire.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", "1000"))
        yield from (key for key in found if _expected(key[len(base.encode()) :]) != b"none")
        if int(cursor) == 0:
            return


def _rebuild(wire: Wire, queue: str, number: int, ours: list[str]) -> None:
    """Rebuild what follows from the other keys, then let jobs wait that are in no index."""
    meta, holders = queue_key(queue, "META"), queue_key(queue, "HOLDERS")
    workers = [name.removeprefix("running:") for name in ours if name.startswith(QUEUE_KEYS["RUNNING"])]
    if workers:
        wire.ask(("SADD", holders, *workers))
    due = [name.removeprefix("due:") for name in ours if name.startswith(QUEUE_KEYS["DUE"])]
    ranks = bytes(int(text) + 100 for text in due if text.lstrip("-").isdigit() and text != "0" and -100 <= int(text) <= 100)
    lanes = [name for name in ours if name.startswith(QUEUE_KEYS["PARKED"])]
    parked = sum(wire.ask_all([("ZCARD", queue_base(queue) + name) for name in lanes]))
    wire.ask(("HSET", meta, "number", str(number), "ranks", ranks, "blocked", str(parked)))
    if any(name.startswith((QUEUE_KEYS["WAITS"], QUEUE_KEYS["RUNS"])) for name in ours):
        wire.ask(("HSET", meta, "kind", "lanes"))
    digest = script("reindex").digest
    ids = [id_ for id_, _ in walk_hash(wire, queue_key(queue, "JOB"))]
    for start in range(0, len(ids), PORTION):
        wire.ask(("EVALSHA", digest, "1", queue_base(queue), "", "jobs", *ids[start : start + PORTION]))
    held: list[bytes] = wire.ask(("HKEYS", queue_key(queue, "LANES")))
    for lane in {*held, *(name.removeprefix("parked:").encode() for name in lanes)}:
        wire.ask(("EVALSHA", digest, "1", queue_base(queue), "", "lanes", lane))
