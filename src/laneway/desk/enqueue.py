"""Enqueueing: calls become jobs and go to the store.

A call is drafted, passes the client middlewares, is sealed into a `Job`, and is pushed: alone, in chunks, or together with
what else the event loop enqueues in the same turn. Many calls of one task, with no middleware to see them, have one draft
for a whole chunk: what is the same for all is looked at once.

Enters: drafts and calls.  Leaves: jobs.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from laneway.clock import now_micros
from laneway.core.instant import SECOND, micros
from laneway.core.job import Alike, Gather, Job, check_lane, check_score, lane_id
from laneway.core.retry import Retry
from laneway.desk.middleware import Middleware, around
from laneway.desk.options import check_job_options
from laneway.desk.signature import Call, Signature
from laneway.errors import BadOption, BulkError, LanewayError, StoreError, StoreUnavailable, WrongQueue
from laneway.ids import new_id
from laneway.store.contract import Occurrence, Store, begin_push

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["AnyDraft", "Desk", "Draft", "LaneDraft", "LaneKey", "computed"]

T = TypeVar("T")

#: What an event loop enqueues in one turn goes to the store in chunks of so many jobs, and so many bytes of arguments: no chunk
#: keeps a store for long, and none is near to what a server takes at once.
MOST_AT_ONCE = 1000
BYTES_AT_ONCE = 4_000_000

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
        "is_named",
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
        self.is_named = "id" in options  #: its id is the user's choice
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
        call = (self.args, self.kwargs)
        return self._job(self.id, self._signature.pack(*call, self._travelling()), call)

    def seal_all(self, calls: Sequence[Call], ids: Sequence[str]) -> Sequence[Job]:
        """Return a job for each call, like this one but for its id and arguments, or raise what is wrong with one of them."""
        bodies = self._signature.pack_all(calls, self._travelling())
        if not self._unique and (self.lane is not None or self._key is None):
            return Alike(self._job(ids[0], bodies[0], calls[0]), ids, bodies)
        return [self._job(*parts) for parts in zip(ids, bodies, calls, strict=True)]

    def _travelling(self) -> dict[str, Any]:
        """Return the options that a worker must know."""
        options: dict[str, Any] = {}
        if self.retry is not None:
            options["retry"] = [self.retry.times, None if callable(self.retry.backoff) else self.retry.backoff]
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
        return Job(id_, self.task, self.queue, body, lane, self.priority, self.delay, self.at, unique, expires)

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
            score = None if self.score is None else check_score(self.score, now_micros() / SECOND)
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

    def enqueue(self, store: Store, draft: AnyDraft, occurrence: Occurrence | None = None) -> str | None:
        """Push one; return None if it is new, else the id of the job that is there in its stead."""
        if not self.middlewares:
            there = store.push((draft.seal(),), occurrence)[0]
        else:
            with around(self.middlewares, (draft,)):
                draft.check()
                there = store.push((draft.seal(),), occurrence)[0]
        if self.pushed is not None:
            self.pushed()
        return there

    async def aenqueue(self, store: Store, draft: AnyDraft) -> str | None:
        """Push a draft from an event loop. What is enqueued in the same turn shares round trips, see `_Gatherer`."""
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
        """Push any number, a chunk or two in memory at a time; return how many are new."""
        middlewares = self.middlewares

        def seal(portion: list[AnyDraft]) -> list[Job]:
            if middlewares:
                for draft in portion:
                    draft.check()
            return [draft.seal() for draft in portion]

        return self._push_all(store, drafts, chunk, seal, middlewares)

    def enqueue_calls(self, store: Store, calls: Iterable[T], chunk: int, seal: Callable[[list[T]], Sequence[Job]]) -> int:
        """Push calls that no middleware wants to see: each chunk is sealed at once."""
        return self._push_all(store, calls, chunk, seal, ())

    def _push_all(
        self, store: Store, items: Iterable[T], chunk: int, seal: Callable[[list[T]], Sequence[Job]],
        middlewares: Sequence[Middleware],
    ) -> int:  # fmt: skip
        if not isinstance(chunk, int) or chunk < 1:
            raise BadOption(f"chunk={chunk!r}: use a whole number from 1")
        accepted = 0
        heard: Callable[[], list[str | None]] | None = None  # of the chunk before, which the store takes while this one is sealed

        def hear() -> None:
            nonlocal accepted, heard
            if heard is not None:
                last, heard = heard, None
                accepted += last().count(None)
                if self.pushed is not None:
                    self.pushed()

        rest = iter(items)
        try:
            try:
                while portion := list(itertools.islice(rest, chunk)):
                    with around(middlewares, portion if middlewares else ()):
                        sealed = seal(portion)
                        hear()
                        heard = begin_push(store, sealed)
                        if middlewares:
                            hear()  # before they are left
            finally:
                hear()
        except LanewayError as error:
            unsure = isinstance(error, StoreUnavailable) and error.written is None
            more = ". Those on their way may have been accepted too: only with ids they are harmless to repeat" if unsure else ""
            why = str(error).replace("Nothing was written", "Nothing of this chunk was written")
            message = f"{why} (enqueue_many stopped here: {accepted} were accepted before; enqueue the rest again{more})"
            raise BulkError(message, accepted=accepted) from error
        return accepted


class _Call:
    """An `aenqueue` that waits for the store."""

    __slots__ = ("at", "future", "job")

    def __init__(self, job: Job, future: Future[str | None]) -> None:
        self.job = job
        self.future = future
        self.at = time.monotonic()


class _Gatherer:
    """Gathers what one event loop enqueues, and pushes it in order, a chunk at a time, in a thread of its own.

    A chunk has jobs, or payloads of one collector. So after a chunk was refused nothing of it is there twice if the rest of it is
    pushed again: jobs are known by their ids, and all payloads of a chunk are refused together.

    A call fails if it got no answer in `enqueue_timeout` seconds. As long as the store keeps answering, a turn that enqueues more
    than the store can take in that time is worked off all the same.
    """

    def __init__(self, store: Store) -> None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as asyncio

        self.store = store
        self._waiting: dict[str | None, deque[_Call]] = {}  # by their collector; jobs by None
        self._pushing = False
        self._lately = 0.0  # when the store last answered, or was first asked: nobody's time is over before it begins here
        # The loop's own threads may all be busy with the program's work.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="laneway-aenqueue")

    def push(self, loop: AbstractEventLoop, job: Job) -> Future[str | None]:
        call = _Call(job, loop.create_future())
        self._waiting.setdefault(None if job.gather is None else job.queue, deque()).append(call)
        if not self._pushing:
            self._pushing = True
            loop.call_soon(self._begin, loop)
        return call.future

    def _begin(self, loop: AbstractEventLoop) -> None:
        """The loop's turn is over: how long it was is not the store's fault."""
        self._lately = time.monotonic()
        self._start(loop)

    def _start(self, loop: AbstractEventLoop) -> None:
        chunk = self._cut()
        until = max(chunk[0].at, self._lately) + self.store.enqueue_timeout
        try:
            pushed = loop.run_in_executor(self._thread, self._push, [call.job for call in chunk], until)
        except RuntimeError as error:  # the interpreter is being shut down
            pushed = loop.create_future()
            pushed.set_exception(error)
        pushed.add_done_callback(lambda done: self._finish(loop, chunk, done))

    def _cut(self) -> list[_Call]:
        """Take the next chunk from what waits: of those who wait for longest."""
        group, calls = min(self._waiting.items(), key=lambda item: item[1][0].at)
        chunk: list[_Call] = []
        size = 0
        while calls and len(chunk) < MOST_AT_ONCE and (not chunk or size + len(calls[0].job.body) <= BYTES_AT_ONCE):
            if chunk and calls[0].at - chunk[0].at > self.store.enqueue_timeout / 4:
                break  # the first one's time is the chunk's
            chunk.append(calls.popleft())
            size += len(chunk[-1].job.body)
        if not calls:
            del self._waiting[group]
        return chunk

    def _push(self, jobs: Sequence[Job], until: float) -> list[str | Exception | None]:
        """Push jobs together, and return an answer or an error for each. Those that the store refuses fail alone."""
        answers: list[str | Exception | None] = [None] * len(jobs)
        left = list(range(len(jobs)))
        while left:
            try:
                found: Sequence[str | Exception | None] = self._ask([jobs[n] for n in left], until)
                served = left
            except WrongQueue as error:  # nothing was written: the others go again
                served = [n for n in left if jobs[n].queue == error.queue] or left
                found = [error] * len(served)
            except Exception as error:  # noqa: BLE001 - each caller gets its own
                if len(left) > 1 and not isinstance(error, StoreError):
                    # One of them cannot be sent. Which one is not said, and nothing was written.
                    found = [answer for n in left for answer in self._push([jobs[n]], until)]
                else:
                    found = [error] * len(left)
                served = left
            for n, answer in zip(served, found, strict=True):
                answers[n] = answer
            left = sorted(set(left) - set(served))
        return answers

    def _ask(self, jobs: Sequence[Job], until: float) -> list[str | None]:
        seconds = until - time.monotonic()
        if seconds <= 0:
            raise StoreUnavailable(
                "the store did not answer the calls before this one in time. Nothing was written: try again.", written=False
            )
        return self.store.push(jobs, timeout=seconds)

    def _finish(self, loop: AbstractEventLoop, chunk: list[_Call], done: Future[list[str | Exception | None]]) -> None:
        cancelled = done.cancelled()
        error = None if cancelled else done.exception()
        answers = [error] * len(chunk) if cancelled or error is not None else done.result()
        if not any(isinstance(answer, StoreUnavailable) for answer in answers):
            self._lately = time.monotonic()
        if self._waiting:
            self._start(loop)
        else:
            self._pushing = False
        for call, answer in zip(chunk, answers, strict=True):
            if call.future.done():
                continue  # the caller was cancelled: its job is there all the same
            if cancelled:
                call.future.cancel()
            elif isinstance(answer, BaseException):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)
