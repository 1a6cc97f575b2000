"""Enqueueing: calls become jobs and go to the store.

A call is drafted, passes the client middlewares, is sealed into a `Job`, and is pushed: alone, in chunks, or together with
the other jobs that the event loop enqueues in the same turn. Many calls of one task, without middlewares, share one draft for a
whole chunk: options that are equal for all are checked once.

Enters: drafts and calls.  Leaves: jobs.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from laneway.clock import now_micros
from laneway.core.codec import check_size
from laneway.core.headers import check_headers, write_headers
from laneway.core.instant import SECOND, micros
from laneway.core.job import Gather, Job, UniformJobs, check_lane, check_score, lane_id
from laneway.core.retry import Retry, stored_policy
from laneway.desk.gatherer import Gatherer
from laneway.desk.middleware import Middleware, around
from laneway.desk.offload import offload_many, portions
from laneway.desk.options import check_job_options
from laneway.desk.signature import Call, Signature
from laneway.desk.transaction import Transaction, joined
from laneway.errors import BadOption, BulkError, LanewayError, PayloadTooLarge
from laneway.ids import new_id
from laneway.store.contract import Occurrence, Store
from laneway.store.two_steps import begin_push

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from laneway.outbox.insert import Outbox

__all__ = ["AnyDraft", "Desk", "Draft", "LaneDraft", "LaneKey", "computed"]

T = TypeVar("T")

#: The key of a job's lane: a parameter, or a function of the arguments.
LaneKey = str | Callable[..., object] | None


class Draft:
    """A call on its way to become a job. Client middlewares may change it."""

    __slots__ = (
        "_key", "_signature", "_unique", "_until_end", "args", "at", "connection", "delay", "expires", "headers", "id",
        "is_named", "kwargs", "lane", "priority", "queue", "retry", "schedule", "task",
    )  # fmt: skip

    def __init__(
        self, task: str, signature: Signature, key: LaneKey, args: Sequence[Any], kwargs: Mapping[str, Any],
        queue: str, priority: int, options: Mapping[str, Any], unique: bool | str = False, expires: float | None = None,
        unique_until: str = "claim",
    ) -> None:  # fmt: skip
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.id: str = options.get("id") or new_id()
        self.is_named = False  #: the user chose its id
        self.queue = queue
        self.lane: str | None = None
        self.priority = priority
        self.delay = self.at = 0
        self.retry: Retry | None = None
        self.expires = expires
        self.headers: dict[str, str] = {}  #: travel with the job: trace ids and similar
        self.schedule: str | None = None  #: the schedule that fires it
        self.connection: Any = None  #: of the user's: the job goes with its transaction
        self._signature = signature
        self._key = key  # the parameter that names the lane, or a function of the arguments
        self._unique = unique  # all arguments, or the parameter that counts
        self._until_end = unique_until == "end"
        if options:
            self._take(options)

    def _take(self, options: Mapping[str, Any]) -> None:
        """Take the options of `using`."""
        self.is_named = "id" in options
        self.queue = options.get("queue", self.queue)
        self.lane = options.get("lane")
        self.priority = options.get("priority", self.priority)
        self.delay, self.at = options.get("run_after", (0, 0))
        self.retry = options.get("retry")
        self.expires = options.get("expires", self.expires)
        self.connection = options.get("connection")
        if "unique_until" in options:
            if not self._unique:
                raise BadOption(f"{self.task}: unique_until= goes with unique=, which is declared on the task")
            self._until_end = options["unique_until"] == "end"

    def seal(self) -> Job:
        """Check everything and return the job, or raise an error that says what is wrong."""
        call = (self.args, self.kwargs)
        return self._job(self.id, self._signature.pack(*call, self._travelling()), call)

    def seal_all(self, calls: Sequence[Call], ids: Sequence[str]) -> Sequence[Job]:
        """Return a job for each call, with this draft's options, or raise an error for the first call that is wrong."""
        bodies = self._signature.pack_all(calls, self._travelling())
        if not self._unique and (self.lane is not None or self._key is None):
            return UniformJobs(self._job(ids[0], bodies[0], calls[0]), ids, bodies)
        return [self._job(*parts) for parts in zip(ids, bodies, calls, strict=True)]

    def _travelling(self) -> dict[str, Any]:
        """Return the options that a worker must know."""
        options: dict[str, Any] = {}
        if self.retry is not None:
            options["retry"] = stored_policy(self.retry)
        if self.headers:
            options["headers"] = self.headers
        return options

    def _job(self, id_: str, body: bytes, call: Call) -> Job:
        lane = self._lane(self._key, call) if self.lane is None and self._key is not None else self.lane
        if lane is not None and self.priority:
            raise BadOption(
                f"{self.task}: lane {lane!r} and priority {self.priority} together: a lane is in order, so its jobs have no "
                "priority. Leave one out."
            )
        unique = self._unique_key(call) if self._unique else None
        expires = 0 if self.expires is None else micros(self.expires)
        ends = self._until_end
        return Job(id_, self.task, self.queue, body, lane, self.priority, self.delay, self.at, unique, expires, until_end=ends)

    def _unique_key(self, call: Call) -> str:
        if isinstance(self._unique, str):
            counts = self._signature.canonical_value(self._unique, *call)
        else:
            counts = self._signature.canonical(*call)
        return f"{self.task}:{hashlib.blake2b(counts, digest_size=12).hexdigest()}"

    def _lane(self, key: str | Callable[..., object], call: Call) -> str:
        if isinstance(key, str):
            found, where = self._signature.value(key, *call), f'lane="{key}"'
        else:
            found, where = computed(f"{self.task}, lane=", lambda: self._signature.call(key, *call)), "lane="
        try:
            return check_lane(found)
        except ValueError as error:
            raise BadOption(f"{self.task}, {where}: {error}") from None

    def check(self) -> None:
        """Check the values that a middleware may have changed, by the rules for users' values."""
        options: dict[str, Any] = {"id": self.id, "queue": self.queue, "priority": self.priority}
        if self.lane is not None:
            options["lane"] = self.lane
        if self.retry is not None:
            options["retry"] = self.retry
        if self.expires is not None:
            options["expires"] = self.expires
        checked = check_job_options(self.task, options)
        self.lane = checked.get("lane")
        try:
            check_headers(self.headers or {})
        except ValueError as error:
            raise BadOption(f"{self.task}: {error}") from None


