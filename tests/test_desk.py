"""The desk: declaring tasks, and every way to enqueue them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

import laneway
import redisbench
from laneway import App, JobHandle, LanewayError, Retry
from laneway.clock import now_micros
from laneway.core.instant import as_datetime
from laneway.core.job import Claim, Job
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying
from laneway.desk.enqueue import Draft
from laneway.desk.task import Bound, Task
from laneway.errors import (
    BadArguments,
    BadOption,
    BulkError,
    ConfigError,
    DeclarationError,
    JobCancelled,
    JobFailed,
    NoResult,
    NotFound,
    ResultTimeout,
    StoreBusy,
    StoreUnavailable,
    UnknownJob,
    UnknownQueue,
    UnknownTask,
    WrongQueue,
)
from laneway.store.contract import ClaimRequest, Occurrence
from settling import settled_alike

ERROR = ErrorInfo("ValueError", "no such user")
Send = Task[..., int, int]


@pytest.fixture
def send(app: App) -> Send:
    @app.task(name="send")
    def send(user: int, template: str = "welcome") -> int:
        return user

    return send


def stored(app: App, handle: JobHandle[Any]) -> Any:
    """Return a job as it stands in the store."""
    found = app.inspect.job(handle.id)
    assert found is not None
    return found


def claim(app: App, queue: str = "default", most: int = 1) -> list[Claim]:
    return app.store.exchange("worker", [], [ClaimRequest(queue, most)], most).claims


def settle(app: App, outcome: Outcome, queue: str = "default", keep: int = 0) -> Claim:
    """Run the next job of a queue, so to speak: claim it, and say what its run meant."""
    (claimed,) = claim(app, queue)
    assert app.store.exchange("worker", [settled_alike(claimed, outcome, 1, 2, keep)], [], 0).refused == []
    return claimed


def body(job: Any) -> Any:
    return msgspec.json.decode(job.body)


class Pushes:
    """Watches what reaches the store's push, call by call."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[list[Job]] = []
        self.before: Callable[[], None] = lambda: None  #: happens in each push, before the store's own
        self._real = app.store.push
        monkeypatch.setattr(app.store, "push", self._push)

    def _push(self, jobs: Sequence[Job], slot: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        self.calls.append(list(jobs))
        self.before()
        return self._real(jobs, slot, timeout)

    @property
    def first_arguments(self) -> list[list[Any]]:
        return [[body(job)[0][0] for job in jobs] for jobs in self.calls]


@pytest.fixture
def pushes(app: App, monkeypatch: pytest.MonkeyPatch) -> Pushes:
    return Pushes(app, monkeypatch)


def run_python(folder: Path, *arguments: str, **environ: str) -> list[str]:
    """Run a program in a folder and return the lines it printed."""
    kept = {name: value for name, value in os.environ.items() if name != "LANEWAY_URL"}
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=folder, env={**kept, **environ}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Write modules that can be imported, and forget them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> str:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return name

    yield write
    for name in set(sys.modules) - before:
        module = sys.modules[name]  # a folder has a path and no file
        found = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(str(place).startswith(str(tmp_path)) for place in found):
            del sys.modules[name]


# -- declaring ---------------------------------------------------------------------------------------------------


def test_a_bare_task_has_the_defaults(app: App) -> None:
    @app.task
    def send(user: int) -> None:
        """Send a mail."""

    assert send.name == f"{__name__}.test_a_bare_task_has_the_defaults.send"
    assert (send.queue, send.lane, send.priority, send.retry, send.keep_result) == ("default", None, 0, Retry(), None)
    assert (vars(send)["__name__"], send.__doc__, send.is_async) == ("send", "Send a mail.", False)
    assert dict(app.tasks) == {send.name: send}


def test_a_task_takes_options(app: App) -> None:
    @app.task(name="charge", queue="billing", lane="customer", retry=Retry(times=1), keep_result=60)
    async def charge(customer: int) -> None: ...

    assert (charge.name, charge.queue, charge.lane, charge.keep_result) == ("charge", "billing", "customer", 60)
    assert charge.retry.times == 1
    assert charge.is_async


def test_a_plain_call_just_runs_the_function(app: App, pushes: Pushes) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    @app.task
    async def triple(number: int) -> int:
        return number * 3

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12
    assert pushes.calls == []


def test_a_task_at_module_level_is_named_as_its_module_and_function(write_module: Callable[[str, str], str]) -> None:
    write_module("shop.mail", "from laneway import App\napp = App('sqlite://')\n@app.task\ndef send(): ...\n")
    assert importlib.import_module("shop.mail").send.name == "shop.mail.send"


PROGRAM = """
from laneway import App
app = App("sqlite://")
@app.task
def send(): ...
if __name__ == "__main__":
    print(send.name)
"""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["shop.py"], "shop.send"),
        (["pkg/mod.py"], "mod.send"),
        (["-m", "shop"], "shop.send"),
        (["-m", "pkg.mod"], "pkg.mod.send"),
        (["-m", "pkg"], "pkg.__main__.send"),
    ],
    ids=" ".join,
)
def test_a_task_of_a_program_has_the_name_it_has_when_imported(tmp_path: Path, arguments: list[str], name: str) -> None:
    (tmp_path / "pkg").mkdir()
    for path in ("shop.py", "pkg/mod.py", "pkg/__main__.py"):
        (tmp_path / path).write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "pkg/__init__.py").touch()
    assert run_python(tmp_path, *arguments) == [name]


def test_a_task_of_a_program_has_the_same_name_in_a_spawned_child(tmp_path: Path) -> None:
    program = PROGRAM.replace("    print(send.name)", "") + (
        "    import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=report)\n"
        "    child.start(); child.join()\n"
    )
    program = program.replace("if __name__", "def report():\n    print(send.name)\nif __name__")
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    assert run_python(tmp_path, "shop.py") == ["shop.send"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quene": "a"}, 'no option "quene". Did you mean "queue"?'),
        ({"timeouts": 5}, 'no option "timeouts".*It has: name, queue, lane'),
        ({"queue": "a b"}, "option queue.*not a name for a queue"),
        ({"queue": 5}, "option queue.*not a name for a queue"),
        ({"priority": 101}, "option priority.*not a priority"),
        ({"priority": True}, "option priority.*not a priority"),
        ({"retry": 5}, r"option retry.*Retry\(times=5\)"),
        ({"keep_result": 0}, "option keep_result.*seconds"),
        ({"keep_result": True}, "option keep_result.*seconds"),
        ({"keep_result": math.nan}, "option keep_result.*seconds"),
        ({"keep_result": "an hour"}, "option keep_result.*seconds"),
        ({"name": ""}, "option name.*is not a name: use 1"),
        ({"name": "send mail"}, "option name.*without spaces"),
        ({"name": 5}, "option name.*is not a name: use 1"),
        ({"lane": 5}, "option lane.*name the parameter"),
        ({"lane": "a b"}, "option lane.*name the parameter"),
    ],
)
def test_a_wrong_option_of_a_task_is_refused_where_it_is_written(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words) as caught:
        app.task(**options)
    assert caught.value.option in options  # type: ignore[attr-defined]


def test_a_lane_must_be_the_name_of_a_parameter(app: App) -> None:
    with pytest.raises(DeclarationError, match='lane="customer" names no parameter; there are: user, template'):

        @app.task(lane="customer")
        def send(user: int, template: str) -> None: ...


