"""The names of all keys, in one place.

What belongs to a queue carries one hash tag, `{queue:shard}`, so that one script finds all of it on one node of a cluster. A
single server has one shard, number 0. The registry of queues and the list of workers have tags of their own.

Lua files use the names as well: `scripts` puts in what they stand for.
"""

from __future__ import annotations

import functools

__all__ = ["QUEUE_KEYS", "SHARED_KEYS", "STORE", "WORKERS", "WORKER_KEYS", "queue_base", "queue_key"]

#: What the whole store has.
STORE = "laneway:{store}:"
#: Who works here.
WORKERS = "laneway:{workers}:"

#: A queue's keys, behind its base. Those that end with a colon are continued by a priority, a lane, a worker or an id.
QUEUE_KEYS = {
    "META": "meta",  # hash: now, seq, token, number, kind, ranks, blocked, runs, paused, by, and what is counted
    "JOB": "job",  # hash: id → record (see record.py)
    "DUE": "due:",  # zset per rank: who waits (place, sequence, id) → due
    "RETRY": "retry",  # zset: id → due, of those that wait after a failure: they are counted apart
    "LANES": "lanes",  # hash: lane → id of its holder
    "PARKED": "parked:",  # zset per lane: who waits behind the holder → place
    "RUNNING": "running:",  # hash per worker: id → token
    "HOLDERS": "holders",  # set: the workers that have such a hash
    "DEAD": "dead",  # zset: id → when it died
    "HALTED": "halted",  # zset: the same, of those that keep their lane
    "UNIQUE": "unique",  # hash: key → id of the job that waits
    "ERRORS": "errors",  # hash: id → its last errors, JSON texts with their lengths in front
    "NOTES": "notes",  # hash: id → what its run told, JSON
    "LOST": "lost",  # hash: id → why its claim was lost
    "MARKS": "marks",  # hash: id → what is asked of its run, and of which worker
    "RECENT": "recent",  # list: finished runs, some per element
    "RESULT": "result:",  # string per id: until when it is kept, and the result; goes by itself
    "SLOTS": "slots",  # hash: schedule → its last occurrence
    "BELL": "bell",  # list: one entry if somebody is to look; fades by itself
    "ARRIVED": "arrived",  # hash: stretch of ten seconds and task → how many jobs or payloads came; see statistics.py
    "WAITS": "waits:",  # zset per lane of a collector: arrival and digest of a payload that waits or gathers → score
    "BODIES": "bodies:",  # hash per lane: digest → arrival, score, body
    "RUNS": "runs:",  # the same two, of payloads that run
    "RUN_BODIES": "run_bodies:",
}

#: What the whole store has, behind `STORE`.
SHARED_KEYS = {
    "VERSION": "version",  # string: the layout's version
    "QUEUES": "queues",  # hash: queue → its number
    "COUNTERS": "counters",  # hash: what workers and supervisors count
    "SKIPPED": "slots",  # hash: schedule → up to where it advanced without jobs
    "PAUSED": "paused_schedules",  # hash: schedule → by whom
    "NEWS": "bell",  # list: one entry if there is a new queue
    "STATISTICS": "statistics",  # hash: now, closed (up to which stretch all is added up), closing (until when somebody does it)
    "FIGURES": "figures:",  # hash per level, in seconds: number of the level → a bucket's figures
    "REPORTS": "reports:",  # list per stretch: what was reported, and is not added up
    "OPEN": "open",  # set: the stretches that have such a list
    "REPORTERS": "reporters",  # hash: worker → number of its last report
    "REPORTED": "reported",  # zset: worker → when that was
    "FAULTS": "faults",  # hash: id of a kind of failure → its last one, JSON
    "FAULT_COUNTS": "fault_counts",  # hash: the same → how often it was seen
    "FAULT_FIRST": "fault_first",  # hash: the same → when it was seen first
    "FAULT_LAST": "fault_last",  # zset: the same → when it was seen last
    "LEARNED": "learned",  # hash: task → what workers learned about it, six numbers
}

#: Of the workers, behind `WORKERS`.
WORKER_KEYS = {
    "INFO": "info",  # hash: worker → who it is, JSON
    "BEATS": "beats",  # hash: worker → how often it beat
    "AT": "at",  # hash: worker → when it last beat
    "COMMANDS": "commands",  # hash: worker → what is asked of it at its next beat
    "LOOKED": "looked",  # string: when somebody last looked who is dead
}


@functools.lru_cache(maxsize=4096)
def queue_base(queue: str, shard: int = 0) -> str:
    """Return what all keys of a queue begin with."""
    return f"laneway:{{{queue}:{shard}}}:"


def queue_key(queue: str, name: str, more: str = "", shard: int = 0) -> str:
    """Return one of a queue's keys."""
    return queue_base(queue, shard) + QUEUE_KEYS[name] + more
