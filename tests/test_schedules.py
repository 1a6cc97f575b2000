"""Schedules of an app: declared with arguments, set at run time and kept in the store, shown, run, paused and dropped."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from laneway import App, Retry
from laneway.desk.inspection import ScheduleInfo
from laneway.desk.schedules import read_entry
from laneway.desk.task import Task
from laneway.errors import (
    BadArguments,
    BadOption,
    DeclarationError,
    GarbageError,
    LanewayError,
    NotFound,
    UnknownTask,
)
from laneway.store.contract import ClaimRequest, Occurrence, WorkerInfo


@dataclass
class Window:
    days: int
    until: datetime


def declare(app: App) -> Task[..., Any, Any]:
    @app.task(name="report", queue="reports")
    def report(region: str, window: Window | None = None, *, draft: bool = False) -> None: ...

    return report


def shown(app: App) -> dict[str, ScheduleInfo]:
    return {one.name: one for one in app.inspect.schedules()}


# -- declared ----------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_a_task_has_several_schedules_with_arguments(app: App) -> None:
    report = declare(app)
    app.schedule(report.bind("eu"), "0 3 * * *", name="report-eu", timezone="Europe/Paris")
    app.schedule(report.using(queue="slow", priority=5).bind("us", draft=True), timedelta(minutes=5), catch_up="all")

    eu, us = shown(app)["report-eu"], shown(app)["report"]
    assert (eu.task, eu.args, eu.kwargs, eu.schedule, eu.stored) == ("report", ["eu"], {}, "0 3 * * * (Europe/Paris)", False)
    assert (us.task, us.args, us.kwargs, us.schedule, us.catch_up) == ("report", ["us"], {"draft": True}, "every 0:05:00", "all")
    job = app.inspect.job(app.inspect.run_schedule("report").id)
    assert job is not None
    assert (job.queue, job.priority, job.args, job.kwargs) == ("slow", 5, ["us"], {"draft": True})


def test_the_decorators_schedule_is_one_of_them(app: App) -> None:
    @app.task(name="clean", schedule="@daily", catch_up="none")
    def clean(days: int = 7) -> None: ...

    app.schedule(clean.bind(30), "@monthly", name="clean-all")
    assert {name: (one.task, one.args, one.catch_up) for name, one in shown(app).items()} == {
        "clean": ("clean", [], "none"),
        "clean-all": ("clean", [30], "one"),
    }
    with pytest.raises(DeclarationError, match='two schedules are named "clean": give one of them another name'):
        app.schedule(clean, "@weekly")


def test_a_bare_task_is_scheduled_without_arguments(app: App) -> None:
    @app.task(name="clean")
    def clean() -> None: ...

    app.schedule(clean, "@daily")
    assert shown(app)["clean"].args == []


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (lambda app, report: app.schedule(report, "@daily"), "missing a required argument: 'region'"),
        (lambda app, report: app.schedule(report.bind(5), "@daily"), "Expected `str`"),
        (lambda app, report: app.schedule(report.bind("eu"), "@dayly"), 'Did you mean "@daily"'),
        (lambda app, report: app.schedule(report.bind("eu"), "@daily", timezone="Paris/Europe"), "is not a time zone"),
        (lambda app, report: app.schedule(report.bind("eu"), "@daily", catch_up="some"), "use one of 'one', 'all', 'none'"),
        (lambda app, report: app.schedule(report.bind("eu"), "@daily", name="a b"), "without spaces"),
        (lambda app, report: app.schedule(report.bind("eu"), "@daily", name=""), "1 to 200"),
        (lambda app, report: app.schedule(report.using(id="x").bind("eu"), "@daily"), "one id is for one job"),
        (lambda app, report: app.schedule(report.using(run_after=5).bind("eu"), "@daily"), "the schedule says when"),
        (lambda app, report: app.schedule("report", "@daily"), "takes a task or a bound call"),
        (lambda app, report: app.schedule(report.function, "@daily"), "takes a task or a bound call"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_it_is_declared(
    app: App, schedule: Callable[[App, Task[..., Any, Any]], None], said: str
) -> None:
    report = declare(app)
    with pytest.raises((DeclarationError, BadOption), match=said):
        schedule(app, report)
    assert shown(app) == {}


def test_a_loop_needs_names(app: App) -> None:
    report = declare(app)

    def schedule(region: str) -> None:
        app.schedule(report.bind(region), "@daily")

    schedule("eu")
    with pytest.raises(DeclarationError, match="two schedules"):
        schedule("us")


MODULE = """
from dataclasses import dataclass
from desk_app import app

@app.task(name="clean", schedule="@daily")
def clean() -> None: ...