@pytest.mark.parametrize("lane", ["users", "more"])
def test_a_lane_cannot_be_a_parameter_that_takes_many_values(app: App, lane: str) -> None:
    with pytest.raises(DeclarationError, match=f'lane="{lane}"'):

        @app.task(lane=lane)
        def send(*users: int, **more: int) -> None: ...


def test_a_lane_and_a_priority_exclude_each_other_on_a_task(app: App) -> None:
    with pytest.raises(DeclarationError, match="lane and priority together"):

        @app.task(lane="user", priority=1)
        def send(user: int) -> None: ...


def yielding() -> Iterator[None]:
    yield


async def yielding_async() -> Any:
    yield


class CallMe:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "thing",
    ["send", 5, yielding, yielding_async, functools.partial(print, 1), CallMe(), CallMe],
    ids=lambda thing: type(thing).__name__ + getattr(thing, "__name__", ""),
)
def test_what_is_no_plain_function_cannot_be_a_task(app: App, thing: Any) -> None:
    with pytest.raises(DeclarationError, match=r"function|yields"):
        app.task(thing)


def test_a_task_is_not_declared_again_as_a_function(send: Send) -> None:
    with pytest.raises(DeclarationError, match="send"):
        App("sqlite://").task(send)


def test_attributes_of_a_function_do_not_change_its_policy(app: App) -> None:
    def send(user: int) -> None: ...

    other_decorators = {"queue": "elsewhere", "retry": 3, "app": None, "name": "x", "lane": "user", "tags": ("mail",)}
    send.__dict__.update(other_decorators)
    task = app.task(send)
    assert (task.queue, task.retry, task.app, task.lane) == ("default", Retry(), app, None)
    assert task.name.endswith("send")


def test_two_functions_of_one_name_in_two_files_are_refused(app: App, write_module: Callable[[str, str], str]) -> None:
    def other() -> None: ...

    write_module("elsewhere", "def send(): ...")
    app.task(name="send")(importlib.import_module("elsewhere").send)
    with pytest.raises(DeclarationError, match=r'two tasks are named "send".*name='):
        app.task(name="send")(other)


def test_two_functions_of_one_name_in_one_file_are_refused(app: App) -> None:
    def first() -> None: ...

    def second() -> None: ...

    app.task(name="send")(first)
    with pytest.raises(DeclarationError, match=r'two tasks are named "send".*name='):
        app.task(name="send")(second)


def test_a_module_that_is_loaded_again_declares_its_tasks_anew(app: App, write_module: Callable[[str, str], str]) -> None:
    sys.modules["the_app"] = type(sys)("the_app")
    sys.modules["the_app"].app = app  # type: ignore[attr-defined]
    try:
        source = "from the_app import app\n@app.task\ndef send(): return {}\n"
        module = importlib.import_module(write_module("again", source.format(1)))
        write_module("again", source.format(22))
        importlib.reload(module)
        assert app.tasks["again.send"]() == 22
    finally:
        del sys.modules["the_app"]


# -- enqueueing one ----------------------------------------------------------------------------------------------


def test_an_enqueued_job_is_in_the_store_as_it_was_called(app: App, send: Send) -> None:
    handle = send.enqueue(42, template="bye")
    job = stored(app, handle)
    assert (handle.task, handle.created, handle.state()) == ("send", True, "ready")
    assert (job.task, job.queue, job.lane, job.priority, job.args, job.kwargs) == (
        "send", "default", None, 0, [42], {"template": "bye"},
    )  # fmt: skip


def test_a_bad_call_stores_nothing(app: App, send: Send, pushes: Pushes) -> None:
    with pytest.raises(BadArguments, match=r'send.*argument "user": Expected `int`, got `str`'):
        send.enqueue("42")
    assert pushes.calls == []


