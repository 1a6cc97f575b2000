"""The store's contract: few verbs, all bulk, each with its promise.

Every store passes the same suite (`tests/test_contract.py`). What holds for all verbs:

* Each is one atomic step and one round trip, or in a store that keeps its queues apart, as Redis does, one for each queue. After
  an error nothing of the step has happened.
* **An answer may be lost.** Every verb can be called again (it is idempotent): a repeated push finds its ids, a repeated settle
  is refused. After an `exchange` without an answer a worker calls `give_back(worker, keep=the tokens it knows)`, and then
  settles again: what is refused now was settled before.
* The store uses its own clock. That never goes back by more than the store takes to notice that a clock was set; places in a
  lane never go back.
* A claim's token is greater than those of all earlier claims of the same job or lane, and than all that the same worker has
  received. The greater token holds the claim.
* Every job runs in a lane. Push never looks at the lane; a claim takes the lane or parks the job; every exit hands it on.

A collector owns a queue, and what waits there are lanes: each with payloads, a due time and attempts, and known by its
`lane_id`. Where jobs are counted, listed and acted upon, such a lane is one job, and a dead job is a payload.

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

Headers (`Gather.headers`) of equal payloads are joined, see `laneway.core.headers`: each once, those of the earlier arrival
first, up to 4,000 bytes. That is commutative and associative but for their order, and for which are dropped beyond that size. A
claim has them in `Payload.headers`. A payload that comes back (retried, snoozed, given back, recovered) keeps them, also where
both sides of a lane are joined. A dead one loses them.

A second push into a lane that gathers while it runs keeps the first one's due time, as in a lane that waits. A lane without
payloads is gone. Done, Dead and Cancelled also remove a lane's errors (a dead payload takes them along). After Done and Cancelled
the lane's waiting time counts from when it began to gather, in all other cases from when it began to wait.

The totals count payloads: `enqueued` those pushed, `merged` those that became one with an equal one (anywhere), `processed`,
`dead` and `cancelled` what became of them. `failed`, `retried`, `recovered` and `refused` count runs of lanes.

Workers import this module, never the inspection side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeGuard

from msgspec import Struct

from laneway.core.buckets import Report, Seen
from laneway.core.job import Claim, Job
from laneway.core.outcome import FinishMark, Settled
from laneway.errors import StoreError, WrongQueue

if TYPE_CHECKING:
    from laneway.transactions.connection import UserConnection
    from laneway.transactions.steps import Steps

__all__ = [
    "BeatReply", "Capabilities", "ClaimRequest", "Exchange", "JoiningStore", "Occurrence", "PipelinedStore", "Relayed",
    "Schedules", "SentPush", "Store", "WorkerInfo",
    "can_join", "is_pipelined",
]  # fmt: skip


#: The result for a job of an outbox: None if it was inserted, the id of the job that prevented it, "" if its number was taken
#: before, or the error of a queue that cannot take it.
Relayed = str | WrongQueue | None


class ClaimRequest(Struct, frozen=True):
    """One step of a claim: at most this many jobs of a queue."""

    queue: str
    most: int
    lanes: int = 1  #: of a collector's queue: how many lanes one claim may have
    payloads: int = 0  #: and how many payloads each of them; 0: all


class Exchange(Struct, frozen=True):
    """The answer to an exchange."""

    refused: list[str]  #: ids of settled claims that this worker no longer held, in any order: nothing was changed for them
    claims: list[Claim]  #: what the worker may run now, in order
    more: bool  #: due jobs of the wanted queues were left: ask again as soon as there is room
    next_due: int | None  #: microseconds from now until the next job of the wanted queues is due, if none is left now
    #: ready jobs of each queue that is not paused. With claims, or if none were wanted, these figures may be a second old;
    #: `more` is exact, but that a store may look for other jobs only every few milliseconds while a lane goes on.
    loads: dict[str, int]
    #: tokens of settled claims that could not be written now, since an open transaction of another client has locked them. They
    #: are still held: settle them again, a moment later. Only a database with row locks has such
    later: frozenset[int] = frozenset()


class Occurrence(Struct, frozen=True):
    """One moment of a schedule. It fires once: the first push counts."""

    schedule: str
    at: int  #: microseconds
    entry: bytes | None = None  #: of a schedule kept in the store: its entry as it was read; None: it is declared in code


class Schedules(Struct, frozen=True):
    """The state of the schedules that have fired, were paused, or are kept in the store."""

    now: int  #: the store's time, microseconds
    last: dict[str, int]  #: up to which time their occurrences have fired, or were skipped while paused, microseconds
    paused: dict[str, str]  #: which are paused, and the name that was given for it
    kept: dict[str, bytes] = {}  #: the entries of those that are kept in the store; a reader must check them


class WorkerInfo(Struct, frozen=True):
    """A worker's identity and state. The first five fields tell, on its own host, whether it still lives."""

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
    pss: int = 0  #: proportional set size, bytes: memory shared with other processes counts by its share
    phase: str = "working"  #: `working`, `quiet` (it claims nothing more), `stopping`
    tasks: tuple[str, ...] = ()  #: the names of the tasks it knows
    runs: tuple[tuple[int, int], ...] = ()  #: what runs at this beat: its claim's token, and when it started in microseconds
    balance: str = ""  #: the name of the policy that deals its slots to queues; empty: not reported