class LaneDraft:
    """A payload on its way into a collector's lane. Client middlewares may change it."""

    __slots__ = (
        "_longest", "_pack", "_quiet", "at", "connection", "delay", "headers", "lane", "payload", "schedule", "score", "task",
    )  # fmt: skip

    def __init__(
        self, task: str, pack: Callable[[object], bytes], lane: object, payload: object, score: object,
        when: tuple[int, int] | None, quiet: int, longest: int, connection: Any = None,
    ) -> None:  # fmt: skip
        self.task = task
        self.lane = lane
        self.payload = payload
        self.score = score  #: None: the order of arrival
        self.delay, self.at = when or (0, 0)
        self.headers: dict[str, str] = {}  #: travel with the payload; equal payloads that merge have those of all
        self.schedule: str | None = None  #: as on a job's draft
        self.connection = connection  #: as on a job's draft
        self._pack = pack
        # A caller that gives a time does not want the debounce.
        self._quiet = quiet if when is None else 0
        self._longest = longest

    @property
    def queue(self) -> str:
        """The collector's queue."""
        return self.task

    @property
    def id(self) -> str:
        """The lane's id."""
        return lane_id(self.task, check_lane(self.lane))

    @property
    def args(self) -> tuple[object, ...]:
        """The payload, as on a job's draft."""
        return (self.payload,)

    # The other attributes of a job's draft, for middlewares that read them: payloads have none of them.
    priority: ClassVar[int] = 0
    retry: ClassVar[Retry | None] = None
    expires: ClassVar[float | None] = None

    @property
    def kwargs(self) -> dict[str, object]:
        """Nothing."""
        return {}

    def seal(self) -> Job:
        """Check everything and return the payload as a job, or raise an error that says what is wrong."""
        try:
            lane = check_lane(self.lane)
            score = None if self.score is None else check_score(self.score, now_micros() / SECOND)
            headers = write_headers(self.headers) if self.headers else ""
        except ValueError as error:
            raise BadOption(f"{self.task}: {error}") from None
        gather = Gather(score, self._quiet, self._longest, headers)
        body = self._pack(self.payload)
        if headers:
            try:
                check_size(body + headers.encode())
            except PayloadTooLarge as error:
                raise PayloadTooLarge(f"{self.task}, payload and headers: {error}") from None
        id_ = lane_id(self.task, lane)
        return Job(id_, self.task, self.task, body, lane, delay=self.delay, at=self.at, gather=gather)

    def check(self) -> None:
        """Do nothing: `seal` checks all that a middleware may have changed."""


