"""Helpers for testing programs that use Laneway.

`app.testing("fake")` keeps enqueued jobs in memory until the test looks at them or lets them run; `app.testing("inline")` runs
every job where it is enqueued, in the same thread. Both use the real store and the real runner, in memory and without other
threads: arguments make the trip, lanes, retries, uniqueness and middlewares hold. `advance` lets time pass.

>>> from laneway import App
>>> app = App("sqlite://")
>>> @app.task
... def greet(name: str) -> None:
...     print("Hello,", name)
>>> with app.testing("fake") as jobs:
...     _ = greet.using(run_after=60).enqueue("Ada")
...     _ = jobs.assert_enqueued(greet, "Ada")
...     jobs.drain()
...     jobs.advance(60)
...     jobs.drain()
0
Hello, Ada
1

Enters: an app.  Leaves: nothing: the app has its own store again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.clock import now_micros
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Outcome, Settled
from laneway.desk.collector import AnyCollector, is_collector
from laneway.desk.context import JobContext, running_job
from laneway.desk.lifespan import Lifespans, Step
from laneway.desk.offload import is_on_a_loop
from laneway.desk.task import Task, is_task
from laneway.desk.task_base import TaskBase
from laneway.errors import ConfigError, did_you_mean
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest
from laneway.store.inspection import JobInfo
from laneway.worker.collector_run import run_sizes
from laneway.worker.event_loop import OwnLoop
from laneway.worker.run import Execution, Runner

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["Testing", "wait_until"]

T = TypeVar("T")

MODES = ("inline", "fake")
#: A drain with more jobs than this fails: its jobs enqueue each other for ever.
MOST = 100_000


def wait_until(condition: Callable[[], T], timeout: float = 5.0, what: str = "") -> T:
    """Call `condition` until it holds, and return its value; raise AssertionError when the time is over.

    >>> wait_until(lambda: "ready")
    'ready'
    """
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what or 'the condition'} did not come true within {timeout:g} s")
        time.sleep(0.005)
    return found


class Testing:
    """An app under test: `with app.testing("fake") as jobs:`."""

    __test__ = False  # otherwise pytest takes it for a test

    def __init__(self, app: App, mode: str) -> None:
        if mode not in MODES:
            raise ConfigError(
                f'app.testing("{mode}"): there is no such mode.{did_you_mean(str(mode), MODES)} Use "inline" or "fake"'
            )
        self._app = app
        self._inline = mode == "inline"
        self._running = False
        self._ahead = 0

    def __enter__(self) -> Testing:
        from laneway.store.sqlite import SQLiteInspect, SQLiteStore  # noqa: PLC0415 - loaded only if it is used

        store = SQLiteStore(clock=lambda: now_micros() + self._ahead)
        self._before = self._app.swap_stores((store, SQLiteInspect(store)))
        self._worker = "testing"
        self._app.desk.is_tested = True
        if self._inline:
            self._app.desk.pushed = self._run_now
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._app.desk.pushed, self._app.desk.is_tested = None, False
        stores = self._app.swap_stores(self._before)
        if stores is not None:
            stores[0].close()

    # -- queries ---------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> list[JobInfo]:
        """The jobs in the store, in order of arrival: not yet run, or dead."""
        return list(self._all())

    def enqueued(self, task: TaskBase | str | None = None) -> list[JobInfo]:
        """Return the waiting jobs, of one task or of all; for a collector its lanes."""
        name = task.name if isinstance(task, TaskBase) else task
        return [job for job in self._all() if job.state != "dead" and (name is None or job.task == name)]

    def assert_enqueued(self, task: TaskBase | str, *args: Any, **kwargs: Any) -> JobInfo:
        """Return the waiting job of a task with these arguments; without any, one of its jobs.

        For a collector: its lane of this name, with this payload if one is given.
        """
        name = task.name if isinstance(task, TaskBase) else task
        there = self.enqueued(name)
        known = self._app.declared.get(name)
        for job in there:
            if not args and not kwargs:
                return job
            if is_collector(known) and self._has(known, job, *args):
                return job
            if is_task(known) and _call(known, job) == known.signature.canonical(args, kwargs):
                return job
        found = "\n  ".join(_shown(job) for job in self.enqueued()) or "nothing"
        wanted = _shown_call(name, args, kwargs) if args or kwargs else name
        raise AssertionError(f"{wanted} is not enqueued. Enqueued:\n  {found}")

    def _has(self, collector: AnyCollector[Any, Any], job: JobInfo, lane: object, *payload: object) -> bool:
        if job.lane != str(lane) or not payload:
            return job.lane == str(lane)
        there = self._app.store_inspect.payloads(job.queue, str(lane), 10_000, None)
        return collector.payload.pack(payload[0]) in {one.body for one in there}

    def assert_not_enqueued(self, task: TaskBase | str | None = None) -> None:
        """Raise AssertionError if a job waits, of one task or of any."""
        found = self.enqueued(task)
        if found:
            raise AssertionError("enqueued:\n  " + "\n  ".join(map(_shown, found)))

    def _all(self) -> Iterator[JobInfo]:
        after: str | None = None
        while True:
            page = self._app.inspect.jobs(limit=1000, after=after)
            yield from page
            if page.next is None:
                return
            after = page.next

    # -- running ---------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass: jobs that are due later, or wait for their retry, become due."""
        self._ahead += round(seconds * 1_000_000)

    def drain(self, *, errors: str = "raise") -> int:
        """Run due jobs in this thread, inside of the app's lifespans, and those that they enqueue; return the number of runs.

        An exception of a job is raised here; with `errors="keep"` the job is retried or dead, as its policy says.
        """
        with self._draining(errors) as drain, _lived(drain.lifespans, "await jobs.adrain()") as loop:
            while (claim := drain.next_claim()) is not None:
                drain.settled = [self._run(drain.runner, claim, loop)]
        return drain.end()

    async def adrain(self, *, errors: str = "raise") -> int:
        """Run due jobs on this event loop, and those that they enqueue: async tasks are awaited here, plain ones called."""
        with self._draining(errors) as drain:
            async with drain.lifespans.aaround():
                while (claim := drain.next_claim()) is not None:
                    run = drain.runner
                    drain.settled = [await run.arun(claim) if self._is_async(claim) else run.run(claim)]
        return drain.end()

    def running(
        self, task: TaskBase | str, *, attempt: int = 1, lane: str | None = None, headers: Mapping[str, str] | None = None
    ) -> _RunningBlock:
        """Let `current_job()` answer inside the block, as in a run of this task: for code that is called directly.

        `with`, or `async with` on an event loop. The app's lifespans are entered around the block.
        """
        name = task.name if isinstance(task, TaskBase) else task
        queue = task.queue if isinstance(task, TaskBase) else "default"
        now = now_micros() + self._ahead
        claim = Claim(1, queue, name, (Unit(new_id(), lane, attempt, now, now, now),))
        lifespans = _lifespans(self._app)
        job = JobContext(claim, [], {}, dict(headers or {}), now, lifespans.resources)
        job.declared = self._app.declared.get(name)
        return _RunningBlock(job, lifespans)

    @contextmanager
    def _draining(self, errors: str) -> Generator[_Drain]:
        """Begin a drain. Inside of another one there is nothing to do.

        That is a job that enqueues: the drain that runs it goes on with what is new.
        """
        if errors not in ("raise", "keep"):
            raise ConfigError(f'errors={errors!r}: use "raise" or "keep"')
        drain = _Drain(self._app, self._worker, keep=errors == "keep", idle=self._running)
        before, self._running = self._running, True
        try:
            yield drain
        finally:
            self._running = before

    def _is_async(self, claim: Claim) -> bool:
        task = self._app.declared.get(claim.task)
        return task is not None and task.is_async

    def _run(self, runner: _Runner, claim: Claim, loop: OwnLoop) -> Settled:
        if self._is_async(claim) and is_on_a_loop():
            self._app.store.give_back(self._worker)
            raise ConfigError(
                f"{claim.task} is async, and drain() cannot wait for it on an event loop: write `await jobs.adrain()`"
            )
        return runner.run_alone(claim, loop)

    def _run_now(self) -> None:
        self.drain()