class BeatReply(Struct, frozen=True):
    """The answer to a beat for one worker."""

    known: bool  #: False: the worker was declared dead, or the store was emptied. Its claims are gone: stop their runs
    marks: dict[str, str]  #: running job → what is asked of it: `cancel`, `delete` or `kill`
    commands: tuple[str, ...]  #: `quiet`, `stop`


class Capabilities(Struct, frozen=True):
    """What a store can do that others cannot."""

    pipelined: bool  #: it is a `PipelinedStore`
    transactions: str = ""  #: it is a `JoiningStore`, and this is the kind of its database, as drivers of users name it


class Store(Protocol):
    """Where jobs live."""

    capabilities: Capabilities
    enqueue_timeout: float  #: the longest a push may take, seconds

    def push(self, jobs: Sequence[Job], occurrence: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        """Insert jobs, in order. Return one entry per job: None if it was inserted, else the id of the job that prevented it.

        That is the job with the same id, as long as it is in the store; or one with the same `unique` key. The existing job
        stays as it is. A unique key ends at its job's first claim, and with every exit. With `until_end` it outlasts claims,
        and ends with the job: done, cancelled, deleted or dead. A dead job that is retried takes its key again; if another job
        has it meanwhile, it runs without.

        The store gives each job its place: the later of its time and the store's now, then a sequence number.

        A payload (`Job.gather`) joins its lane; its entry is None. With `quiet`, each push into a lane that waits for its first
        run (or gathers) postpones the lane until `quiet` from now (a debounce), though not past `longest` from its first
        payload, and never to an earlier time than it had. Jobs and payloads do not share a queue: pushing one into a queue of
        the other raises `WrongQueue`, and nothing is pushed.

        With an occurrence that has fired already, or whose schedule is paused, nothing is pushed, and each entry is "". A paused
        schedule still advances: its occurrences are skipped. Without jobs an occurrence just advances its schedule. So it is, but
        without advancing, with an occurrence of a kept schedule whose entry was replaced or dropped.

        A push takes at most `timeout` seconds (default: `enqueue_timeout`), waiting included, then raises StoreUnavailable.
        """
        ...

    def relay(self, source: str, rows: Sequence[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        """Insert jobs of an outbox, in order, each once: they have numbers, which grow. See `Relayed` for the answer.

        A queue remembers, in the step that inserts them, the highest number that it has taken of each source. A job whose number
        is not above it is passed over, however long ago the earlier call was, and also if the job has finished since. All
        else is as in a push. A queue that cannot take its jobs raises no error: the others take theirs.
        """
        ...

    def taken(self, source: str) -> int:
        """Return the highest number that any queue has taken of an outbox; 0 if there is none. Only reads."""
        ...

    def schedules(self) -> Schedules:
        """Return the state of the schedules. Only reads: needs no lock."""
        ...

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        """Write what runs meant, then claim what may run, all in one step.

        Only claims that `worker` still holds with the same token change; the others are refused. A lane's next job becomes
        claimable in the same step that settles its head, and may be among the claims.

        `wants` are steps in order, with at most `limit` claims in all. Within a queue: priority, then due, then place.
        A job whose lane has another holder is parked. A job that never started and is past `Job.expires` leaves, cancelled; if it
        held its lane, so do the next jobs of the lane that have expired. One call passes over at most 1,000 such jobs, then sets
        `more`. An entry that is not a valid job is claimed too, with `Claim.garbage` set: the worker lets it die, and reports it.
        Of a record that cannot be read only the id is known; its bytes are the body.

        In a collector's queue a claim is a run of up to `ClaimRequest.lanes` due lanes, oldest due first; `most` and `limit`
        count such runs, and at most about 1,000 lanes are claimed in one call. `ClaimRequest.payloads` limits the payloads
        taken from each lane to those with the lowest scores; the rest gathers, due now, and keeps the time since when the lane
        waited. A lane with a word for a lost claim runs alone. Each unit of a claim is settled by itself: units that
        the worker no longer holds are refused by their ids, the others settled.

        A job that is dead with `halt` keeps its lane: the next jobs stay parked, until it is replayed (it keeps its place) or
        deleted. The limits for dead jobs do not remove it.

        A job counts as started when a run of it was settled, or a claim of it was lost with its worker, run or not.
        A job that was given back has not started.
        """
        ...

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        """Return the worker's claims to the store, except those with the tokens in `keep`. Returns the jobs' ids.

        Place, due time, lane, attempts and the word for a lost claim (see `recover`) stay as they were. Tokens, not ids: a job
        that was settled as retrying in a lost exchange may have been claimed again in the same one, and the worker does not
        know of that claim.
        """
        ...

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, BeatReply]:
        """Report that these workers live; return what is asked of them. A command is returned once, a mark until the run ends."""
        ...

    def dead_workers(self) -> list[str]:
        """Return the ids of the workers that are dead, as far as this observer can tell.

        A worker on this host is judged by its process, at once; one elsewhere by a beat that has not moved for `dead_after`
        seconds of the observer's own time, in which it kept looking.
        """
        ...

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Give a dead worker's claims back, and forget the worker. Returns the jobs' ids.

        Each job gets an error `worker lost` with the cause, a text. Place, due time, lane and attempts stay as they were. The
        jobs count as started, whether or not they ran, so they do not expire any more.

        Claims that another client's transaction has locked are left, and then the worker is not forgotten: `dead_workers` names
        it again, until the last claim is back. Jobs that a user's transaction has finished leave as done, and are not returned.

        `lost` maps tokens to a word (`crash`, `timeout`): the job remembers it, and its next claims carry it until one of them is
        settled, or lost with another word. For claims not in `lost` the remembered word stays as it was.
        """
        ...

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have become claimable, `wake` is called, or the time is over (then return False).

        Nothing that comes between the last exchange and this call is missed.
        """
        ...

    def wake(self) -> None:
        """End the current `wait` of this store, or the next one."""
        ...

    def note(self, notes: Sequence[tuple[str, int, bytes]]) -> None:
        """Keep the notes of runs: (job's id, token, JSON). Notes for a claim that is not held any more are ignored."""
        ...

    def record(self, report: Report) -> None:
        """Keep what only workers and supervisors can know: figures, gauges, failures, learned task kinds, and counters.

        Times are the store's. A report whose number is not above the last one of its worker changes nothing, so a report whose
        answer got lost can be sent again as it was. A store remembers a worker's last number for a day. Without a worker each
        report counts.
        """
        ...

    def learned(self) -> dict[str, Seen]:
        """Return what workers have learned about tasks, summed. Only reads: needs no lock."""
        ...

    def reserve(self, connections: int) -> None:
        """Allow this many connections at a time. A store without connections does nothing."""
        ...

    def migrate(self) -> None:
        """Bring the store's tables to this version. Does nothing if they are at it."""
        ...

    def close(self) -> None:
        """Close files and connections. The next use opens them again."""
        ...


class SentPush(Protocol):
    """A push on its way, for an event loop: it waits for its descriptor."""

    def fileno(self) -> int:
        """Return the descriptor that can be read when the answer is here."""
        ...

    def comes_at_once(self) -> bool:
        """Wait for less than a millisecond; return whether the answer is here."""
        ...

    def hear(self) -> list[str | None] | None:
        """Return the answer of the push, once; None: nothing was pushed, and `push` must do it."""
        ...

    def give_up(self) -> StoreError:
        """Stop waiting for the answer; return the error to raise."""
        ...


class PipelinedStore(Store, Protocol):
    """A store on a server, which works while its caller goes on: two of its verbs have two steps.

    What was begun is done, whether or not its answer is read.
    """

    def begin_push(self, jobs: Sequence[Job]) -> Callable[[], list[str | None]]:
        """Begin a push. Calling the returned function, once, returns the answer."""
        ...

    def send_push(self, jobs: Sequence[Job], timeout: float) -> SentPush | None:
        """Begin a push without waiting for a connection; None: nothing was sent, and `push` must do it."""
        ...

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        """Begin an exchange. Calling the returned function, once, returns the answer.

        One more exchange may be begun before the answer was read; the store does them in this order. Any other verb of the worker
        comes after that.
        """
        ...


class JoiningStore(Store, Protocol):
    """A store in a database where users may keep tables of their own: jobs can join a transaction of theirs."""

    def push_with(self, connection: UserConnection, jobs: Sequence[Job]) -> Steps[list[str | None]]:
        """Insert jobs in the transaction of a user's connection, in order: they are there when it commits, or never were.

        Returns what `push` does, or "" for a job whose key, or a payload whose lane, is looked at when the transaction has
        committed. A connection to another database raises NotSameDatabase. Nothing is tried again: what fails in a transaction
        must be repeated by the user. No worker is woken: sleeping workers poll, four times a second.
        """
        ...

    def finish_with(self, connection: UserConnection, claim: Claim, mark: FinishMark) -> Steps[None]:
        """Finish a claim of one job in the transaction of a user's connection: if it commits the job is done, whatever comes.

        The transaction leaves a mark on the claim. The job leaves the store, and its lane goes on, when the claim is settled with
        any outcome, given back or recovered. As long as the transaction is open its claim is settled `later`, and `recover`
        leaves it; or both wait for it, where a database has one writer. Nothing is visible before the commit, nothing is left
        after a rollback.

        Raises ClaimLost if the claim is not held any more or a user asked to end the run, BadOption if a transaction has finished
        it before, and NotSameDatabase for another database.
        """
        ...

    def is_finished(self, claim: Claim) -> bool:
        """Return whether a transaction has committed that finishes this claim, which is still held. Only reads: needs no lock."""
        ...

    def open(self) -> None:
        """Make the tables if there are none: a user's transaction may be in the way of that later."""
        ...

    def ring(self) -> None:
        """Wake all sleeping workers."""
        ...


def can_join(store: Store) -> TypeGuard[JoiningStore]:
    """Return whether jobs can be pushed in transactions of users."""
    return bool(store.capabilities.transactions)


def is_pipelined(store: Store) -> TypeGuard[PipelinedStore]:
    """Return whether a store works while its caller goes on."""
    return store.capabilities.pipelined
