"""The app: knows the tasks and the store."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from laneway.config import check_written_url, choose_url, safe_url
from laneway.core.codec import Codec
from laneway.desk.async_inspection import AsyncInspection
from laneway.desk.by_name import UsingByName, any_signature
from laneway.desk.collector import AnyCollector, Collector, KeyedCollector, is_collector
from laneway.desk.declare import Declare, DeclareCollector, DeclareKeyed, check_function, import_module, origin
from laneway.desk.enqueue import Desk
from laneway.desk.handle import JobHandle
from laneway.desk.hooks import Hooks
from laneway.desk.inspection import Inspection
from laneway.desk.lifespan import AsyncLifespan, Lifespan
from laneway.desk.middleware import AsyncMiddleware, Middleware, check_middleware
from laneway.desk.options import CollectorOptions, JobOptions, TaskOptions, check_collector_options, check_task_options
from laneway.desk.schedules import DeclaredSchedules, When
from laneway.desk.stats import Stats
from laneway.desk.synonyms import MISSING_OF_APPS, explains_missing
from laneway.desk.task import Bound, Task, is_task
from laneway.desk.task_base import TaskBase
from laneway.desk.transaction import Transaction, find_outbox
from laneway.errors import BadArguments, BadOption, ConfigError, DeclarationError
from laneway.locks import lock_held_over_forks, this_frame
from laneway.settings import UNSET, Settings, check_numbers
from laneway.store import StoreSettings, check_url, open_store
from laneway.store.contract import Store
from laneway.store.inspection import Inspect

if TYPE_CHECKING:
    from laneway.outbox.database import OutboxURL
    from laneway.testing import Testing

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C")
D = TypeVar("D", bound=TaskBase)
F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M", bound=Middleware | AsyncMiddleware)
L = TypeVar("L", bound=Lifespan | AsyncLifespan)

#: Held by a thread that opens a store, since that imports the store's modules.
_opening = lock_held_over_forks()


@explains_missing(MISSING_OF_APPS)
class App:
    """Your tasks and the store their jobs live in.

    >>> app = App("sqlite://")
    >>> @app.task
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> add(1, 2)
    3
    >>> add.enqueue(1, 2).state()
    'ready'

    `url` names the store; without one it is LANEWAY_URL, else `laneway.db` in the working folder. `imports` are
    modules that declare tasks; `"shop.tasks.*"` are all of a package. Dead jobs are kept `dead_days` days (30), and at most
    `dead_max` of them (10,000). A worker on another host whose beat has not moved for `dead_after` seconds (15) is considered
    dead. An enqueue waits at most `enqueue_timeout` seconds (2) for the store. A store on a server has at most `connections`
    connections of this process (5, and in a worker three more than it has slots). What is not given here may be set outside, see
    `laneway.settings`. `outbox` names your own database, if the store is elsewhere: rows there become jobs, see
    docs/transactions.md. `format_error` returns the text to store for an exception, in place of its traceback.
    """

    def __init__(
        self, url: str | None = None, *, imports: Iterable[str] = (), dead_days: float = UNSET, dead_max: int = UNSET,
        dead_after: float = UNSET, enqueue_timeout: float = UNSET, connections: int = UNSET,
        outbox: str | None = UNSET, format_error: Callable[[BaseException], str] | None = None,
    ) -> None:  # fmt: skip
        if isinstance(imports, str):
            raise ConfigError(f"imports={imports!r}: use a list of modules, imports=[{imports!r}]")
        around = Settings()
        chosen = choose_url(url, around)
        self.url: str = chosen.value
        check_written_url(chosen, check_url)  # a mistake surfaces here, not at the first enqueue
        said = {
            "dead_days": dead_days, "dead_max": dead_max, "dead_after": dead_after, "enqueue_timeout": enqueue_timeout,
            "connections": connections,
        }  # fmt: skip
        check_numbers(said)
        if connections is not UNSET and not isinstance(connections, int):
            raise ConfigError(f"connections={connections!r}: use a whole number from 1")
        found = {name: around.find(name, code=value) for name, value in said.items()}
        boxed = around.find("outbox", code=outbox)
        self.sources = {"url": chosen.source, "outbox": boxed.source, **{name: one.source for name, one in found.items()}}
        self.dead_after = float(found["dead_after"].value)
        self.imports = tuple(imports)
        if not all(isinstance(module, str) for module in self.imports):
            raise ConfigError(f"imports={self.imports!r}: use names of modules")
        self.desk = Desk()
        self.desk.outbox = find_outbox(boxed, self.url)
        self.hooks = Hooks()
        self.hooks.format_error = format_error
        self.codecs = Codec()
        self.schedules = DeclaredSchedules(self)
        self.inspect = Inspection(self)
        self.ainspect = AsyncInspection(self.inspect)
        self.stats = Stats(lambda: self.store_inspect, lambda: self.store)
        self.settings: dict[str, Any] = {name: one.value for name, one in found.items()}
        self._declared: dict[str, TaskBase] = {}
        self._loaded = self._importing = False
        self._loading = threading.RLock()  # a module that is imported may ask for the tasks itself
        self._stores: tuple[Store, Inspect] | None = None
        self._by_name = UsingByName(self, {}, any_signature(self.codecs))

    # -- the store -------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store. It opens on first use."""
        return (self._stores or self._open())[0]

    @property
    def store_inspect(self) -> Inspect:
        """The store's inspection side; users call `inspect` and `stats`."""
        return (self._stores or self._open())[1]

    @property
    def outbox(self) -> OutboxURL | None:
        """Where the outbox is, if there is one."""
        return None if self.desk.outbox is None else self.desk.outbox.url

    def _open(self) -> tuple[Store, Inspect]:
        with _opening.held(this_frame()):
            if self._stores is None:
                made = open_store(self.url, StoreSettings(**self.settings))
                self._stores = self._stores or made  # a signal handler may have opened one meanwhile
            return self._stores

    def use_store(self, url: str) -> None:
        """Use this store from now on, in place of the one in the code."""
        check_url(url)
        self.close()
        with _opening.held(this_frame()):
            self.url, self._stores = url, None

    def set_connections(self, connections: int) -> None:
        """Set the most connections of this process to a store on a server, overriding all other settings."""
        self.settings["connections"] = connections
        if self._stores is not None:
            self._stores[0].reserve(connections)

    def need_connections(self, connections: int) -> None:
        """Set the most connections of this process to a store on a server, unless a setting says how many."""
        if self.settings["connections"] is None and "connections" not in check_url(self.url).options:
            self.store.reserve(connections)

    def testing(self, mode: str) -> Testing:
        """Put the app under test: `with app.testing("fake") as jobs`. See `laneway.testing`."""
        from laneway.testing import Testing  # noqa: PLC0415 - only tests need it

        return Testing(self, mode)

    def swap_stores(self, stores: tuple[Store, Inspect] | None) -> tuple[Store, Inspect] | None:
        """Replace the stores, and return the previous ones; for tests."""
        with _opening.held(this_frame()):
            before, self._stores = self._stores, stores
        return before

    def close(self) -> None:
        """Close the store's files and connections. The next use of the app opens them again."""
        if self._stores is not None:
            self._stores[0].close()

    # -- declaring -------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Declare: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Declare a task, bare or with options: name, queue, lane, halt_on_death, priority, retry, keep_result, timeout,
        isolate, kind, unique, unique_until, expires, schedule, timezone, catch_up.

        `lane` names the parameter whose value is the lane's key, or is a function of the arguments that returns it: jobs with the
        same key run one at a time, in order. With `halt_on_death` a dead job keeps its lane, until it is replayed or deleted.
        A run that takes longer than `timeout` seconds is ended, and has failed. With `isolate` each run has a process of its own.
        `kind` says whether it computes ("cpu", one run at a time in each process) or waits ("io"); by default workers learn it.
        """
        checked = check_task_options("@app.task", options)
        if function is not None:
            return self._declare_task(function, checked)
        return Declare(self._declare_task, checked)

    def _declare_task(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Task[..., Any, Any]:
        check_function("@app.task", function)
        made: Task[..., Any, Any] = self._declare(Task(self, function, options))
        self.schedules.add_of_task(made)
        return made

    def schedule(
        self, call: Bound | Task[..., Any, Any], when: When, *, name: str | None = None, timezone: str | None = None,
        catch_up: str = "one",
    ) -> None:  # fmt: skip
        """Enqueue a call by a schedule; a task may have any number of schedules. A schedule without a name has its task's.

        >>> app = App("sqlite://")
        >>> @app.task
        ... def report(region: str) -> None: ...
        >>> app.schedule(report.bind("eu"), "0 3 * * *", name="report-eu", timezone="Europe/Paris")
        >>> [(one.name, one.task, one.args) for one in app.inspect.schedules()]
        [('report-eu', 'laneway.desk.app.report', ['eu'])]
        """
        frame = this_frame(1)
        self.schedules.add(call, when, name, timezone, catch_up, (frame.f_code.co_filename, frame.f_lineno))

    @overload
    def collector(self, function: Callable[[dict[str, list[T]]], C], /) -> Collector[T, C]: ...
    @overload
    def collector(self, /, *, lane: Callable[[Any], str | int], **options: Unpack[CollectorOptions]) -> DeclareKeyed: ...
    @overload
    def collector(self, /, **options: Unpack[CollectorOptions]) -> DeclareCollector: ...
    def collector(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a collector, bare or with options: name, lane, score, max_lanes, max_payloads, merge, debounce, max_wait,
        retry, timeout, isolate, kind.

        Payloads gather per lane while they wait, equal ones merged, and a run gets up to `max_lanes` lanes (1), each with all
        its payloads, the oldest first by score; or `max_payloads` of them, or with `merge="last"` the newest alone. `lane` and
        `score` are functions of a payload. With `debounce` a lane waits until no payload came for that many seconds, though not
        longer than `max_wait` (ten times that). Failed lanes are retried 25 times, then the payload that arrived first is dead.
        """
        checked = check_collector_options("@app.collector", options)
        if function is not None:
            return self._declare_collector(function, checked)
        return (DeclareKeyed if "lane" in checked else DeclareCollector)(self._declare_collector, checked)

    def _declare_collector(self, function: Callable[..., Any], options: Mapping[str, Any]) -> AnyCollector[Any, Any]:
        check_function("@app.collector", function)
        made: AnyCollector[Any, Any] = (KeyedCollector if "lane" in options else Collector)(self, function, options)
        return self._declare(made)

    def _declare(self, made: D) -> D:
        known = self._declared.get(made.name)
        # A module that is loaded twice (reloaded, or run and imported) declares the same function twice: the newer one counts.
        if known is not None and origin(known.function) != origin(made.function):
            raise DeclarationError(f'two tasks are named "{made.name}": give one of them another name with name=')
        self._check_queue(made)
        self._declared[made.name] = made
        return made

    def _check_queue(self, made: TaskBase) -> None:
        """Refuse a queue that a collector shares with something else."""
        for other in self._declared.values():
            if other.queue == made.queue and other.name != made.name:
                owner, task = (made, other) if is_collector(made) else (other, made)
                if is_collector(owner):
                    raise DeclarationError(
                        f"{task.name}: queue {made.queue} belongs to the collector {owner.name}: give the task another one"
                    )

    @property
    def tasks(self) -> Mapping[str, Task[..., Any, Any]]:
        """All tasks by name, those of `imports` included."""
        return {name: task for name, task in self.declared.items() if is_task(task)}

    @property
    def declared(self) -> Mapping[str, TaskBase]:
        """All tasks and collectors by name, those of `imports` included."""
        if not self._loaded:
            with self._loading:
                if not self._loaded and not self._importing:
                    self._importing = True
                    try:
                        for module in self.imports:
                            import_module(module)
                        self._loaded = True
                    finally:
                        self._importing = False
        return MappingProxyType(self._declared)

    def codec(self, kind: type[T], *, encode: Callable[[T], object], decode: Callable[[Any], T]) -> None:
        """Let a type of yours travel: `encode` returns something JSON can hold, `decode` restores the value.

        >>> from fractions import Fraction
        >>> app = App("sqlite://")
        >>> app.codec(Fraction, encode=str, decode=Fraction)
        >>> @app.task
        ... def pour(litres: Fraction) -> None: ...
        >>> pour.enqueue(Fraction(1, 3)).created
        True
        """
        self.codecs.register(kind, encode, decode)

    def client_middleware(self, function: Middleware) -> Middleware:
        """Run a generator around every enqueue; it gets the draft of the job and yields once."""
        check_middleware(function)
        self.desk.middlewares.append(function)
        return function

    def middleware(self, function: M) -> M:
        """Run a generator around every run; it gets the job and yields once. An async one is for async tasks."""
        self.hooks.add_middleware(function)
        return function

    def lifespan(self, function: L) -> L:
        """Run a generator around the life of every worker, and of every isolated run. It may take the worker.

        It yields once, a mapping or nothing: all mappings together are `current_job().resources`. An async one runs on the
        worker's event loop.
        """
        self.hooks.add_lifespan(function)
        return function

    def on_start(self, function: F) -> F:
        """Call a function when a worker starts, before it claims anything. It may take the worker."""
        self.hooks.add("on_start", function)
        return function

    def on_stop(self, function: F) -> F:
        """Call a function when a worker has stopped. It may take the worker."""
        self.hooks.add("on_stop", function)
        return function

    def on_death(self, function: F) -> F:
        """Call a function when a job dies. It may take the job and the error."""
        self.hooks.add("on_death", function)
        return function

    def on_crash(self, function: F) -> F:
        """Call a function before a worker dies of an internal error. It may take the error."""
        self.hooks.add("on_crash", function)
        return function

    # -- enqueueing ------------------------------------------------------------------------------------------

    def using(self, **options: Unpack[JobOptions]) -> UsingByName:
        """Set options for the next enqueue by name: queue, lane, priority, run_after, retry, expires, unique_until, id and
        connection.

        >>> app = App("sqlite://")
        >>> app.using(queue="mail", run_after=60).enqueue("shop.add", 1, 2).state()
        'scheduled'
        """
        return self._by_name.using(**options)

    def enqueue(self, task: str, /, *args: Any, check: bool = True, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue by name. An app with tasks refuses names it does not know; `check=False` sends anyway."""
        return self._by_name.enqueue(task, *args, check=check, **kwargs)

    async def aenqueue(self, task: str, /, *args: Any, check: bool = True, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue by name from an event loop."""
        return await self._by_name.aenqueue(task, *args, check=check, **kwargs)

    def transaction(self, connection: Any) -> Transaction:
        """Let the jobs that this code enqueues go with your transaction: `with app.transaction(connection):`, or `async with`.

        They are there when you commit, and never were if you roll back. Nothing is begun or committed for you. `connection` leads
        to the store's database: of sqlite3, aiosqlite, psycopg, asyncpg, SQLAlchemy (Connection, Session), Django (or its alias).
        """
        return Transaction(self.desk, lambda: self.store, connection)

    def job(self, id: str) -> JobHandle[Any]:  # noqa: A002 - the glossary's word
        """Return a handle of a job, from any process that knows its id. Whether there is such a job is found out when you ask.

        Its result comes as its task declares it, if this program knows the task; else as plain JSON values.

        >>> app = App("sqlite://")
        >>> app.job(app.enqueue("send").id).state(), app.job("nobody").state(), app.job("nobody").cancel()
        ('ready', 'gone', False)
        """
        if not isinstance(id, str):
            raise BadOption(f"app.job({id!r}): use the id of a job, a string")
        return JobHandle(self, id.encode(errors="replace").decode(), "", False, None)  # no id has what cannot be encoded

    def enqueue_many(self, calls: Iterable[Bound], *, chunk: int = 1000) -> int:
        """Enqueue bound calls of any tasks; return how many were accepted. Only a chunk or two are in memory at a time."""
        bounds = map(self._bound, calls)
        if self.desk.middlewares:
            return self.desk.enqueue_many(self.store, (bound.draft() for bound in bounds), chunk)
        return self.desk.enqueue_calls(self.store, bounds, chunk, Bound.seal_all)

    async def aenqueue_many(self, calls: Iterable[Bound] | AsyncIterable[Bound], *, chunk: int = 1000) -> int:
        """Enqueue bound calls from an event loop, which goes on meanwhile; return how many were accepted."""
        return await self.desk.aenqueue_many(self.store, partial(self.enqueue_many, chunk=chunk), calls, chunk)

    @staticmethod
    def _bound(call: object) -> Bound:
        if not isinstance(call, Bound):
            raise BadArguments(f"app.enqueue_many takes bound calls such as send_email.bind(42), not {call!r}")
        return call

    def __repr__(self) -> str:
        return f"<App {safe_url(self.url)}>"
