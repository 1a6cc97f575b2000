"""The names of all keys, in one place.

The keys of a queue carry one hash tag, `{queue:shard}`, so that one script finds all of them on one node of a cluster. A
single server has one shard, number 0. The registry of queues and the list of workers have tags of their own.

Lua files use the names as well: `scripts` replaces them by the keys.
"""

from __future__ import annotations

import functools

__all__ = ["QUEUE_KEYS", "SHARED_KEYS", "STORE", "WORKERS", "WORKER_KEYS", "queue_base", "queue_key"]

#: The prefix of keys of the whole store.
STORE = "laneway:{store}:"
#: The prefix of keys of the workers.
WORKERS = "laneway:{workers}:"

#: A queue's keys, behind its base. Those that end with a colon are continued by a priority, a lane, a worker or an id.
QUEUE_KEYS = {
    "META": "meta",  # hash: now, seq, token, number, kind, ranks, blocked, runs, paused, by, moved, copied, and counters
    "JOB": "job",  # hash: id → record (see record.py)
    "DUE": "due:",  # zset per rank: waiting jobs (place, sequence, id) → due
    "RETRY": "retry",  # zset: id → due, of jobs that wait after a failure: they are counted apart
    "LANES": "lanes",  # hash: lane → id of its holder
    "PARKED": "parked:",  # zset per lane: jobs behind the holder → place
    "RUNNING": "running:",  # hash per worker: id → token
    "HOLDERS": "holders",  # set: the workers that have such a hash
    "DEAD": "dead",  # zset: id → when it died
    "HALTED": "halted",  # zset: id → when it died, of jobs that keep their lane
    "UNIQUE": "unique",  # hash: key → id of the job that prevents equal ones
    "END_KEYS": "end_keys",  # hash: id → key, of jobs whose key lasts until their end; also of dead ones, for a replay
    "ERRORS": "errors",  # hash: id → its last errors, JSON texts with their lengths in front
    "NOTES": "notes",  # hash: id → notes of its run, JSON
    "LOST": "lost",  # hash: id → why its claim was lost
    "MARKS": "marks",  # hash: id → request for its run, and the worker
    "RECENT": "recent",  # list: finished runs, some per element
    "FINISHED": "finished",  # hash: id → record of a finished job, see finished.py; expires, as the next two
    "ENDED": "ended",  # zset: id → when it ended
    "KEPT": "kept",  # zset: id → until when it is kept
    "RESULT": "result:",  # string per id: until when it is kept, and the result; expires. Versions before 0.2 wrote it
    "SLOTS": "slots",  # hash: schedule → its last occurrence
    "DROPPED": "dropped:",  # string per schedule: when it was dropped; expires
    "SOURCES": "sources",  # hash: outbox → its highest number that this queue has taken
    "BELL": "bell",  # list: one entry if a worker should look; expires
    "ARRIVED": "arrived",  # hash: interval of ten seconds and task → how many jobs or payloads came; see statistics.py
    "WAITS": "waits:",  # zset per lane of a collector: arrival and digest of a payload that waits or gathers → score
    "BODIES": "bodies:",  # hash per lane: digest → arrival, score, body; behind a byte 0 its headers, if it has any
    "RUNS": "runs:",  # this and the next: as the two above, of running payloads
    "RUN_BODIES": "run_bodies:",
}

#: Keys of the whole store, behind `STORE`.
SHARED_KEYS = {
    "MOVE": "move",  # hash: its part in a copy (move, id; moved: while it is closed), and the cursor of schedules (copied)
    "VERSION": "version",  # string: the layout's version
    "QUEUES": "queues",  # hash: queue → its number
    "COUNTERS": "counters",  # hash: counters of workers and supervisors
    "SKIPPED": "slots",  # hash: schedule → up to where it advanced without jobs
    "PAUSED": "paused_schedules",  # hash: schedule → the name given with the pause
    "KEPT": "schedules",  # hash: schedule that is kept in the store → its entry
    "NEWS": "bell",  # list: one entry if there is a new queue
    "STATISTICS": "statistics",  # hash: now, closed (intervals up to here are summed), closing (until when a worker does that)
    "FIGURES": "figures:",  # hash per level, in seconds: number of the level → a bucket's figures
    "REPORTS": "reports:",  # list per interval: reports that are not summed
    "OPEN": "open",  # set: the intervals that have such a list
    "REPORTERS": "reporters",  # hash: worker → number of its last report
    "REPORTED": "reported",  # zset: worker → when that was
    "FAULTS": "faults",  # hash: id of a kind of failure → its last one, JSON
    "FAULT_COUNTS": "fault_counts",  # hash: id of a kind of failure → how many times it was seen
    "FAULT_FIRST": "fault_first",  # hash: id of a kind of failure → when it was seen first
    "FAULT_LAST": "fault_last",  # zset: id of a kind of failure → when it was seen last
    "LEARNED": "learned",  # hash: task → what workers learned about it, six numbers
}

#: Keys of the workers, behind `WORKERS`.
WORKER_KEYS = {
    "INFO": "info",  # hash: worker → its WorkerInfo, JSON
    "BEATS": "beats",  # hash: worker → its number of beats
    "AT": "at",  # hash: worker → when it last beat
    "COMMANDS": "commands",  # hash: worker → commands for its next beat
    "LOOKED": "looked",  # string: when an observer last looked for dead workers
}


@functools.lru_cache(maxsize=4096)
def queue_base(queue: str, shard: int = 0) -> str:
    """Return the prefix of all keys of a queue."""
    return f"laneway:{{{queue}:{shard}}}:"


def queue_key(queue: str, name: str, more: str = "", shard: int = 0) -> str:
    """Return one of a queue's keys."""
    return queue_base(queue, shard) + QUEUE_KEYS[name] + more
