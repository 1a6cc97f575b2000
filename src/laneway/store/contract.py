"""The store's contract: few verbs, all bulk, each with its promise.

Every store passes the same suite (`tests/test_contract.py`). What holds for all verbs:

* Each is one atomic step and one round trip (`Capabilities.one_step`, or one for each queue): after an error nothing of it has
  happened.
* **An answer may be lost.** Every verb can be called again: a repeated push finds its ids, a repeated settle is refused.
  After an `exchange` without an answer a worker calls `give_back(worker, keep=the tokens it knows)`, and then
  settles again: what is refused now was settled before.
* The store's now is its own clock. It never goes back by more than the store takes to notice that a clock was set, and the places
  of a lane never do.
* A claim's token is greater than those of all earlier claims of the same job or lane, and than all that the same worker has heard
  of. The greater token holds the claim.
* Every job runs in a lane. Push never looks at the lane; a claim takes the lane or parks the job; every exit hands it on.

A collector owns a queue, and what waits there are lanes: each with payloads, a due time and attempts, and known by its
`lane_id`. Where jobs are counted, listed and acted upon, such a lane is one job; its dead ones are payloads.

====================================  =============================================  ====================  ==============
event                                 payloads                                       due time              attempts
====================================  =============================================  ====================  ==============
push, lane not waiting                added                                          given, or now         0
push, lane waiting                    merged                                         the waiting one's     the waiting one's
push, lane running                    gather for the next run                        as given, after it    0
Done                                  the run's are gone; what gathered goes on      as given              0
Retrying                              merged with what gathered                      now + after           + 1
Dead                                  one of the run is dead, the rest merged        now                   0
Snoozed                               merged                                         now + after           unchanged
given back, recovered                 merged                                         as it was             unchanged
Cancelled                             the run's are dropped; what gathered goes on   as given              0
replay of a dead payload              merged                                         now                   0
====================================  =============================================  ====================  ==============

Merging: equal payloads (same bytes) become one, with the larger score and the earlier arrival. So it is commutative, associative
and, with given scores, idempotent. A death that names no payload of the run takes the one that arrived first; one that is dead
already stays one, with the larger score. A replayed payload counts as arrived when it died.

A second push into a lane that gathers while it runs keeps the first one's due time, as in one that waits. A lane without payloads
is gone. With Done, Dead and Cancelled a lane's errors are forgotten as well (a dead payload takes them along). With Done and
Cancelled what gathered waits since it began to gather, in all other cases the lane waits since it did.

The totals count payloads: `enqueued` what was pushed, `merged` two that became one, wherever that was, `processed`, `dead` and
`cancelled` what became of them. `failed`, `retried`, `recovered` and `refused` count runs of lanes.

Workers import this module, never the inspection side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeGuard

from msgspec import Struct

from laneway.core.buckets import Report, Seen
from laneway.core.job import Claim, Job
from laneway.core.outcome import Settled

__all__ = [
    "BeatReply", "Capabilities", "ClaimRequest", "Exchange", "Occurrence", "PipelinedStore", "Schedules", "Store", "WorkerInfo",
    "begin_exchange", "begin_push", "is_pipelined",
]  # fmt: skip


class ClaimRequest(Struct, frozen=True):
    """One step of a claim: at most this many jobs of a queue."""

    queue: str
    most: int
    lanes: int = 1  #: of a collector's queue: how many lanes one claim may have
    payloads: int = 0  #: and how many payloads each of them; 0: all


class Exchange(Struct, frozen=True):
    """The answer to an exchange."""

    refused: list[str]  #: ids of settled claims that this worker no longer held: nothing was changed for them
    claims: list[Claim]  #: what the worker may run now, in order
    more: bool  #: due jobs of the wanted queues were left: ask again as soon as there is room
    next_due: int | None  #: microseconds from now until the next job of the wanted queues is due, if none is left now
    #: how many jobs are ready in each queue that is not paused; if there are claims, or none were wanted, in others than theirs
    #: perhaps a second ago. `more` is exact.
    loads: dict[str, int]
    #: tokens of settled claims of which nothing could be written now, since a transaction that somebody else has not ended holds
    #: them. They are still held: settle them again, a moment later. Only a database with locks on rows has such
    later: frozenset[int] = frozenset()


class Occurrence(Struct, frozen=True):
    """One moment of a schedule. It fires once, whoever pushes first."""

    schedule: str
    at: int  #: microseconds


class Schedules(Struct, frozen=True):
    """How the schedules stand that have fired, or were paused."""

    now: int  #: the store's now, microseconds
    last: dict[str, int]  #: up to which time their slots have fired, or were skipped while paused, microseconds
    paused: dict[str, str]  #: which are paused, and by whom


class WorkerInfo(Struct, frozen=True):
    """Who a worker is; what tells whether it still lives, on its own host, is in the first five."""

    id: str  #: new for every start, never a host or pod name
    host: str = ""
    boot: str = ""  #: the host's boot id and pid namespace: pids mean something only inside both
    pid: int = 0
    started: int = 0  #: the process's start time in clock ticks: a pid can be used again
    queues: tuple[str, ...] = ()
    slots: int = 0
    version: str = ""
    since: int = 0  #: when it started, microseconds
    fleet: str = ""  #: shared by the workers of one fleet; empty: a worker inside a program
    rss: int = 0  #: its memory at this beat, bytes
    pss: int = 0  #: the same, with what it shares with others counted by its share
    phase: str = "working"  #: `working`, `quiet` (it claims nothing more), `stopping`
    tasks: tuple[str, ...] = ()  #: the names of the tasks it knows
    runs: tuple[tuple[int, int], ...] = ()  #: what runs at this beat: its claim's token, and when it started in microseconds
    balance: str = ""  #: what deals its slots to queues: a policy's name; empty: it did not say


class BeatReply(Struct, frozen=True):
    """What a beat brought back for one worker."""

    known: bool  #: False: it was taken for dead, or the store was emptied. Its claims are gone: stop their runs
    marks: dict[str, str]  #: running job → what is asked of it: `cancel`, `delete` or `kill`
    commands: tuple[str, ...]  #: `quiet`, `stop`


class Capabilities(Struct, frozen=True):
    """What a store can do that others cannot."""

    pipelined: bool  #: it is a `PipelinedStore`
    one_step: bool  #: a verb is one atomic step over all queues, and not one over each of them


class Store(Protocol):
    """Where jobs live."""

    capabilities: Capabilities
    enqueue_timeout: float  #: a push takes at most so long, seconds

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        """Take jobs, in order. Says for each None if it is new, else the id of the job that is there in its stead.

        That is the one with the same id, as long as it is in the store; or an equal one (with the same `unique`) that has never
        been claimed. The one that is there stays as it is. A job's key ends at its first claim, and with every exit.

        The store gives each its place: the later of its time and the store's now, then a sequence number.

        A payload (`Job.gather`) joins its lane, and None is said for it. With `quiet`, each push into a lane that waits for its
        first run (or gathers) puts it off until that long from now, though not past `longest` from its first payload, and never
        to an earlier time than it had. Jobs and payloads do not share a queue: pushing one where others are is a `WrongQueue`,
        and nothing is pushed.

        With an occurrence that has fired already, or whose schedule is paused, nothing is pushed, and "" said for each. A paused
        schedule advances all the same: its occurrences are skipped. Without jobs an occurrence just advances its schedule.

        It takes at most `timeout` seconds, all waiting included (`enqueue_timeout`, unless given), then raises StoreUnavailable.
        """
        ...

    def schedules(self) -> Schedules:
        """Say how the schedules stand. Only reads: needs no lock."""
        ...

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write what runs meant, then claim what may run, all in one step.

        Only claims that `worker` still holds with the same token change; the others are refused. A lane's next job becomes
        claimable in the same step that settles its head, and may be among the claims.

        `wants` are steps in order, with at most `limit` claims in all. Within a queue: priority, then due, then place.
        A job whose lane has another holder is parked. One that never started and is too old to (`Job.expires`) leaves, cancelled,
        and with a lane's holder those next in its lane that are too old as well. At most 1,000 are passed over so in one call,
        then it says "more". What is no job is claimed all the same, and its `Claim.garbage` says so: the worker lets it die, and
        tells of it. Of a record that cannot be read only the id is known; its bytes are the body.

        In a collector's queue a claim is a run of up to `ClaimRequest.lanes` due lanes, oldest due first; `most` and `limit`
        count such runs, and at most about 1,000 lanes are claimed in one call. With `ClaimRequest.payloads` only so many of a
        lane are taken, those with the lowest scores, and the rest gathers, due now, since when the lane waited. A lane that
        remembers why a claim was lost runs alone. Each unit of a claim is settled by itself: those that are not held any more are
        refused by their ids, the others settled.

        A job that is dead with `halt` keeps its lane: the next ones stay parked, until it is replayed (it keeps its place) or
        deleted. It is not forgotten with other dead ones.

        A job counts as started when a run of it was settled, or a claim of it was lost with its worker, run or not.
        What was given back has not started.
        """
        ...

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims, except those with the tokens in `keep`. Gives the jobs' ids.

        Place, due time, lane, attempts and why a claim was lost stay as they were. Tokens, not ids: a job that was settled as
        retrying in a lost exchange may have been claimed again in the same one, and of that claim the worker has never heard.
        """
        ...

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, BeatReply]:
        """Say that these workers live, and hear what is asked of them. Commands are heard once, marks until the run ends."""
        ...

    def dead_workers(self) -> list[str]:
        """Name the workers that are dead, as far as this observer can tell.

        On this host by their process, at once; elsewhere by a beat that has not moved for `dead_after` seconds of the
        observer's own time, in which it kept looking.
        """
        ...

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back, each marked with the cause, and forget the worker. Gives the ids.

        Claims that a transaction of somebody else holds are left, and then the worker is not forgotten: `dead_workers` names it
        again, until the last one is back.

        `lost` has a word for some of their tokens (`crash`, `timeout`): the job remembers it, and its next claims carry it until
        one of them is settled, or lost with another word. For the others what was remembered stays as it was.
        """
        ...

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable, `wake` is called, or the time is over (False).

        Nothing that comes between the last exchange and this call is missed.
        """
        ...

    def wake(self) -> None:
        """End a `wait` of this store, now or the next one."""
        ...

    def note(self, notes: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep what runs tell about themselves: (job's id, token, JSON). What is not held any more is passed over."""
        ...

    def record(self, report: Report) -> None:
        """Keep what only workers and supervisors can know: figures, gauges, failures, what was learned, and counters.

        Times are the store's. A report of a worker that has told one with this number, or a higher one, changes nothing: so one
        whose answer got lost is told again, as it was. A store remembers a worker's last number for a day. Without a worker
        each report counts.
        """
        ...

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks, added up. Only reads: needs no lock."""
        ...

    def reserve(self, connections: int) -> None:
        """Allow so many connections at once. A store that has none does nothing."""
        ...

    def migrate(self) -> None:
        """Bring the store's tables to this version. Does nothing if they are."""
        ...

    def close(self) -> None:
        """Let go of files and connections. Using the store again opens them again."""
        ...


class PipelinedStore(Store, Protocol):
    """A store on a server, which works while its caller goes on: two verbs of it have two steps.

    What was begun is done, be its answer heard or not.
    """

    def begin_push(self, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
        """Push; calling what is returned, once, brings the answer."""
        ...

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        """Exchange; calling what is returned, once, brings the answer.

        One more exchange may be begun before the answer was heard, and they are done in this order; any other verb of the worker
        comes after that.
        """
        ...


def is_pipelined(store: Store) -> TypeGuard[PipelinedStore]:
    """Say whether a store works while its caller goes on."""
    return store.capabilities.pipelined


def begin_push(store: Store, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
    """Push in two steps where the store can, else at once."""
    if is_pipelined(store):
        return store.begin_push(jobs)
    answers = store.push(jobs)
    return lambda: answers


def begin_exchange(
    store: Store, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int
) -> Callable[[], Exchange]:
    """Exchange in two steps where the store can, else when the answer is called for."""
    if is_pipelined(store):
        return store.begin(worker, settled, wants, limit)
    return partial(store.exchange, worker, settled, wants, limit)