AnyDraft = Draft | LaneDraft


def computed(where: str, compute: Callable[[], object]) -> object:
    """Return what a user's function returns; an error in it names the place that called it."""
    try:
        return compute()
    except Exception as error:
        raise BadOption(f"{where} raised {type(error).__name__}: {error}") from error


class Surroundings(Protocol):
    """Finds the transaction that a framework has begun around the calling code."""

    def __call__(self, store: Store) -> Transaction | None:
        """Return the transaction of this thread."""

    async def from_loop(self, store: Store) -> Transaction | None:
        """Return the transaction that code of an event loop is in."""


class Desk:
    """Pushes drafts to a store."""

    def __init__(self) -> None:
        self.middlewares: list[Middleware] = []
        self.pushed: Callable[[], None] | None = None  #: called after every push; for tests
        self.outbox: Outbox | None = None  #: rows in the user's database, for a store elsewhere
        self.is_tested = False  #: the store is one of a test: transactions of users are elsewhere
        self.surrounding: Surroundings | None = None  #: set by a framework's integration
        self._gatherers: weakref.WeakKeyDictionary[AbstractEventLoop, Gatherer] = weakref.WeakKeyDictionary()

    def enqueue(self, store: Store, draft: AnyDraft, occurrence: Occurrence | None = None) -> str | None:
        """Push one draft; return None if it was inserted, "" if that is not known yet, or the id of the job that prevented it."""
        if not self.middlewares:
            there = self._push(store, draft, occurrence)
        else:
            draft.schedule = None if occurrence is None else occurrence.schedule
            with around(self.middlewares, (draft,)):
                draft.check()
                there = self._push(store, draft, occurrence)
        if self.pushed is not None:
            self.pushed()
        return there

    def _push(self, store: Store, draft: AnyDraft, occurrence: Occurrence | None) -> str | None:
        block = self._joined(store, draft.connection) if occurrence is None else None
        jobs = (draft.seal(),)
        return (store.push(jobs, occurrence) if block is None else block.push(jobs))[0]

    def _joined(self, store: Store, connection: Any) -> Transaction | None:
        """Return the user's transaction that a call takes part in: of its own connection, or of the block that it is in."""
        if self.is_tested:
            return None
        block = joined(self)
        if block is None and connection is None:
            return None if self.surrounding is None else self.surrounding(store)
        if connection is None or (block is not None and block.given is connection):
            return block
        return Transaction(self, lambda: store, connection)

    async def _ajoined(self, store: Store, connection: Any) -> Transaction | None:
        """Return the user's transaction that a call on an event loop takes part in."""
        if self.surrounding is None or self.is_tested or connection is not None or joined(self) is not None:
            return self._joined(store, connection)
        return await self.surrounding.from_loop(store)

    async def aenqueue(self, store: Store, draft: AnyDraft) -> str | None:
        """Push a draft from an event loop. Drafts enqueued in the same turn share round trips, see `Gatherer`."""
        block = await self._ajoined(store, draft.connection)
        if block is not None:
            with around(self.middlewares, (draft,) if self.middlewares else ()):
                if self.middlewares:
                    draft.check()
                [there] = await block.apush((draft.seal(),))
            return there
        import asyncio  # noqa: PLC0415 - programs without an event loop never load it

        loop = asyncio.get_running_loop()
        gatherer = self._gatherers.get(loop)
        if gatherer is None or gatherer.store is not store:
            gatherer = self._gatherers[loop] = Gatherer(store)
        if not self.middlewares:
            there = await gatherer.push(loop, draft.seal())
        else:
            with around(self.middlewares, (draft,)):
                draft.check()
                there = await gatherer.push(loop, draft.seal())
        if self.pushed is not None:
            await loop.run_in_executor(None, self.pushed)  # an async task cannot run inside this turn of the loop
        return there

    def enqueue_many(self, store: Store, drafts: Iterable[AnyDraft], chunk: int, connection: Any = None) -> int:
        """Push any number of drafts, a chunk or two in memory at a time; return the number inserted."""
        middlewares = self.middlewares

        def seal(portion: list[AnyDraft]) -> list[Job]:
            if middlewares:
                for draft in portion:
                    draft.check()
            return [draft.seal() for draft in portion]

        return self._push_all(store, drafts, chunk, seal, middlewares, connection)

    def enqueue_calls(
        self, store: Store, calls: Iterable[T], chunk: int, seal: Callable[[list[T]], Sequence[Job]], connection: Any = None
    ) -> int:
        """Push calls without middlewares: each chunk is sealed at once."""
        return self._push_all(store, calls, chunk, seal, (), connection)

    async def aenqueue_many(
        self, store: Store, push: Callable[[list[T]], int], items: Iterable[T] | AsyncIterable[T], chunk: int,
        connection: Any = None,
    ) -> int:  # fmt: skip
        """Push items from an event loop by a function that pushes a list of them; return the number accepted."""
        block = await self._ajoined(store, connection)
        if block is None:
            return await offload_many(push, items, chunk)
        accepted = 0
        async for portion in portions(items, chunk):
            for jobs in block.collect(push, portion):
                accepted += _accepted(await block.apush(jobs))
        return accepted

    def _push_all(
        self, store: Store, items: Iterable[T], chunk: int, seal: Callable[[list[T]], Sequence[Job]],
        middlewares: Sequence[Middleware], connection: Any,
    ) -> int:  # fmt: skip
        if not isinstance(chunk, int) or chunk < 1:
            raise BadOption(f"chunk={chunk!r}: use a whole number from 1")
        block = self._joined(store, connection)
        accepted = 0
        heard: Callable[[], list[str | None]] | None = None  # of the previous chunk: the store takes it while this one is sealed

        def hear() -> None:
            nonlocal accepted, heard
            if heard is not None:
                last, heard = heard, None
                accepted += _accepted(last())
                if self.pushed is not None:
                    self.pushed()

        rest = iter(items)
        try:
            try:
                while portion := list(itertools.islice(rest, chunk)):
                    with around(middlewares, portion if middlewares else ()):
                        sealed = seal(portion)
                        hear()
                        heard = begin_push(store, sealed) if block is None else partial(block.push, sealed)
                        if middlewares:
                            hear()  # before the middlewares are left
            finally:
                hear()
        except LanewayError as error:
            if block is not None:
                raise  # all of it is the user's to roll back
            raise BulkError.of(error, accepted) from error
        return accepted


def _accepted(answers: Sequence[str | None]) -> int:
    """Return how many jobs no other one prevented, as far as that is known."""
    return len(answers) - sum(map(bool, answers))
