"""Enqueueing: calls become jobs and go to the store.

A call is drafted, passes the client middlewares, is sealed into a `Job`, and is pushed: alone, in chunks, or together with
what else the event loop enqueues in the same turn.

Enters: drafts.  Leaves: jobs.  Called by: `task`, `app`.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from laneway.errors import BadOption, BulkError, LanewayError, StoreUnavailable
from laneway.instant import micros
from laneway.job import Gather, Job, check_lane, check_score, lane_id, new_id
from laneway.middleware import Middleware, around
from laneway.options import check_job_options
from laneway.retry import Retry
from laneway.signature import Signature
from laneway.store.contract import Slot, Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["AnyDraft", "Desk", "Draft", "LaneDraft", "LaneKey", "computed"]

#: What names a job's lane: a parameter, or a function of the arguments.
LaneKey = str | Callable[..., object] | None


class Draft:
    """A call on its way to become a job. Client middlewares may change it."""

    __slots__ = (
        "_key",
        "_signature",
        "_unique",
        "args",
        "at",
        "delay",
        "expires",
        "headers",
        "id",
        "kwargs",
        "lane",
        "priority",
        "queue",
        "retry",
        "task",
    )

    def __init__(
        self, task: str, signature: Signature, key: LaneKey, args: Sequence[Any], kwargs: Mapping[str, Any],
        queue: str, priority: int, options: Mapping[str, Any], unique: bool | str = False, expires: float | None = None,
    ) -> None:  # fmt: skip
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.id: str = options.get("id") or new_id()
        self.queue: str = options.get("queue", queue)
        self.lane: str | None = options.get("lane")
        self.priority: int = options.get("priority", priority)
        self.delay, self.at = options.get("run_after", (0, 0))
        self.retry: Retry | None = options.get("retry")
        self.expires: float | None = options.get("expires", expires)
        self.headers: dict[str, str] = {}  #: travel with the job: trace ids and alike
        self._signature = signature
        self._key = key  # the parameter that names the lane, or a function of the arguments
        self._unique = unique  # all arguments, or the one that counts

    def seal(self) -> Job:
        """Check everything and return the job, or raise what is wrong with it."""
        options: dict[str, Any] = {}
        if self.retry is not None:
            options["retry"] = [self.retry.times, None if callable(self.retry.backoff) else self.retry.backoff]
        if self.headers:
            options["headers"] = self.headers
        body = self._signature.pack(self.args, self.kwargs, options)
        if self.lane is None and self._key is not None:
            self.lane = self._lane(self._key)
        if self.lane is not None and self.priority:
            raise BadOption(
                f"{self.task}: lane {self.lane!r} and priority {self.priority} together: a lane is in order, so its jobs have no "
                "priority. Leave one out."
            )
        expires = 0 if self.expires is None else micros(self.expires)
        return Job(
            self.id, self.task, self.queue, body, self.lane, self.priority, self.delay, self.at, self._unique_key(), expires
        )

    def _unique_key(self) -> str | None:
        if not self._unique:
            return None
        if isinstance(self._unique, str):
            counts = self._signature.canonical_value(self._unique, self.args, self.kwargs)
        else:
            counts = self._signature.canonical(self.args, self.kwargs)
        return f"{self.task}:{hashlib.blake2b(counts, digest_size=12).hexdigest()}"

    def check(self) -> None:
        """Check what a middleware may have changed like what a user writes."""
        options: dict[str, Any] = {"id": self.id, "queue": self.queue, "priority": self.priority}
        if self.lane is not None:
            options["lane"] = self.lane
        if self.retry is not None:
            options["retry"] = self.retry
        if self.expires is not None:
            options["expires"] = self.expires
        checked = check_job_options(self.task, options)
        self.lane = checked.get("lane")

    def _lane(self, key: str | Callable[..., object]) -> str:
        if isinstance(key, str):
            found, where = self._signature.value(key, self.args, self.kwargs), f'lane="{key}"'
        else:
            found, where = computed(f"{self.task}, lane=", lambda: self._signature.call(key, self.args, self.kwargs)), "lane="
        try:
            return check_lane(found)
        except ValueError as error:
            raise BadOption(f"{self.task}, {where}: {error}") from None


class LaneDraft:
    """A payload on its way into a collector's lane. Client middlewares may change it."""

    __slots__ = ("_longest", "_pack", "_quiet", "at", "delay", "headers", "lane", "payload", "score", "task")

    def __init__(
        self, task: str, pack: Callable[[object], bytes], lane: object, payload: object, score: object,
        when: tuple[int, int] | None, quiet: int, longest: int,
    ) -> None:  # fmt: skip
        self.task = task
        self.lane = lane
        self.payload = payload
        self.score = score  #: None: as it arrives
        self.delay, self.at = when or (0, 0)
        self.headers: dict[str, str] = {}  #: as on a job's draft, but payloads merge: nothing of it travels
        self._pack = pack
        # Who says when does not mean to wait for quiet.
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

    # What else a job's draft has, for middlewares that look: payloads have none of it.
    priority: ClassVar[int] = 0
    retry: ClassVar[Retry | None] = None
    expires: ClassVar[float | None] = None

    @property
    def kwargs(self) -> dict[str, object]:
        """Nothing."""
        return {}

    def seal(self) -> Job:
        """Check everything and return the payload as a job, or raise what is wrong with it."""
        try:
            lane = check_lane(self.lane)
            score = None if self.score is None else check_score(self.score)
        except ValueError as error:
            raise BadOption(f"{self.task}: {error}") from None
        gather = Gather(score, self._quiet, self._longest)
        body = self._pack(self.payload)
        id_ = lane_id(self.task, lane)
        return Job(id_, self.task, self.task, body, lane, delay=self.delay, at=self.at, gather=gather)

    def check(self) -> None:
        """All that a middleware may have changed is checked when it is sealed."""