@pytest.mark.parametrize(
    ("when", "state"),
    [
        (60, "scheduled"),
        (timedelta(minutes=1), "scheduled"),
        (datetime.now(UTC) + timedelta(hours=1), "scheduled"),
        (0, "ready"),
        (-60, "ready"),
        (datetime(2020, 1, 1, tzinfo=UTC), "ready"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_run_after_is_seconds_a_timedelta_or_a_moment(send: Send, when: Any, state: str) -> None:
    assert send.using(run_after=when).enqueue(1).state() == state


def test_run_after_a_moment_is_due_at_that_moment(app: App, send: Send) -> None:
    moment = datetime.now(UTC) + timedelta(days=3)
    assert stored(app, send.using(run_after=moment).enqueue(1)).due_at == moment


def test_every_option_reaches_the_store(app: App, send: Send) -> None:
    using = send.using(queue="vip", priority=10, retry=Retry(times=0, backoff=2), id="mail-42")
    job = stored(app, using.enqueue(42))
    assert (job.id, job.queue, job.priority) == ("mail-42", "vip", 10)
    assert body(job)[2] == {"retry": [0, 2]}
    assert stored(app, send.using(lane="user-42").enqueue(42)).lane == "user-42"
    assert stored(app, send.using(lane=42).enqueue(42)).lane == "42"


def test_options_chain_and_the_later_one_counts(app: App, send: Send) -> None:
    base = send.using(queue="vip", priority=3)
    assert (stored(app, base.using(queue="slow").enqueue(1)).queue, base.enqueue(1).state()) == ("slow", "ready")
    assert stored(app, base.using(priority=-5).enqueue(1)).priority == -5
    assert stored(app, send.enqueue(1)).queue == "default"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quene": "a"}, r'send\.using\(\) has no option "quene". Did you mean "queue"\?'),
        (
            {"keep_result": 5},
            'no option "keep_result".*It has: queue, lane, priority, run_after, retry, expires, unique_until, id',
        ),
        ({"id": "a/b"}, "option id: 'a/b' is not an id: use 1 to 100 letters"),
        ({"id": ""}, "option id.*not an id"),
        ({"id": 42}, "option id.*not an id"),
        ({"queue": ""}, "option queue.*not a name for a queue"),
        ({"lane": None}, "option lane.*not a key for a lane"),
        ({"lane": True}, "option lane.*not a key for a lane"),
        ({"lane": 1.5}, "option lane.*not a key for a lane"),
        ({"priority": 1000}, "option priority.*not a priority"),
        ({"run_after": datetime(2030, 1, 1)}, "option run_after.*no time zone"),
        ({"run_after": 1_700_000_000_000}, "option run_after.*time stamp in milliseconds"),
        ({"run_after": 1_000_000_000_000_000}, "option run_after.*counted in seconds"),
        ({"run_after": 1_700_000_000}, "option run_after.*time stamp"),
        ({"run_after": 10**400}, "option run_after"),
        ({"run_after": "soon"}, "option run_after.*not a time"),
        ({"run_after": None}, "option run_after.*not a time"),
        ({"retry": 5}, "option retry.*not a policy"),
        ({"retry": None}, "option retry.*not a policy"),
        ({"retry": Retry(backoff=lambda _: 1)}, "option retry.*declare the rest on the task"),
        ({"retry": Retry(on=(ValueError,))}, "option retry.*declare the rest on the task"),
        ({"retry": Retry(give_up_on=(ValueError,))}, "option retry.*declare the rest on the task"),
        ({"lane": "a", "priority": 1}, "lane and priority together"),
    ],
    ids=lambda part: str(part).partition(" at 0x")[0][:60],
)
def test_a_wrong_option_of_using_is_refused_where_it_is_written(send: Send, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        send.using(**options)


def test_a_lane_and_a_priority_exclude_each_other_however_they_come_together(app: App) -> None:
    @app.task(lane="user")
    def in_lane(user: int) -> None: ...

    @app.task(priority=5)
    def first(user: int) -> None: ...

    mixtures: list[Callable[[], object]] = [
        lambda: in_lane.using(priority=1),
        lambda: first.using(lane="a"),
        lambda: first.using(queue="vip").using(lane="a"),
        lambda: first.using(priority=1).using(lane="a"),
        lambda: in_lane.using(queue="vip").using(priority=1),
    ]
    for mixed in mixtures:
        with pytest.raises(BadOption, match="lane and priority together"):
            mixed()
    assert stored(app, first.using(lane="a", priority=0).enqueue(1)).lane == "a"


def test_a_repeated_id_is_harmless_while_the_job_is_in_the_store(app: App, send: Send) -> None:
    first = send.using(id="mail-42").enqueue(1)
    again = send.using(id="mail-42").enqueue(2)
    assert (first.created, again.created, first == again, len({first, again})) == (True, False, True, 1)
    assert stored(app, again).args == [1]
    settle(app, Done())
    assert send.using(id="mail-42").enqueue(3).created


# -- lanes by parameter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "lane"),
    [
        ((7,), {}, "7"),
        (("order-7",), {}, "order-7"),
        ((), {"order": -7}, "-7"),
        ((), {}, "shared"),
        ((2**70,), {}, str(2**70)),
    ],
)
def test_the_value_of_the_lanes_parameter_is_the_lanes_key(app: App, args: Any, kwargs: Any, lane: str) -> None:
    @app.task(lane="order")
    def ship(order: int | str = "shared") -> None: ...

    assert stored(app, ship.enqueue(*args, **kwargs)).lane == lane


def test_a_keyword_only_parameter_can_be_the_lane_and_using_overrides_it(app: App) -> None:
    @app.task(lane="order")
    def ship(weight: float, *, order: int) -> None: ...

    assert stored(app, ship.enqueue(1.5, order=7)).lane == "7"
    assert stored(app, ship.using(lane="express").enqueue(1.5, order=7)).lane == "express"


@pytest.mark.parametrize("value", [True, None, 1.5, "", "a\nb", "k" * 501, ["a"]], ids=lambda value: repr(value)[:20])
def test_a_value_that_is_no_lanes_key_is_refused(app: App, value: Any) -> None:
    @app.task(lane="order")
    def ship(order: Any = None) -> None: ...

    with pytest.raises(BadOption, match=r'ship, lane="order".*not a key for a lane'):
        ship.enqueue(value)


def test_a_default_of_none_is_no_lanes_key_either(app: App) -> None:
    @app.task(lane="order")
    def ship(order: int | None = None) -> None: ...

    with pytest.raises(BadOption, match=r'lane="order".*None is not a key for a lane'):
        ship.enqueue()


# -- handles -----------------------------------------------------------------------------------------------------


@pytest.fixture
def day(app: App) -> Task[[], date, date]:
    @app.task(name="day", keep_result=60)
    def day() -> date:
        return date(2024, 2, 29)

    return day


def test_a_handle_follows_its_job_through_its_states(app: App, send: Send) -> None:
    handle = send.enqueue(1)
    states = [handle.state()]
    (claimed,) = claim(app)
    states.append(handle.state())
    app.store.exchange("worker", [settled_alike(claimed, Retrying(60_000_000, ERROR))], [], 0)
    states.append(handle.state())
    app.inspect.retry(handle.id)
    states.append(handle.state())
    settle(app, Done())
    states.append(handle.state())
    assert states == ["ready", "running", "retrying", "ready", "done"]


def test_a_handle_is_shown_with_its_task_and_id(send: Send) -> None:
    assert repr(send.using(id="mail-42").enqueue(1)) == "<JobHandle send mail-42>"


def test_a_result_arrives_typed(app: App, day: Task[[], date, date]) -> None:
    handle = day.enqueue()
    settle(app, Done(b'"2024-02-29"'), keep=60_000_000)
    assert handle.result(timeout=0) == date(2024, 2, 29)
    assert handle.result() == date(2024, 2, 29)


def test_a_waiting_result_returns_as_soon_as_it_is_there(app: App, day: Task[[], date, date]) -> None:
    handle = day.enqueue()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result, timeout=30)
        settle(app, Done(b'"2024-02-29"'), keep=60_000_000)
        assert waiting.result(30) == date(2024, 2, 29)


def test_a_result_of_none_is_a_result(app: App) -> None:
    @app.task(keep_result=60)
    def nothing() -> None: ...

    handle = nothing.enqueue()
    settle(app, Done(b"null"), keep=60_000_000)
    assert handle.result(timeout=0) is None


def test_a_task_without_keep_result_says_so_at_once(send: Send) -> None:
    handle = send.enqueue(1)
    with pytest.raises(NoResult, match="send keeps no results: declare it with keep_result=SECONDS"):
        handle.result()


@pytest.mark.parametrize("timeout", [0, 0.01, -1])
def test_a_result_that_is_not_there_in_time_is_a_timeout(day: Task[[], date, date], timeout: float) -> None:
    with pytest.raises(ResultTimeout, match=r"day .* is ready after .* s: it goes on"):
        day.enqueue().result(timeout)
    with pytest.raises(TimeoutError):
        day.enqueue().result(timeout)


def test_a_dead_job_has_its_error_instead_of_a_result(app: App, day: Task[[], date, date]) -> None:
    handle = day.enqueue()
    settle(app, Dead(ERROR))
    with pytest.raises(JobFailed, match=r"day .* is dead: ValueError: no such user") as caught:
        handle.result()
    assert caught.value.error.message == "no such user"  # type: ignore[attr-defined]
    assert caught.value.id == handle.id  # type: ignore[attr-defined]


def test_a_cancelled_job_has_no_result(app: App, day: Task[[], date, date]) -> None:
    waiting = day.enqueue()
    assert waiting.cancel()
    with pytest.raises(JobCancelled, match="was cancelled"):
        waiting.result()
    assert waiting.state() == "cancelled"
    running = day.enqueue()
    settle(app, Cancelled())
    with pytest.raises(JobCancelled):
        running.result()