class _Drain:
    """One drain: claims that are due, one by one, each after the one before was settled."""

    def __init__(self, app: App, worker: str, *, keep: bool, idle: bool) -> None:
        self.lifespans = _lifespans(app, none=idle)
        self.runner = _Runner(app.declared, app.hooks, _forget, resources=self.lifespans.resources)
        self.settled: list[Settled] = []  #: what became of the last claim
        self.runs = 0
        self._app = app
        self._worker = worker
        self._keep = keep
        self._idle = idle
        self._sizes = run_sizes(app.declared)

    def next_claim(self) -> Claim | None:
        """Settle the last claim and return the next one; None: nothing is due, or a job has raised."""
        raised = self.runner.error is not None and not self._keep
        while not self._idle:
            queues = [] if raised else [queue.name for queue in self._app.inspect.queues() if not queue.paused]
            wants = [ClaimRequest(queue, 1, *self._sizes.get(queue, ())) for queue in queues]
            answer = self._app.store.exchange(self._worker, self.settled, wants, len(wants[:1]))
            self.settled = []
            if answer.claims:
                self.runs += 1
                if self.runs > MOST:
                    raise AssertionError(f"{MOST} jobs have run, and there are still more: do they enqueue each other for ever?")
                return answer.claims[0]
            if raised or not (answer.more and wants):
                break
        return None

    def end(self) -> int:
        """Return how many runs that were, or raise what a job has raised."""
        if self.runner.error is not None and not self._keep:
            raise self.runner.error
        _raise_last(self.lifespans)
        return self.runs