AnyDraft = Draft | LaneDraft


def computed(where: str, compute: Callable[[], object]) -> object:
    """Return what a user's function gives; what it raises is said where it was asked for."""
    try:
        return compute()
    except Exception as error:
        raise BadOption(f"{where} raised {type(error).__name__}: {error}") from error


class Desk:
    """Pushes drafts to a store."""

    def __init__(self) -> None:
        self.middlewares: list[Middleware] = []
        self.pushed: Callable[[], None] | None = None  #: called after every push; for tests
        self._gatherers: weakref.WeakKeyDictionary[AbstractEventLoop, _Gatherer] = weakref.WeakKeyDictionary()

    def enqueue(self, store: Store, draft: AnyDraft, slot: Slot | None = None) -> str | None:
        """Push one; return None if it is new, else the id of the job that is there in its stead."""
        if not self.middlewares:
            there = store.push((draft.seal(),), slot)[0]
        else:
            with around(self.middlewares, (draft,)):
                draft.check()
                there = store.push((draft.seal(),), slot)[0]
        if self.pushed is not None:
            self.pushed()
        return there

    async def aenqueue(self, store: Store, draft: AnyDraft) -> str | None:
        """The same from an event loop, in one round trip with all that is enqueued in the same turn."""
        import asyncio  # noqa: PLC0415 - programs without an event loop never load it

        loop = asyncio.get_running_loop()
        gatherer = self._gatherers.get(loop)
        if gatherer is None or gatherer.store is not store:
            gatherer = self._gatherers[loop] = _Gatherer(store)
        if not self.middlewares:
            there = await gatherer.push(loop, draft.seal())
        else:
            with around(self.middlewares, (draft,)):
                draft.check()
                there = await gatherer.push(loop, draft.seal())
        if self.pushed is not None:
            await loop.run_in_executor(None, self.pushed)  # an async task cannot run inside this loop's turn
        return there

    def enqueue_many(self, store: Store, drafts: Iterable[AnyDraft], chunk: int) -> int:
        """Push any number, a chunk in memory at a time; return how many are new."""
        if not isinstance(chunk, int) or chunk < 1:
            raise BadOption(f"chunk={chunk!r}: use a whole number from 1")
        accepted = 0
        rest = iter(drafts)
        try:
            while portion := list(itertools.islice(rest, chunk)):
                with around(self.middlewares, portion):
                    if self.middlewares:
                        for draft in portion:
                            draft.check()
                    accepted += store.push([draft.seal() for draft in portion]).count(None)
                if self.pushed is not None:
                    self.pushed()
        except LanewayError as error:
            unsure = isinstance(error, StoreUnavailable) and "nothing was written" not in str(error).lower()
            more = ". Those on their way may have been accepted too: only with ids they are harmless to repeat" if unsure else ""
            message = f"{error} (enqueue_many stopped here: {accepted} were accepted before; enqueue the rest again{more})"
            raise BulkError(message, accepted=accepted) from error
        return accepted


class _Gatherer:
    """Gathers what one event loop enqueues, and pushes it in order, one round trip at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: list[tuple[Job, Future[str | None]]] = []
        self._pushing = False

    def push(self, loop: AbstractEventLoop, job: Job) -> Future[str | None]:
        future: Future[str | None] = loop.create_future()
        self._waiting.append((job, future))
        if not self._pushing:
            self._pushing = True
            loop.call_soon(self._start, loop)
        return future

    def _start(self, loop: AbstractEventLoop) -> None:
        gathered, self._waiting = self._waiting, []
        try:
            pushed = loop.run_in_executor(None, self.store.push, [job for job, _ in gathered])
        except RuntimeError as error:  # the loop is being closed
            pushed = loop.create_future()
            pushed.set_exception(error)
        pushed.add_done_callback(lambda done: self._finish(loop, gathered, done))

    def _finish(
        self, loop: AbstractEventLoop, gathered: list[tuple[Job, Future[str | None]]], done: Future[list[str | None]]
    ) -> None:
        if self._waiting:
            self._start(loop)
        else:
            self._pushing = False
        error = None if done.cancelled() else done.exception()
        for index, (_, future) in enumerate(gathered):
            if future.done():
                continue
            if done.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result()[index])