def test_a_result_that_is_kept_no_more_is_not_waited_for(
    app: App, day: Task[[], date, date], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = day.enqueue()
    settle(app, Done(b'"2024-02-29"'), keep=60_000_000)
    later = now_micros() + 61_000_000
    monkeypatch.setattr(app.store, "clock", lambda: later)
    with pytest.raises(NoResult, match="not kept"):
        handle.result()


def test_a_running_job_is_marked_by_cancel(app: App, send: Send) -> None:
    handle = send.enqueue(1)
    claim(app)
    assert handle.cancel()
    assert (handle.state(), stored(app, handle).mark) == ("running", "cancel")


@pytest.mark.parametrize("outcome", [Done(), Dead(ERROR), Cancelled()], ids=lambda outcome: outcome.name)
def test_there_is_nothing_to_cancel_in_a_job_that_has_ended(app: App, send: Send, outcome: Outcome) -> None:
    handle = send.enqueue(1)
    settle(app, outcome)
    assert handle.cancel() is False


# -- enqueueing inside an enqueue --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_signal_handler_may_enqueue_at_every_line_of_an_enqueue(kind: str) -> None:
    app = App("sqlite://" if kind == "sqlite" else redisbench.emptied().url)

    @app.task(lane="user", unique=True)
    def send(user: int) -> None: ...

    @app.client_middleware
    def tag(draft: Draft) -> Generator[None]:
        draft.headers["tag"] = "x"
        yield

    ours = os.path.dirname(laneway.__file__)
    stores = (os.path.join(ours, "store"), os.path.join(ours, "locks.py"))
    lines: dict[tuple[str, int], None] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(ours) or file.startswith(stores):  # each store has its own tests for that
            return None
        if event == "line" and (file, frame.f_lineno) not in lines:
            lines[file, frame.f_lineno] = None
            assert send.enqueue(len(lines)).created
        return trace

    def enqueue() -> None:
        sys.settrace(trace)
        assert send.enqueue(0).created

    thread = threading.Thread(target=enqueue, daemon=True)
    thread.start()
    thread.join(30)

    assert not thread.is_alive(), f"it hangs at line {[*lines][-1]}"
    assert app.inspect.counts()["ready"] == len(lines) + 1 > 50
    app.close()


# -- enqueueing from an event loop -------------------------------------------------------------------------------


def test_what_is_enqueued_in_one_turn_of_the_loop_is_one_push_in_order(send: Send, pushes: Pushes) -> None:
    async def main() -> list[JobHandle[int]]:
        return await asyncio.gather(*(send.aenqueue(n) for n in range(100)))

    handles = asyncio.run(main())
    assert pushes.first_arguments == [list(range(100))]
    assert [handle.id for handle in handles] == [job.id for job in pushes.calls[0]]
    assert all(handle.created for handle in handles)
    assert handles[7].state() == "ready"


def test_what_comes_while_a_push_is_under_way_gathers_for_the_next(send: Send, pushes: Pushes) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        under_way.set()
        assert go_on.wait(30)

    async def main() -> None:
        pushes.before = hold
        first = asyncio.ensure_future(send.aenqueue(0))
        await asyncio.to_thread(under_way.wait, 30)
        rest = [asyncio.ensure_future(send.aenqueue(n)) for n in range(1, 10)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    assert pushes.first_arguments == [[0], list(range(1, 10))]


def test_a_bad_call_does_not_fail_its_neighbours(send: Send, pushes: Pushes) -> None:
    calls: list[Any] = [1, "two", 3]

    async def main() -> list[Any]:
        return await asyncio.gather(*(send.aenqueue(n) for n in calls), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert first.created
    assert isinstance(second, BadArguments)
    assert third.created
    assert pushes.first_arguments == [[1, 3]]


def test_an_error_of_the_store_reaches_all_callers_and_the_next_push_works(send: Send, pushes: Pushes) -> None:
    def fail() -> None:
        raise StoreBusy

    async def main() -> tuple[list[Any], JobHandle[int]]:
        pushes.before = fail
        failed = await asyncio.gather(*(send.aenqueue(n) for n in range(3)), return_exceptions=True)
        pushes.before = lambda: None
        return failed, await send.aenqueue(4)

    failed, worked = asyncio.run(main())
    assert [type(error) for error in failed] == [StoreBusy] * 3
    assert worked.state() == "ready"


def test_cancelling_one_caller_does_not_lose_the_others(app: App, send: Send, pushes: Pushes) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        under_way.set()
        assert go_on.wait(30)

    async def main() -> list[Any]:
        pushes.before = hold
        callers = [asyncio.ensure_future(send.aenqueue(n)) for n in range(3)]
        await asyncio.to_thread(under_way.wait, 30)
        callers[1].cancel()
        go_on.set()
        return await asyncio.gather(*callers, return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert isinstance(second, asyncio.CancelledError)
    assert (first.state(), third.state()) == ("ready", "ready")


def test_a_caller_cancelled_before_the_push_does_not_lose_the_others(send: Send, pushes: Pushes) -> None:
    async def main() -> list[Any]:
        callers = [asyncio.ensure_future(send.aenqueue(n)) for n in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        return await asyncio.gather(*callers, return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert isinstance(first, asyncio.CancelledError)
    assert (second.created, third.created) == (True, True)


@pytest.mark.parametrize("shut", [False, True], ids=["busy", "shut"])
def test_a_loop_whose_executor_is_busy_or_shut_enqueues_all_the_same(send: Send, shut: bool) -> None:
    async def main() -> None:
        loop, go_on = asyncio.get_running_loop(), threading.Event()
        busy = ThreadPoolExecutor(1)
        loop.set_default_executor(busy)
        held = loop.run_in_executor(None, go_on.wait, 30)
        if shut:
            busy.shutdown(wait=False)
        try:
            assert (await asyncio.wait_for(send.aenqueue(1), 5)).created
        finally:
            go_on.set()
        assert await held

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_call_that_the_store_refuses_fails_alone_and_the_others_keep_their_order(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("sqlite://" if kind == "sqlite" else redisbench.emptied().url)

    @app.task(name="send", lane="user")
    def send(user: int) -> None: ...

    @app.collector(name="orders")
    def orders(lanes: dict[str, list[int]]) -> None: ...

    @app.collector(name="taken")
    def taken(lanes: dict[str, list[int]]) -> None: ...

    orders.enqueue("a", 0)
    app.store.push([Job("job", "elsewhere", "taken", b"[[],{}]")])
    pushes = Pushes(app, monkeypatch)

    async def main() -> list[Any]:
        calls: list[Any] = [send.using(lane="one", queue=f"q{n % 2}").aenqueue(n) for n in range(8)]
        calls.insert(7, send.using(queue="taken", id="fits").aenqueue(8))
        calls.insert(4, taken.aenqueue("a", 1))  # jobs are there
        calls.insert(3, send.using(queue="orders").aenqueue(9))  # payloads are there
        calls.insert(1, orders.aenqueue("a", 1))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(main())

    refused = [(n, result.queue) for n, result in enumerate(results) if isinstance(result, WrongQueue)]
    assert refused == [(4, "orders"), (6, "taken")]
    assert [job.args for job in app.inspect.jobs() if job.task == "send"] == [[0], [1], [2], [3], [4], [5], [6], [8], [7]]
    assert sum(isinstance(result, Exception) for result in results) == 2
    assert all(result.created for result in results if isinstance(result, JobHandle))
    assert [job.body for jobs in pushes.calls for job in jobs if job.task == "orders"] == [b"1"]  # pushed once
    app.close()


def test_a_job_that_cannot_be_stored_fails_alone(app: App, send: Send, pushes: Pushes) -> None:
    def overflow() -> None:
        if any(body(job)[0][0] == 2 for job in pushes.calls[-1]):
            raise OverflowError("too large")

    async def main() -> list[Any]:
        pushes.before = overflow
        return await asyncio.gather(*(send.aenqueue(n) for n in range(4)), return_exceptions=True)

    results = asyncio.run(main())
    assert [type(result) for result in results] == [JobHandle, JobHandle, OverflowError, JobHandle]
    assert [job.args for job in app.inspect.jobs()] == [[0], [1], [3]]


def test_a_turn_of_many_or_large_calls_goes_in_chunks(app: App, pushes: Pushes) -> None:
    @app.task
    def keep(number: int, text: str) -> None: ...

    async def main(sizes: list[int]) -> list[JobHandle[None]]:
        return await asyncio.gather(*(keep.aenqueue(n, "x" * size) for n, size in enumerate(sizes)))

    for sizes in ([900_000] * 12 + [1] + [900_000], [1] * 2_500):
        pushes.calls.clear()
        assert all(handle.created for handle in asyncio.run(main(sizes)))
        assert [n for call in pushes.first_arguments for n in call] == list(range(len(sizes)))
        assert max(map(len, pushes.calls)) <= 1000
        assert max(sum(len(job.body) for job in jobs) for jobs in pushes.calls) <= 4_000_000
        assert len(pushes.calls) <= 5


def test_a_store_that_does_not_answer_holds_up_each_call_for_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    server = redisbench.emptied()
    app = App(server.url, enqueue_timeout=2)
    send = app.task(name="send")(lambda number: None)
    send.enqueue(0)
    begun: dict[int, float] = {}
    allowed: dict[int, float] = {}  # until when the store may take its time for a job
    push = app.store.push

    def watched(jobs: Sequence[Job], slot: Occurrence | None = None, timeout: float | None = None) -> list[str | None]:
        assert timeout is not None
        allowed.update({body(job)[0][0]: time.monotonic() + timeout for job in jobs})
        return push(jobs, slot, timeout)

    async def fail(number: int) -> None:
        begun[number] = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await send.aenqueue(number)

    async def main() -> None:
        callers = []
        for number in range(4):
            callers.append(asyncio.ensure_future(fail(number)))
            await asyncio.sleep(0.25)
        await asyncio.gather(*callers)

    monkeypatch.setattr(app.store, "push", watched)
    with server.frozen():
        asyncio.run(main())
    assert allowed.keys() >= {0, 1}  # a call whose time was over before the store could be asked is not there
    # Those that wait for the first call to fail have no more time than it had: it would be twice as much.
    assert all(until - begun[number] < 3 for number, until in allowed.items())
    app.close()


def test_what_takes_longer_than_a_call_may_is_worked_off_as_long_as_the_store_answers(
    app: App, send: Send, pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.desk.gatherer.MOST_AT_ONCE", 2)
    monkeypatch.setattr(app.store, "enqueue_timeout", 0.3)
    pushes.before = lambda: time.sleep(0.1)

    async def main() -> list[JobHandle[int]]:
        return await asyncio.gather(*(send.aenqueue(n) for n in range(12)))

    assert all(handle.created for handle in asyncio.run(main()))
    assert len(pushes.calls) == 6


def test_the_app_serves_one_loop_after_another_with_all_options(app: App, send: Send) -> None:
    for number in range(2):
        handle = asyncio.run(send.using(queue="vip", id=f"mail-{number}").aenqueue(number))
        assert (stored(app, handle).queue, handle.created) == ("vip", True)


# -- enqueueing many ---------------------------------------------------------------------------------------------


def test_many_calls_of_a_task_are_enqueued_in_order(app: App, send: Send) -> None:
    assert send.enqueue_many([(1,), (2, "bye"), (3,)]) == 3
    assert [job.args for job in app.inspect.jobs()] == [[1], [2, "bye"], [3]]


def test_bound_calls_of_several_tasks_are_enqueued_in_order(app: App, send: Send) -> None:
    @app.task(name="ping", queue="io")
    async def ping(*, host: str) -> None: ...

    calls = [send.bind(1), ping.bind(host="a"), send.using(queue="vip").bind(2, "b")]
    assert all(isinstance(call, Bound) for call in calls)
    assert app.enqueue_many(calls) == 3
    assert [(job.task, job.queue) for job in app.inspect.jobs()] == [("send", "default"), ("ping", "io"), ("send", "vip")]


def test_a_bound_call_can_be_enqueued_again_as_a_new_job(app: App, send: Send) -> None:
    call = send.bind(1)
    assert app.enqueue_many([call, call]) == 2


@pytest.mark.parametrize("of_app", [False, True])
def test_a_generator_is_never_more_than_a_chunk_ahead_of_the_store(
    app: App, send: Send, monkeypatch: pytest.MonkeyPatch, of_app: bool
) -> None:
    made = pushed = furthest = 0

    def push(jobs: Sequence[Job]) -> list[None]:
        nonlocal pushed, furthest
        furthest = max(furthest, made - pushed)
        pushed += len(jobs)
        return [None] * len(jobs)

    def numbers() -> Iterator[int]:
        nonlocal made
        while made < 100_000:
            made += 1
            yield made

    monkeypatch.setattr(app.store, "push", push)
    if of_app:
        assert app.enqueue_many((send.bind(n) for n in numbers()), chunk=500) == 100_000
    else:
        assert send.enqueue_many(((n,) for n in numbers()), chunk=500) == 100_000
    assert (made, pushed, furthest) == (100_000, 100_000, 500)


def test_many_says_how_many_are_new(send: Send, app: App) -> None:
    calls = [send.using(id=f"mail-{n % 3}").bind(n) for n in range(5)]
    assert app.enqueue_many(calls) == 3
    assert app.enqueue_many(calls) == 0
    assert app.enqueue_many([]) == 0


def test_one_id_for_many_calls_is_refused_since_only_one_would_be_enqueued(send: Send) -> None:
    with pytest.raises(LanewayError, match="id"):
        send.using(id="mail-42").enqueue_many([(1,), (2,)])


def test_an_error_in_the_middle_of_many_says_how_many_were_accepted(app: App, send: Send) -> None:
    calls: list[Any] = [(n,) for n in range(25)]
    calls[23] = ("twenty-three",)
    with pytest.raises(BulkError, match=r'argument "user": Expected `int`.*20 were accepted') as caught:
        send.enqueue_many(calls, chunk=10)
    assert caught.value.accepted == 20
    assert isinstance(caught.value.__cause__, BadArguments)
    assert app.inspect.counts()["ready"] == 20


def test_an_error_of_the_store_in_the_middle_of_many_says_how_many_were_accepted(send: Send, pushes: Pushes) -> None:
    def fail_the_third() -> None:
        if len(pushes.calls) == 3:
            raise StoreBusy

    pushes.before = fail_the_third
    with pytest.raises(BulkError, match="20 were accepted") as caught:
        send.enqueue_many([(n,) for n in range(25)], chunk=10)
    assert caught.value.accepted == 20
    assert isinstance(caught.value.__cause__, StoreBusy)


@pytest.mark.parametrize("call", [5, "ab", [1, 2], None])
def test_what_is_no_tuple_of_arguments_is_refused_with_how_to_write_one(send: Send, call: Any) -> None:
    with pytest.raises(BulkError, match=r"send\.enqueue_many.*not a tuple of arguments; for one argument write \(x,\)"):
        send.enqueue_many([call])


def test_what_is_no_bound_call_is_refused_with_how_to_make_one(app: App, send: Send) -> None:
    for call in ((1,), send):
        with pytest.raises(BulkError, match=r"bound calls such as send_email\.bind\(42\)"):
            app.enqueue_many([call])  # type: ignore[list-item]


@pytest.mark.parametrize("chunk", [0, -1, 1.5, "10", None])
def test_a_chunk_is_a_whole_number_from_1(send: Send, chunk: Any) -> None:
    with pytest.raises(BadOption, match=r"chunk=.*whole number from 1"):
        send.enqueue_many([(1,)], chunk=chunk)


# -- enqueueing by name ------------------------------------------------------------------------------------------


def test_a_known_name_enqueues_its_task_with_all_checks(app: App, send: Send) -> None:
    handle = app.enqueue("send", 42, template="bye")
    assert (handle.task, stored(app, handle).args, stored(app, handle).kwargs) == ("send", [42], {"template": "bye"})
    with pytest.raises(BadArguments, match='argument "user"'):
        app.enqueue("send", "42")


def test_an_unknown_name_is_refused_with_the_nearest_known(app: App, send: Send, pushes: Pushes) -> None:
    with pytest.raises(UnknownTask, match=r'no task named "sned".*Did you mean "send"\?.*check=False') as caught:
        app.enqueue("sned", 42)
    assert caught.value.task == "sned"  # type: ignore[attr-defined]
    assert isinstance(caught.value, LookupError)
    assert pushes.calls == []


def test_an_unknown_name_goes_unchecked_with_check_false(app: App, send: Send) -> None:
    handle = app.enqueue("elsewhere.task", 42, check=False, key=["a"])
    job = stored(app, handle)
    assert (job.task, job.queue, job.args, job.kwargs) == ("elsewhere.task", "default", [42], {"key": ["a"]})


def test_an_app_without_tasks_sends_any_name(app: App) -> None:
    handle = app.enqueue("elsewhere.task", 42)
    assert (stored(app, handle).task, handle.state()) == ("elsewhere.task", "ready")
    settle(app, Done(b'{"a":1}'), keep=60_000_000)
    assert handle.result(timeout=0) == {"a": 1}


def test_the_result_of_a_task_that_nobody_here_knows_may_not_be_kept(app: App) -> None:
    handle = app.enqueue("elsewhere.task", 42)
    settle(app, Done())
    with pytest.raises(NoResult, match="not kept"):
        handle.result(timeout=0)


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "n" * 201, 5, ["send"]], ids=lambda name: repr(name)[:20])
@pytest.mark.parametrize("with_tasks", [False, True])
def test_what_is_no_name_is_refused(app: App, request: pytest.FixtureRequest, with_tasks: bool, name: Any) -> None:
    if with_tasks:
        request.getfixturevalue("send")
    with pytest.raises(LanewayError, match=r"no task named|is not a name: use 1"):
        app.enqueue(name)


def test_a_task_given_instead_of_its_name_is_answered_with_what_to_write(app: App, send: Send) -> None:
    with pytest.raises(LanewayError, match=r"\.enqueue\("):
        app.enqueue(send, 42)  # type: ignore[arg-type]


def test_by_name_only_what_json_has_can_be_sent_and_the_message_does_not_speak_of_annotations(app: App) -> None:
    with pytest.raises(BadArguments, match=r"elsewhere\.task.*datetime would arrive as a str") as caught:
        app.enqueue("elsewhere.task", datetime(2024, 1, 1, tzinfo=UTC))
    assert "Annotate" not in str(caught.value)


# -- client middlewares ------------------------------------------------------------------------------------------


@pytest.fixture
def diary(app: App) -> list[str]:
    """What two middlewares wrote, the outer one first."""
    lines: list[str] = []

    def writing(name: str) -> Callable[[Draft], Generator[None]]:
        def middleware(draft: Draft) -> Generator[None]:
            lines.append(f"{name} before")
            try:
                yield
            except LanewayError as error:
                lines.append(f"{name} {type(error).__name__}")
                raise
            lines.append(f"{name} after")

        return middleware

    app.client_middleware(writing("outer"))
    app.client_middleware(writing("inner"))
    return lines


AROUND = ["outer before", "inner before", "inner after", "outer after"]


def test_middlewares_run_around_every_enqueue(app: App, send: Send, diary: list[str]) -> None:
    ways: list[Callable[[], object]] = [
        lambda: send.enqueue(1),
        lambda: send.using(queue="vip").enqueue(1),
        lambda: asyncio.run(send.aenqueue(1)),
        lambda: send.enqueue_many([(1,)]),
        lambda: app.enqueue_many([send.bind(1)]),
        lambda: app.enqueue("send", 1),
        lambda: app.enqueue("elsewhere", 1, check=False),
    ]
    for enqueue in ways:
        diary.clear()
        enqueue()
        assert diary == AROUND


def test_an_error_of_the_enqueue_is_raised_at_the_yield(app: App, send: Send, diary: list[str]) -> None:
    wrong: Any = "one"
    ways: list[Callable[[], object]] = [lambda: send.enqueue(wrong), lambda: asyncio.run(send.aenqueue(wrong))]
    for enqueue in ways:
        diary.clear()
        with pytest.raises(BadArguments):
            enqueue()
        assert diary == ["outer before", "inner before", "inner BadArguments", "outer BadArguments"]


def test_a_middleware_may_change_the_draft(app: App, send: Send) -> None:
    @app.client_middleware
    def change(draft: Draft) -> Generator[None]:
        assert (draft.task, draft.args, draft.kwargs, draft.queue) == ("send", (1,), {"template": "a"}, "default")
        draft.queue = "vip"
        draft.lane = "order-7"
        draft.headers["trace"] = "abc"
        draft.kwargs = {"template": "b"}
        yield

    job = stored(app, send.enqueue(1, template="a"))
    assert (job.queue, job.lane, job.args, job.kwargs) == ("vip", "order-7", [1], {"template": "b"})
    assert body(job)[2] == {"headers": {"trace": "abc"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": "a b"},
        {"queue": None},
        {"lane": ""},
        {"lane": 1.5},
        {"priority": 1000},
        {"id": "a/b"},
        {"retry": 3},
        {"lane": "a", "priority": 1},
    ],
    ids=str,
)
def test_what_a_middleware_changes_is_checked_as_what_a_user_writes(
    app: App, send: Send, pushes: Pushes, changes: dict[str, Any]
) -> None:
    @app.client_middleware
    def change(draft: Draft) -> Generator[None]:
        for name, value in changes.items():
            setattr(draft, name, value)
        yield

    with pytest.raises(BadOption, match="|".join(changes)):
        send.enqueue(1)
    assert pushes.calls == []


def test_a_middleware_cannot_hide_an_error_from_who_enqueues(app: App, send: Send) -> None:
    @app.client_middleware
    def hide(draft: Draft) -> Generator[None]:
        with contextlib.suppress(BadArguments):
            yield

    wrong: Any = "one"
    with pytest.raises(BadArguments):
        send.enqueue(wrong)
    with pytest.raises(BadArguments):
        asyncio.run(send.aenqueue(wrong))
    with pytest.raises(BulkError):
        send.enqueue_many([(wrong,)])


def test_a_middleware_cannot_hide_an_error_from_the_others(app: App, send: Send, diary: list[str]) -> None:
    @app.client_middleware
    def hide(draft: Draft) -> Generator[None]:
        with contextlib.suppress(BadArguments):
            yield

    wrong: Any = "one"
    with pytest.raises(BadArguments):
        send.enqueue(wrong)
    assert diary == ["outer before", "inner before", "inner BadArguments", "outer BadArguments"]


def test_every_draft_of_a_chunk_hears_of_its_error(app: App, send: Send) -> None:
    heard: list[Any] = []

    @app.client_middleware
    def listen(draft: Draft) -> Generator[None]:
        with contextlib.suppress(BadArguments):
            try:
                yield
            except BadArguments:
                heard.append(draft.args[0])
                raise

    calls: list[Any] = [(1,), (2,), ("three",)]
    with pytest.raises(BulkError):
        send.enqueue_many(calls)
    assert sorted(heard, key=str) == [1, 2, "three"]


def test_a_middlewares_own_error_stops_the_enqueue(app: App, send: Send, pushes: Pushes) -> None:
    @app.client_middleware
    def refuse(draft: Draft) -> Generator[None]:
        raise PermissionError("not on Sundays")
        yield

    with pytest.raises(PermissionError, match="not on Sundays"):
        send.enqueue(1)
    assert pushes.calls == []


def test_a_middleware_that_is_no_generator_function_is_refused(app: App) -> None:
    def plain(draft: Draft) -> None: ...

    with pytest.raises(DeclarationError, match="plain is not a middleware: it must yield once"):
        app.client_middleware(plain)  # type: ignore[arg-type]


def test_a_middleware_that_does_not_yield_once_is_named(app: App, send: Send) -> None:
    @app.client_middleware
    def skips(draft: Draft) -> Generator[None]:
        if draft.task == "other":
            yield

    with pytest.raises(Exception, match=r"skips.*yield"):
        send.enqueue(1)


# -- imports -----------------------------------------------------------------------------------------------------

SHOP = """
from laneway import App
app = App("sqlite://", imports=["shop_mail", "shop_billing"])
"""
MAIL = """
from shop_app import app
@app.task
def send(user: int): ...
"""


@pytest.fixture
def shop(write_module: Callable[[str, str], str]) -> Iterator[App]:
    write_module("shop_mail", MAIL)
    write_module("shop_billing", MAIL.replace("send", "charge"))
    made: App = importlib.import_module(write_module("shop_app", SHOP)).app
    yield made
    made.close()


def test_imports_are_loaded_when_the_tasks_are_asked_for(shop: App) -> None:
    assert "shop_mail" not in sys.modules
    assert set(shop.tasks) == {"shop_mail.send", "shop_billing.charge"}


def test_enqueueing_by_name_loads_the_imports(shop: App) -> None:
    assert shop.enqueue("shop_mail.send", 5).created
    with pytest.raises(UnknownTask, match=r'Did you mean "shop_mail\.send"\?'):
        shop.enqueue("shop_mail.snd", 5)


def test_a_module_may_import_the_app_that_imports_it(shop: App) -> None:
    mail = importlib.import_module("shop_mail")
    assert shop.tasks["shop_mail.send"] is mail.send
    assert mail.send.enqueue(5).created


def test_an_import_that_fails_is_tried_again(app: App, write_module: Callable[[str, str], str]) -> None:
    later = App("sqlite://", imports=["not_there_yet"])
    with pytest.raises(ModuleNotFoundError, match="not_there_yet"):
        _ = later.tasks
    write_module("not_there_yet", "")
    assert dict(later.tasks) == {}


def test_another_thread_waits_for_the_imports_that_are_under_way(write_module: Callable[[str, str], str]) -> None:
    write_module("slow_app", SHOP.replace("shop_mail", "slow_mail").replace(', "shop_billing"', ""))
    write_module(
        "slow_mail",
        """
        import threading
        from slow_app import app
        app.under_way.set()
        assert app.go_on.wait(30)
        @app.task
        def send(user: int): ...
        """,
    )
    app = importlib.import_module("slow_app").app
    app.under_way, app.go_on = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(app.enqueue, "slow_mail.send", 1)
        assert app.under_way.wait(30)
        second = pool.submit(app.enqueue, "slow_mail.send", "a string")
        with contextlib.suppress(TimeoutError):
            second.exception(0.2)
        app.go_on.set()
        assert first.result(30).created
        assert isinstance(second.exception(30), BadArguments)
    app.close()


# -- the app's own settings --------------------------------------------------------------------------------------


def test_the_url_is_what_the_code_says_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_URL", "sqlite:///elsewhere.db")
    assert App("sqlite://").url == "sqlite://"
    assert App().url == "sqlite:///elsewhere.db"


def test_without_a_url_it_does_not_matter_who_makes_the_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LANEWAY_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    made: dict[str, App] = {}
    names = {"__file__": "/elsewhere/factory.py", "App": App, "made": made}
    exec("def make(): return App()\nmade['by a factory'] = make()", names)  # noqa: S102
    assert {App().url, made["by a factory"].url} == {f"sqlite:///{tmp_path.resolve() / 'laneway.db'}"}


WRITES = """
from laneway import App
app = App()
print(app.enqueue("send", 1).state())
app.close()
"""


@pytest.mark.parametrize("name", ["shop", "50% off", "a#b", "what?", "größe", "%41"])
def test_without_a_url_the_jobs_are_in_laneway_db_in_the_working_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "app.py").write_text(WRITES, encoding="utf-8")
    assert run_python(folder, "../app.py") == ["ready"]
    assert (folder / "laneway.db").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "app.py"])


def test_a_relative_path_in_a_url_is_relative_to_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/app.py").write_text(WRITES, encoding="utf-8")
    assert run_python(tmp_path, "shop/app.py", LANEWAY_URL="sqlite:///here%20.db") == ["ready"]
    assert (tmp_path / "here .db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", 'not a store\'s URL: use "sqlite:///jobs.db"'),
        ("jobs.db", "not a store's URL"),
        ("sqlite:jobs.db", "not a store's URL"),
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite://[", "sqlite:///jobs.db"),
        ("sqlite:///jobs#1.db", "write # as %23"),
        ("mongodb://host/jobs", 'no store "mongodb" in this version'),
        (5, "must be a string, not 5"),
        (Path("jobs.db"), "must be a string"),
        ("sqlite:///jobs.db?timout=5", 'no option "timout". Did you mean "timeout"?'),
        ("sqlite:///jobs.db?timeout=soon", "timeout=soon: use a positive number"),
        ("sqlite:///jobs.db?timeout=0", "timeout=0: use a positive number"),
        ("sqlite:///jobs.db?timeout=nan", "timeout=nan: use a positive number"),
        ("sqlite:///jobs.db?synchronous=off", "synchronous=off: use normal"),
    ],
)
def test_a_url_that_cannot_work_is_refused_where_the_app_is_made(url: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        App(url)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dead_days": 0}, "dead_days=0: use a number greater than 0"),
        ({"dead_days": math.nan}, "dead_days=nan: use a number"),
        ({"dead_days": "30"}, "dead_days='30': use a number"),
        ({"dead_max": -1}, "dead_max=-1: use a number"),
        ({"dead_max": True}, "dead_max=True: use a number"),
        ({"dead_max": None}, "dead_max=None: use a number"),
        ({"dead_after": 0}, "dead_after=0: use a number"),
        ({"imports": "shop.mail"}, r"imports='shop.mail': use a list of modules, imports=\['shop.mail'\]"),
        ({"imports": [5]}, "imports="),
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_refused_where_the_app_is_made(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        App("sqlite://", **settings)


def test_a_password_in_a_url_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        App("mongodb://user:secret@host/jobs")
    assert "secret" not in str(caught.value)


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    app.task(name="send")(print)
    app.close()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_app_can_be_used_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    try:
        app.enqueue("send", 1)
        app.close()
        app.close()
        app.enqueue("send", 2)
        assert app.inspect.counts()["ready"] == 2
    finally:
        app.close()


def test_two_apps_on_one_file_see_the_same_jobs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    one, other = App(url), App(url)
    try:
        handle = one.enqueue("send", 1)
        assert [job.id for job in other.inspect.jobs()] == [handle.id]
    finally:
        one.close()
        other.close()


def test_an_app_is_shown_with_its_url(app: App) -> None:
    assert repr(app) == "<App sqlite://>"


# -- inspect and stats -------------------------------------------------------------------------------------------


def test_counts_name_every_state(app: App, send: Send) -> None:
    assert app.inspect.counts() == {"scheduled": 0, "ready": 0, "retrying": 0, "blocked": 0, "running": 0, "dead": 0}
    send.enqueue(1)
    settle(app, Dead(ERROR))
    send.using(lane="a").enqueue(1)
    send.using(lane="a").enqueue(2)
    claim(app, most=2)
    send.using(run_after=60).enqueue(1)
    send.enqueue(1)
    settle(app, Retrying(60_000_000, ERROR))
    send.enqueue(1)
    assert app.inspect.counts() == {"scheduled": 1, "ready": 1, "retrying": 1, "blocked": 1, "running": 1, "dead": 1}


def test_a_job_is_shown_with_all_that_is_known_of_it(app: App, send: Send) -> None:
    before = now_micros()
    handle = send.using(queue="vip", priority=5).enqueue(42, template="bye")
    (claimed,) = claim(app, "vip")
    job = stored(app, handle)
    assert (job.id, job.task, job.queue, job.lane, job.priority) == (handle.id, "send", "vip", None, 5)
    assert (job.state, job.attempt, job.worker, job.token, job.errors) == ("running", 0, "worker", claimed.token, [])
    assert as_datetime(before) <= job.enqueued_at <= job.due_at <= datetime.now(UTC)
    assert app.inspect.job("nope") is None


def test_a_job_whose_arguments_are_garbage_is_shown_without_them(app: App) -> None:
    app.store.push([Job("a", "send", "default", b'[["\xff"],{"a":"\xff"}]'), Job("b", "send", "default", b"garbage")])
    assert [(job.args, job.kwargs) for job in app.inspect.jobs()] == [(None, None), (None, None)]


def test_jobs_are_listed_by_arrival_and_by_what_is_asked_for(app: App, send: Send) -> None:
    send.using(id="a").enqueue(1)
    send.using(id="b", queue="vip", lane="x").enqueue(1)
    send.using(id="c", run_after=60).enqueue(1)
    app.enqueue("other", check=False)
    inspect = app.inspect
    assert [job.id for job in inspect.jobs()][:3] == ["a", "b", "c"]
    assert [job.id for job in inspect.jobs("scheduled")] == ["c"]
    assert [job.id for job in inspect.jobs(queue="vip")] == ["b"]
    assert [job.id for job in inspect.jobs(lane="x")] == ["b"]
    assert [job.task for job in inspect.jobs(task="other")] == ["other"]
    assert inspect.jobs("dead") == []
    assert [job.id for job in inspect.jobs(state="ready", queue="default", task="send")] == ["a"]


def test_pages_follow_each_other_without_gaps(app: App, send: Send) -> None:
    send.enqueue_many([(n,) for n in range(25)])
    seen: list[Any] = []
    page = app.inspect.jobs(limit=10)
    while page.next is not None:
        seen += page
        page = app.inspect.jobs(limit=10, after=page.next)
    seen += page
    assert [job.args for job in seen] == [[n] for n in range(25)]
    assert [job.args for job in app.inspect.jobs(after=seen[22].id)] == [[23], [24]]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"state": "reddy"}, ConfigError, 'Did you mean "ready"'),
        ({"state": "over"}, ConfigError, "States: scheduled, ready.*done, cancelled"),
        ({"limit": 0}, ConfigError, "limit=0: use 1 to 10,000"),
        ({"limit": 10_001}, ConfigError, "limit=10001: use 1 to 10,000"),
        ({"after": "nope"}, NotFound, "after='nope'.*page.next"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    app: App, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        app.inspect.jobs(**arguments)


def test_a_dead_job_can_be_replayed_and_deleted(app: App, send: Send) -> None:
    handle = send.enqueue(1)
    assert app.inspect.retry(handle.id) is False
    settle(app, Dead(ERROR))
    assert [error.message for error in stored(app, handle).errors] == ["no such user"]
    assert app.inspect.cancel(handle.id) is False
    assert app.inspect.retry(handle.id)
    assert handle.state() == "ready"
    settle(app, Dead(ERROR))
    assert app.inspect.delete(handle.id)
    assert (app.inspect.job(handle.id), handle.state()) == (None, "gone")


def test_a_waiting_job_can_be_cancelled_and_deleted(app: App, send: Send) -> None:
    cancelled, deleted = send.enqueue(1), send.using(run_after=60).enqueue(1)
    assert app.inspect.cancel(cancelled.id)
    assert app.inspect.delete(deleted.id)
    assert (cancelled.state(), deleted.state()) == ("cancelled", "gone")
    assert sum(app.inspect.counts().values()) == 0


@pytest.mark.parametrize("act", ["retry", "cancel", "delete"])
def test_a_job_that_is_not_there_cannot_be_acted_on(app: App, act: str) -> None:
    with pytest.raises(UnknownJob, match='no job "nope"'):
        getattr(app.inspect, act)("nope")


def test_a_paused_queue_gives_no_claims_and_takes_jobs(app: App, send: Send) -> None:
    send.enqueue(1)
    app.inspect.pause("default")
    send.enqueue(2)
    assert claim(app) == []
    assert [(queue.name, queue.paused, queue.counts["ready"]) for queue in app.inspect.queues()] == [("default", True, 2)]
    app.inspect.resume("default")
    assert len(claim(app, most=5)) == 2


def test_a_queue_that_is_paused_before_its_first_job_holds_it(app: App, send: Send) -> None:
    app.inspect.pause("mail")
    send.using(queue="mail").enqueue(1)
    assert claim(app, "mail") == []
    app.inspect.resume("mail")
    assert len(claim(app, "mail")) == 1


def test_what_cannot_be_a_queue_cannot_be_paused(app: App) -> None:
    with pytest.raises(ConfigError, match="'not a queue' is not a name for a queue: use 1 to 100 letters"):
        app.inspect.pause("not a queue")


def test_a_queue_that_nobody_knows_cannot_be_resumed(app: App, send: Send) -> None:
    send.enqueue(1)
    with pytest.raises(UnknownQueue, match=r'no queue "defualt".*Did you mean "default"'):
        app.inspect.resume("defualt")


def test_totals_count_since_the_store_began(app: App, send: Send) -> None:
    send.enqueue_many([(n,) for n in range(4)])
    settle(app, Done())
    settle(app, Dead(ERROR))
    settle(app, Retrying(0, ERROR))
    settle(app, Done())
    settle(app, Done())
    assert app.stats.totals() == {"enqueued": 4, "processed": 3, "failed": 2, "retried": 1, "dead": 1}


def test_recent_runs_are_shown_newest_first(app: App, send: Send) -> None:
    send.using(id="a", lane="x").enqueue(1)
    settle(app, Done())
    send.using(id="b", queue="vip").enqueue(1)
    settle(app, Dead(ERROR), "vip")
    send.using(id="c").enqueue(1).cancel()
    runs = app.stats.recent()
    assert [(run.id, run.task, run.queue, run.lane, run.outcome) for run in runs] == [
        ("c", "send", "default", None, "cancelled"),
        ("b", "send", "vip", None, "dead"),
        ("a", "send", "default", "x", "done"),
    ]
    assert [run.started_at for run in runs] == [None, as_datetime(1), as_datetime(1)]
    assert runs[2].finished_at == as_datetime(2)
    assert runs[2].enqueued_at <= datetime.now(UTC)
    assert [run.id for run in app.stats.recent(1)] == ["c"]