class _RunningBlock:
    """A block in which a job seems to run."""

    def __init__(self, job: JobContext, lifespans: Lifespans) -> None:
        self._job = job
        self._lifespans = lifespans
        self._entered = ExitStack()
        self._aentered = AsyncExitStack()

    def __enter__(self) -> JobContext:
        with ExitStack() as stack:
            stack.enter_context(_lived(self._lifespans, "async with jobs.running(…)"))
            self._begin(stack)
            self._entered = stack.pop_all()
        return self._job

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._entered.__exit__(kind, error, trace)
        if error is None:
            _raise_last(self._lifespans)

    async def __aenter__(self) -> JobContext:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._lifespans.aaround())
            self._begin(stack)
            self._aentered = stack.pop_all()
        return self._job

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._aentered.__aexit__(kind, error, trace)
        if error is None:
            _raise_last(self._lifespans)

    def _begin(self, stack: ExitStack | AsyncExitStack) -> None:
        stack.callback(running_job.reset, running_job.set(self._job))


def _lifespans(app: App, *, none: bool = False) -> Lifespans:
    from laneway.worker import Worker  # noqa: PLC0415 - it loads much, and only some tests run jobs

    _ = app.declared  # loads the app's imports, which may have lifespans
    return Lifespans(() if none else app.hooks.lifespans, Worker(app, slots=1))


@contextmanager
def _lived(lifespans: Lifespans, instead: str) -> Generator[OwnLoop]:
    """Run a block inside of lifespans, with an event loop for those that are async, and for async tasks."""

    def wait(step: Step) -> None:
        if is_on_a_loop():
            step.close()
            raise ConfigError(
                f"lifespan {lifespans.at} is async, and this cannot wait for it on an event loop: write `{instead}`"
            )
        loop.wait(step)

    with closing(OwnLoop()) as loop, lifespans.around(wait):
        yield loop


def _raise_last(lifespans: Lifespans) -> None:
    """Raise what a lifespan has raised when it was left: in a test that is a mistake to see."""
    if lifespans.errors:
        raise lifespans.errors[0]


class _Runner(Runner):
    """Remembers the error of a job."""

    error: BaseException | None = None

    def _failed(self, run: Execution, error: BaseException) -> tuple[Outcome, ...]:
        outcomes = super()._failed(run, error)
        if any(one.name in ("retrying", "dead") for one in outcomes):
            self.error = error
        return outcomes


def _forget(_: JobContext) -> None:
    """Drop the notes of a run: they are for the dashboard."""


def _call(task: Task[..., Any, Any], job: JobInfo) -> bytes:
    args, kwargs = task.signature.unpack(job.body)
    return task.signature.canonical(args, kwargs)


def _shown(job: JobInfo) -> str:
    return _shown_call(job.task, (job.lane,) if job.payloads is not None else tuple(job.args or ()), job.kwargs or {})


def _shown_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parts = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    return f"{name}({', '.join(parts)})"