@app.task(name="report")
def report(region: str, late: "Late | None" = None) -> None: ...

app.schedule(report.bind("eu"), "@hourly", name="report-eu")

@dataclass
class Late:
    minutes: int
"""


def test_a_module_that_is_loaded_again_declares_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "desk_app.py").write_text("from laneway import App\napp = App('sqlite://')")
    (tmp_path / "desk_tasks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    tasks = importlib.import_module("desk_tasks")
    try:
        importlib.reload(tasks)
        assert set(shown(tasks.app)) == {"clean", "report-eu"}
        (tmp_path / "desk_tasks.py").write_text(MODULE.replace(', schedule="@daily"', ""))
        importlib.reload(tasks)
        assert set(shown(tasks.app)) == {"report-eu"}
    finally:
        tasks.app.close()
        for name in ("desk_tasks", "desk_app"):
            del sys.modules[name]


@pytest.mark.every_store
def test_a_collectors_lane_is_run_by_a_schedule(app: App) -> None:
    @app.collector(name="sync")
    def sync(lanes: dict[str, list[Window]]) -> None: ...

    window = Window(7, datetime(2026, 1, 1, tzinfo=UTC))
    app.schedule(sync.bind("all"), "@hourly", name="sync-all")
    app.inspect.set_schedule("sync-7", sync.bind("seven", window, score=3), "@hourly")
    found = shown(app)
    assert (found["sync-all"].args, found["sync-7"].args) == (["all"], ["seven", {"days": 7, "until": "2026-01-01T00:00:00Z"}])
    assert (found["sync-7"].kwargs, found["sync-7"].trouble) == ({"score": 3.0}, "")
    for name in found:
        assert app.inspect.run_schedule(name).state() == "ready"
    payloads = {lane.lane: [one.value for one in app.inspect.payloads("sync", lane.lane)] for lane in app.inspect.lanes("sync")}
    assert payloads == {"all": [None], "seven": [{"days": 7, "until": "2026-01-01T00:00:00Z"}]}
    with pytest.raises(BadOption, match="the schedule says when"):
        app.schedule(sync.using(run_after=5).bind("all"), "@hourly", name="later")


# -- kept in the store -------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_a_schedule_set_at_run_time_is_kept_in_the_store_and_seen_by_others(app: App) -> None:
    report = declare(app)
    window = Window(7, datetime(2026, 1, 1, tzinfo=UTC))
    call = report.using(queue="slow", lane="us", retry=Retry(times=1, backoff=[1, 2])).bind("us", window, draft=True)
    app.inspect.set_schedule("report-us", call, "@hourly", timezone="America/New_York", catch_up="all", by="ada")

    other = App(app.url) if app.url != "sqlite://" else app  # a store in memory belongs to one app
    if other is not app:
        declare(other)
    found = shown(other)["report-us"]
    assert (found.task, found.stored, found.set_by, found.trouble) == ("report", True, "ada", "")
    assert (found.args, found.kwargs) == (["us", {"days": 7, "until": "2026-01-01T00:00:00Z"}], {"draft": True})
    assert (found.schedule, found.catch_up) == ("0 * * * * (America/New_York)", "all")
    assert found.next_at is not None
    assert found.last_at is not None
    assert found.next_at > found.last_at
    job = other.inspect.job(other.inspect.run_schedule("report-us").id)
    assert job is not None
    assert (job.queue, job.lane, job.args) == ("slow", "us", found.args)
    assert msgspec.json.decode(job.body)[2] == {"retry": [1, [1, 2]]}
    assert msgspec.json.encode(found.as_dict())
    other.close()


@pytest.mark.every_store
def test_it_is_paused_resumed_replaced_and_dropped(app: App) -> None:
    report = declare(app)
    app.inspect.set_schedule("r", report.bind("us"), "@hourly")
    app.inspect.pause_schedule("r", by="bob")
    app.inspect.set_schedule("r", report.bind("eu"), "@daily")
    assert (shown(app)["r"].args, shown(app)["r"].paused_by) == (["eu"], "bob")
    app.inspect.resume_schedule("r")
    assert not shown(app)["r"].paused
    app.inspect.drop_schedule("r")
    assert shown(app) == {}
    for act in (app.inspect.drop_schedule, app.inspect.pause_schedule, app.inspect.resume_schedule, app.inspect.run_schedule):
        with pytest.raises(NotFound, match=r'no schedule "r". This app has none'):
            act("r")


def test_a_name_that_is_declared_is_refused(app: App) -> None:
    @app.task(name="clean", schedule="@daily")
    def clean() -> None: ...

    with pytest.raises(BadOption, match='"clean" is declared in code: change it there, or use another name'):
        app.inspect.set_schedule("clean", clean, "@hourly")
    with pytest.raises(BadOption, match='"clean" is declared in code: remove it there, or pause it'):
        app.inspect.drop_schedule("clean")
    with pytest.raises(NotFound, match='Did you mean "clean"'):
        app.inspect.drop_schedule("cleam")


def test_one_that_is_declared_later_counts_and_the_kept_one_can_be_dropped(app: App) -> None:
    report = declare(app)
    app.inspect.set_schedule("r", report.bind("us"), "@hourly")
    app.schedule(report.bind("eu"), "@daily", name="r")
    assert (shown(app)["r"].args, shown(app)["r"].stored) == (["eu"], False)
    app.inspect.drop_schedule("r")
    assert shown(app)["r"].args == ["eu"]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"call": lambda report: report.bind()}, BadArguments, "missing a required argument"),
        ({"call": lambda report: report.bind("us", 5)}, BadArguments, 'argument "window"'),
        ({"call": lambda report: report.using(id="x").bind("us")}, BadOption, "one id is for one job"),
        ({"call": lambda report: report.function}, BadOption, "takes a task or a bound call"),
        ({"when": "61 * * * *"}, BadOption, "bad minute"),
        ({"when": timedelta(0)}, BadOption, "at least a second"),
        ({"when": 5}, BadOption, "is not a schedule"),
        ({"timezone": "Europe/Pariss"}, BadOption, 'Did you mean "Europe/Paris"'),
        ({"catch_up": "some"}, BadOption, "use one of"),
        ({"name": "a b"}, BadOption, "without spaces"),
        ({"name": "x" * 201}, BadOption, "1 to 200"),
        ({"name": 5}, BadOption, "is not a name"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_set(app: App, change: dict[str, Any], error: type[LanewayError], said: str) -> None:
    report = declare(app)
    given = {"name": "r", "call": lambda report: report.bind("us"), "when": "@hourly", **change}
    call = given.pop("call")(report)
    with pytest.raises(error, match=said):
        app.inspect.set_schedule(given.pop("name"), call, given.pop("when"), **given)
    assert app.store.schedules().kept == {}


@pytest.mark.every_store
def test_a_task_that_nobody_knows_is_refused_until_a_worker_does(app: App) -> None:
    declare(app)
    call = app.using(queue="x").bind("elsewhere.report", "us", check=False)
    with pytest.raises(UnknownTask, match=r'neither this app nor a live worker knows a task named "elsewhere.report"'):
        app.inspect.set_schedule("r", call, "@hourly")
    app.store.beat([WorkerInfo("w", host="h", pid=7, tasks=("elsewhere.report",))])
    app.inspect.set_schedule("r", call, "@hourly")
    assert (shown(app)["r"].args, shown(app)["r"].trouble) == (["us"], "")
    app.store.recover("w", "gone")
    assert shown(app)["r"].trouble == 'no live worker knows the task "elsewhere.report": it waits for one'
    with pytest.raises(UnknownTask, match=r'schedule "r": no task named "elsewhere.report" is registered here'):
        app.inspect.run_schedule("r")


def test_until_when_it_is_unique_is_kept(app: App) -> None:
    @app.task(unique=True)
    def sweep() -> None: ...

    app.inspect.set_schedule("sweep", sweep.using(unique_until="end").bind(), "@hourly")
    made = app.inspect.run_schedule("sweep")
    [claim] = app.store.exchange("w", [], [ClaimRequest("default", 1)], 1).claims

    assert claim.unit.id == made.id
    assert not sweep.enqueue().created  # it runs


def test_a_call_that_does_not_fit_any_more_is_shown(app: App) -> None:
    report = declare(app)
    app.inspect.set_schedule("r", report.bind("us", draft=True), "@hourly")
    before = app.swap_stores(None)
    changed = App("sqlite://")
    changed.swap_stores(before)

    @changed.task(name="report")
    def report_now(number: int) -> None: ...

    assert shown(changed)["r"].trouble.startswith("its call does not fit the task: ")
    with pytest.raises(BadArguments):
        changed.inspect.run_schedule("r")
    changed.close()


def entry(**change: Any) -> bytes:
    good = {"task": "report", "body": '[["us"],{}]', "cron": "0 * * * *"}
    return msgspec.json.encode({**good, **change})


HOSTILE = [
    b"", b"\xff\x00", b"null", b"[]", b"{}", b'{"task": 5}', b"[" * 100_000,
    entry(body=""), entry(body="x"), entry(body="[[],[]]"), entry(body='[["\\ud800"],{}]'), entry(cron="x"), entry(cron=""),
    entry(cron="0 0 30 2 *"), entry(every=1), entry(every=-(10**30)), entry(every=10**18), entry(every=2**62),
    entry(timezone="../../etc/passwd"), entry(timezone="\0"), entry(timezone=""), entry(catch_up="x"), entry(options=[]),
    entry(collects=True), entry(collects=True, body="{", options={"lane": "x"}), entry(by=5), entry(body="[" * 100_000),
]  # fmt: skip


@pytest.mark.every_store
@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_an_entry_that_cannot_be_read_is_shown_as_such_and_can_be_dropped(app: App, raw: bytes) -> None:
    declare(app)
    app.store_inspect.set_schedule("evil", raw)
    found = shown(app)["evil"]
    assert (found.stored, found.args, found.next_at) == (True, None, None)
    assert "cannot be read" in found.trouble
    with pytest.raises(GarbageError, match='schedule "evil": the entry cannot be read'):
        app.inspect.run_schedule("evil")
    app.inspect.pause_schedule("evil")
    app.inspect.drop_schedule("evil")
    assert shown(app) == {}


@pytest.mark.parametrize(
    "options", [{"queue": 5}, {"priority": 1e9}, {"lane": ""}, {"expires": -1}, {"lane": "x", "priority": 1}]
)
def test_options_that_cannot_be_are_shown(app: App, options: dict[str, Any]) -> None:
    declare(app)
    app.store_inspect.set_schedule("evil", entry(options=options))
    assert "does not fit the task" in shown(app)["evil"].trouble


@pytest.mark.parametrize("retry", [None, 5, [], [1], ["x", None], [1, -5], [1, 2, 3, 4, 5], [10**400, None]], ids=str)
def test_retries_that_cannot_be_are_shown(app: App, retry: Any) -> None:
    declare(app)
    body = json.dumps([["us"], {}, {"retry": retry}])
    app.store_inspect.set_schedule("evil", entry(body=body))
    [found] = app.inspect.schedules("evil")
    assert found.trouble or retry == [10**400, None]  # a job may be retried that often


@pytest.mark.parametrize("options", [{"lane": []}, {"lane": ""}, {"lane": "a", "score": "x"}, {"lane": "a", "score": 1e400}])
def test_lanes_that_cannot_be_are_shown(app: App, options: dict[str, Any]) -> None:
    @app.collector(name="sync")
    def sync(lanes: dict[str, list[int]]) -> None: ...

    app.store_inspect.set_schedule("evil", entry(task="sync", body="5", collects=True, options=options))
    [found] = app.inspect.schedules("evil")
    assert found.trouble or options == {"lane": "a", "score": 1e400}  # JSON has none: it is null, as if it was not given


def test_a_type_that_raises_anything_when_it_is_read_is_trouble(app: App) -> None:
    def decode(value: object) -> Fraction:
        raise KeyError(value)

    app.codec(Fraction, encode=str, decode=decode)

    @app.task(name="pour")
    def pour(litres: Fraction) -> None: ...

    app.store_inspect.set_schedule("evil", entry(task="pour", body='[["1/3"],{}]'))
    assert "KeyError" in shown(app)["evil"].trouble


def test_a_name_that_cannot_be_is_shown_too(app: App) -> None:
    app.store_inspect.set_schedule("a b", entry())
    assert "is not a name" in shown(app)["a b"].trouble


def test_an_entry_holds_what_was_given_and_the_task_decides_the_rest(app: App) -> None:
    """So that a schedule follows its task to another queue."""
    report = declare(app)
    app.inspect.set_schedule("r", report.bind("us"), "@hourly", by="")
    kept = read_entry("r", app.store.schedules().kept["r"])
    assert kept.options == {}
    moved = App("sqlite://")
    moved.swap_stores(app.swap_stores(None))

    @moved.task(name="report", queue="elsewhere", lane="region", unique=True)
    def report_there(region: str) -> None: ...

    scheduled = kept.scheduled(moved, "r", moved.store.schedules().kept["r"])
    assert scheduled.fire(moved.store.schedules().now + 1)
    [job] = moved.inspect.jobs()
    assert (job.queue, job.lane, job.unique) == ("elsewhere", "us", True)
    assert moved.store.push([], Occurrence("r", 1, scheduled.entry)) == []
    moved.close()


def test_a_program_under_test_runs_it_on_request(app: App) -> None:
    report = declare(app)
    with app.testing("fake") as jobs:
        app.inspect.set_schedule("r", report.bind("us"), "@hourly")
        app.inspect.run_schedule("r")
        jobs.assert_enqueued(report, "us")
    assert shown(app) == {}
