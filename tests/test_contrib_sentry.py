"""Sentry: what its own SDK would send."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.scope import Scope
from sentry_sdk.transport import Transport

from laneway import App, Cancel, LaneFailures, Retry, Snooze, current_job
from laneway.contrib import sentry
from laneway.core.cron import read_schedule
from laneway.desk.schedules import read_entry
from laneway.store.contract import Occurrence
from workbench import burst, url

NO_RETRY = Retry(times=0)
TWICE = Retry(times=1, backoff=0)


class ToFile(Transport):
    """Appends what the SDK sends to a file, from any process; with `late` when it is flushed."""

    def __init__(self, path: Path, late: bool = False) -> None:
        super().__init__()
        self._path = path
        self._late = late
        self._waiting: list[str] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        items = [item.payload.json for item in envelope.items]
        lines = [json.dumps({**item, "pid": os.getpid()}) for item in items if item is not None]
        if self._late:
            self._waiting += lines
        else:
            self._write(lines)

    def flush(self, timeout: float, callback: Any = None) -> None:
        self._write(self._waiting)
        self._waiting.clear()

    def _write(self, lines: list[str]) -> None:
        """Write in one call: other threads and processes do so too."""
        with self._path.open("ab", buffering=0) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())


class Sent:
    """What was sent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    @property
    def events(self) -> list[dict[str, Any]]:
        return [one for one in self._all() if "type" not in one]

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return [one for one in self._all() if one.get("type") == "transaction"]

    @property
    def check_ins(self) -> list[dict[str, Any]]:
        return [one for one in self._all() if "check_in_id" in one]


Begin = Callable[..., Sent]


@pytest.fixture
def begin(app: App, tmp_path: Path) -> Iterator[Begin]:
    """Set up the SDK as a user does, and instrument the app."""
    before = Scope.get_global_scope().client

    def set_up(*, of: App = app, late: bool = False, instrument: Any = None, **options: Any) -> Sent:
        path = tmp_path / "sent"
        options = {"transport": ToFile(path, late), **options}
        sentry_sdk.init("http://key@localhost/1", auto_enabling_integrations=False, **options)
        sentry.instrument(of, **(instrument or {}))
        return Sent(path)

    yield set_up
    sentry_sdk.get_client().close()
    Scope.get_global_scope().set_client(before)


def frames(event: dict[str, Any]) -> list[str]:
    return [frame["function"] for frame in event["exception"]["values"][-1]["stacktrace"]["frames"]]


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["level"], event["exception"]["values"][-1]["type"]) for event in events]


def dig(number: int) -> None:
    raise ValueError(f"no luck with {number}")


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.every_store
@pytest.mark.parametrize("is_async", [False, True])
def test_a_death_is_one_event_with_the_stack_of_the_task(app: App, begin: Begin, is_async: bool) -> None:
    sent = begin()
    tries: list[int] = []

    def work(number: int) -> None:
        tries.append(number)
        logging.getLogger("shop").warning("digging")
        dig(number)

    async def awork(number: int) -> None:
        await asyncio.sleep(0)
        work(number)

    handle = app.task(retry=TWICE, name="work", queue="mail", lane="number")(awork if is_async else work).enqueue(7)
    burst(app)

    assert tries == [7, 7]
    [event] = sent.events
    assert kinds([event]) == [("error", "ValueError")]
    assert event["exception"]["values"][-1]["mechanism"]["handled"] is False
    assert frames(event) == (["awork"] if is_async else []) + ["work", "dig"]
    assert {name: event["tags"][name] for name in ("task", "queue", "attempt")} == {
        "task": "work", "queue": "mail", "attempt": 2,
    }  # fmt: skip
    known = {name: event["contexts"]["laneway"][name] for name in ("job", "task", "queue", "attempt", "lane")}
    assert known == {"job": handle.id, "task": "work", "queue": "mail", "attempt": 2, "lane": "7"}
    assert "args" not in event["contexts"]["laneway"]
    assert "digging" in [crumb["message"] for crumb in event["breadcrumbs"]["values"]]


OLD = pytest.mark.filterwarnings("ignore:The send_default_pii option is deprecated")
NEW = pytest.mark.skipif(find_spec("sentry_sdk.data_collection") is None, reason="this SDK is older than the option")


@pytest.mark.parametrize(
    ("options", "are_sent"),
    [
        ({}, False),
        pytest.param({"send_default_pii": True}, True, marks=OLD),
        pytest.param({"data_collection": {"queues": True}}, True, marks=NEW),
        pytest.param({"data_collection": {"queues": False}}, False, marks=NEW),
    ],
)
def test_arguments_are_sent_only_if_the_sdk_may_do_so(app: App, begin: Begin, options: Any, are_sent: bool) -> None:
    sent = begin(**options)

    @app.task(retry=NO_RETRY)
    def work(number: int, *, name: str) -> None:
        raise ValueError

    work.enqueue(7, name="Ada")
    burst(app)

    [event] = sent.events
    found = {name: value for name, value in event["contexts"]["laneway"].items() if name in {"args", "kwargs"}}
    assert found == ({"args": [7], "kwargs": {"name": "Ada"}} if are_sent else {})


def test_every_failure_is_a_warning_if_asked_for(app: App, begin: Begin) -> None:
    sent = begin(instrument={"every_failure": True})

    @app.task(retry=TWICE)
    def work() -> None:
        raise ValueError

    work.enqueue()
    burst(app)

    assert kinds(sent.events) == [("warning", "ValueError"), ("error", "ValueError")]
    assert [event["tags"]["attempt"] for event in sent.events] == [1, 2]


@pytest.mark.parametrize("raised", [Snooze(3600), Cancel("no")])
def test_a_snooze_and_a_cancel_are_no_errors(app: App, begin: Begin, raised: Exception) -> None:
    sent = begin(instrument={"every_failure": True}, traces_sample_rate=1.0)

    @app.task
    def work() -> None:
        raise raised

    work.enqueue()
    burst(app)

    assert (sent.events, len(sent.transactions)) == ([], 1)


@pytest.mark.parametrize("integrations", [[], [LoggingIntegration(event_level=logging.WARNING)]])
def test_what_the_log_says_is_not_reported_again(file_app: App, begin: Begin, integrations: list[Any]) -> None:
    app, sent = file_app, begin(of=file_app, integrations=integrations)

    @app.task(retry=TWICE)
    def work(number: int) -> None:
        logging.getLogger("laneway.runs").error("a line of others")
        raise ValueError

    work.enqueue(1)
    other = App(app.url)
    other.enqueue(work.name, "no number")  # it dies before it runs, which another logger says
    other.close()
    burst(app)

    reported = [event["exception"]["values"][-1]["type"] for event in sent.events if "exception" in event]
    assert sorted(reported) == ["BadArguments", "ValueError"]
    assert {event["logentry"]["message"] for event in sent.events if "exception" not in event} == {"a line of others"}


def test_errors_without_a_stack_are_told_apart_by_task(app: App, begin: Begin) -> None:
    sent = begin()

    @app.task(name="crash", isolate=True)
    def crash() -> None:
        os._exit(3)

    crash.enqueue()
    burst(app)

    [event] = sent.events
    assert (kinds([event]), event["fingerprint"]) == ([("error", "JobCrashed")], ["{{ default }}", "crash"])


def test_a_timeout_shows_where_the_run_was(app: App, begin: Begin) -> None:
    sent = begin()

    @app.task(timeout=0.2, retry=NO_RETRY)
    def work() -> None:
        while True:
            time.sleep(0.01)

    work.enqueue()
    burst(app)

    [event] = sent.events
    assert (kinds([event]), frames(event)) == ([("error", "JobTimeout")], ["work"])


def test_payloads_that_die_of_one_error_are_one_event(app: App, begin: Begin) -> None:
    sent = begin(instrument={"every_failure": True})
    bad = ValueError("bad")

    @app.collector(max_lanes=4, retry=TWICE, merge="last")
    def index(lanes: dict[str, list[int]]) -> None:
        raise LaneFailures({"a": bad, "b": bad, "c": Snooze(3600)})

    index.enqueue_many([("a", 1), ("a", 2), ("b", 3), ("c", 4), ("d", 5)])
    burst(app)

    assert kinds(sent.events) == [("warning", "ValueError"), ("error", "ValueError")]
    assert sent.events[-1]["contexts"]["laneway"]["lane"] in {"a", "b"}


@pytest.mark.parametrize("is_async", [False, True])
def test_an_isolated_death_is_sent_before_its_process_ends(tmp_path: Path, begin: Begin, is_async: bool) -> None:
    app = App(url(tmp_path))
    sent = begin(of=app, late=True, traces_sample_rate=1.0)

    def work() -> None:
        dig(1)

    async def awork() -> None:
        dig(1)

    app.task(isolate=True, retry=TWICE, name="work")(awork if is_async else work).enqueue()
    burst(app)
    app.close()

    [event] = sent.events
    assert (event["pid"] != os.getpid(), frames(event)[-1], event["tags"]["attempt"]) == (True, "dig", 2)
    assert [one["contexts"]["trace"]["status"] for one in sent.transactions] == ["internal_error"] * 2
    assert {one["contexts"]["trace"]["trace_id"] for one in sent.transactions} == {event["contexts"]["trace"]["trace_id"]}


PROGRAM = """
import os
import sentry_sdk
from laneway import App, Retry
from laneway.contrib import sentry

sentry_sdk.init(os.environ["DSN"], traces_sample_rate=1.0, auto_enabling_integrations=False)
app = App()
sentry.instrument(app)

@app.task(retry=Retry(times=0))
def plain():
    raise ValueError("plain")

@app.task(retry=Retry(times=0), isolate=True)
def alone():
    raise ValueError("alone")

if __name__ == "__main__":
    with sentry_sdk.start_transaction(op="http.server", name="/order"):
        plain.enqueue()
        alone.enqueue()
"""


class Server(ThreadingHTTPServer):
    """Takes what the SDK's own transport sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.items: list[dict[str, Any]] = []

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self.server_port}/1"


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        packed = self.headers.get("Content-Encoding") == "gzip"
        envelope = Envelope.deserialize(gzip.decompress(body) if packed else body)
        found = [item.payload.json for item in envelope.items if item.type in {"event", "transaction"}]
        assert isinstance(self.server, Server)
        self.server.items += [item for item in found if item is not None]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        pass


def test_a_fleet_sends_its_deaths_in_the_trace_of_the_program_that_enqueued(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM)
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    environ = {**os.environ, "LANEWAY_URL": url(tmp_path), "DSN": server.dsn, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        subprocess.run([sys.executable, "jobs.py"], cwd=tmp_path, env=environ, check=True, timeout=60)
        worker = [sys.executable, "-m", "laneway", "worker", "--app", "jobs:app", "-p", "1", "--burst"]
        subprocess.run(worker, cwd=tmp_path, env=environ, check=True, timeout=60, capture_output=True)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    events = [item for item in server.items if "exception" in item]
    assert sorted(event["exception"]["values"][-1]["value"] for event in events) == ["alone", "plain"]
    names = sorted(item["transaction"] for item in server.items if item.get("type") == "transaction")
    assert names == ["/order", "jobs.alone", "jobs.plain"]
    assert len({item["contexts"]["trace"]["trace_id"] for item in server.items}) == 1


# -- traces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_is_a_transaction_of_the_requests_trace(app: App, begin: Begin, is_async: bool) -> None:
    sent = begin(traces_sample_rate=1.0)

    def work() -> None:
        with sentry_sdk.start_span(op="db"):
            pass
        raise ValueError

    async def awork() -> None:
        await asyncio.sleep(0)
        work()

    task = app.task(name="work", queue="mail", retry=NO_RETRY)(awork if is_async else work)
    with sentry_sdk.start_transaction(op="http.server", name="/order"):
        handle = task.enqueue()
    burst(app)

    request, run = sent.transactions
    [event] = sent.events
    where = run["contexts"]["trace"]
    assert (run["transaction"], run["transaction_info"]["source"], where["op"]) == ("work", "task", "queue.process")
    assert (where["trace_id"], where["status"]) == (request["contexts"]["trace"]["trace_id"], "internal_error")
    assert where["parent_span_id"] == request["contexts"]["trace"]["span_id"]
    assert where["data"]["messaging.message.id"] == handle.id
    assert where["data"]["messaging.destination.name"] == "mail"
    assert [span["op"] for span in run["spans"]] == ["db"]
    assert (event["contexts"]["trace"]["trace_id"], event["contexts"]["trace"]["span_id"]) == (
        where["trace_id"],
        where["span_id"],
    )
    assert event["transaction"] == "work"


def test_without_tracing_an_event_still_belongs_to_the_requests_trace(app: App, begin: Begin) -> None:
    sent = begin()

    @app.task(retry=NO_RETRY)
    def work() -> None:
        raise ValueError

    with sentry_sdk.isolation_scope():
        trace = sentry_sdk.get_traceparent()
        work.enqueue_many([()])
    burst(app)

    [event] = sent.events
    assert trace is not None
    assert event["contexts"]["trace"]["trace_id"] == trace.split("-")[0]
    assert sent.transactions == []


def test_runs_do_not_see_each_others_scopes(app: App, begin: Begin) -> None:
    sent = begin()

    @app.task(retry=NO_RETRY)
    def work(number: int) -> None:
        sentry_sdk.set_tag(f"tag-{number}", "x")
        raise ValueError(number)

    work.enqueue_many([(n,) for n in range(3)])
    burst(app, slots=1)

    assert sorted([name for name in event["tags"] if name.startswith("tag-")] for event in sent.events) == [
        ["tag-0"], ["tag-1"], ["tag-2"],
    ]  # fmt: skip


# -- schedules ---------------------------------------------------------------------------------------------------


def fire(app: App, task: Any) -> None:
    assert app.desk.enqueue(app.store, task.bind().draft(), Occurrence(task.name, 1_000_000)) is None


def test_the_job_of_a_schedule_checks_in(app: App, begin: Begin) -> None:
    sent = begin(instrument={"monitor_schedules": True})

    @app.task(name="shop.report", schedule="0 3 * * *", timezone="Europe/Paris", timeout=600, retry=TWICE)
    def report() -> None:
        if current_job().attempt == 1:
            raise ValueError

    report.enqueue()  # by hand: that is no occurrence
    fire(app, report)
    burst(app)

    begun, again, done = sent.check_ins
    assert [one["status"] for one in (begun, again, done)] == ["in_progress", "in_progress", "ok"]
    assert len({one["check_in_id"] for one in (begun, again, done)}) == 1
    assert {one["monitor_slug"] for one in (begun, again, done)} == {"shop-report"}
    assert done["duration"] >= 0
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"}, "timezone": "Europe/Paris", "max_runtime": 10,
    }  # fmt: skip


def test_a_schedule_that_the_store_keeps_is_a_monitor_too(app: App, begin: Begin) -> None:
    sent = begin(instrument={"monitor_schedules": True})

    @app.task(name="shop.report")
    def report(region: str) -> None: ...

    app.inspect.set_schedule("report-eu", report.bind("eu"), "0 4 * * *")
    found = app.store.schedules()
    occurrence = Occurrence("report-eu", found.now + 1_000_000, found.kept["report-eu"])
    assert app.desk.enqueue(app.store, report.bind("eu").draft(), occurrence) is None
    burst(app)

    assert [one["status"] for one in sent.check_ins] == ["in_progress", "ok"]
    assert {one["monitor_slug"] for one in sent.check_ins} == {"report-eu"}
    assert sent.check_ins[0]["monitor_config"]["schedule"] == {"type": "crontab", "value": "0 4 * * *"}


def test_a_dead_job_of_a_schedule_is_an_error_of_its_monitor(app: App, begin: Begin) -> None:
    sent = begin(instrument={"monitor_schedules": True})

    @app.task(schedule=timedelta(hours=2), retry=NO_RETRY, isolate=True)
    def crash() -> None:
        os._exit(3)

    fire(app, crash)
    burst(app)

    assert [one["status"] for one in sent.check_ins] == ["in_progress", "error"]
    assert sent.check_ins[0]["monitor_config"]["schedule"] == {"type": "interval", "value": 2, "unit": "hour"}


def test_schedules_of_one_task_have_a_monitor_each(app: App, begin: Begin) -> None:
    sent = begin(instrument={"monitor_schedules": True})

    @app.task
    def report(region: str) -> None: ...

    app.schedule(report.bind("eu"), "0 3 * * *", name="report.eu", timezone="Europe/Paris")
    app.inspect.set_schedule("report.us", report.bind("us"), "@hourly")
    assert app.schedules.by_name()["report.eu"].fire(1_000_000)
    kept = app.store.schedules().kept["report.us"]
    assert read_entry("report.us", kept).scheduled(app, "report.us", kept).fire(10**16)
    burst(app)

    found = {one["monitor_slug"]: one["monitor_config"]["schedule"]["value"] for one in sent.check_ins if one["status"] == "ok"}
    assert found == {"report-eu": "0 3 * * *", "report-us": "0 * * * *"}


@pytest.mark.parametrize(
    ("when", "there"),
    [
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        (timedelta(days=7), {"type": "interval", "value": 7, "unit": "day"}),
        (timedelta(minutes=90), {"type": "interval", "value": 90, "unit": "minute"}),
        (timedelta(seconds=90), None),
        ("*/10 * * * * *", None),
    ],
)
def test_a_schedule_becomes_a_monitor_unless_it_counts_seconds(when: Any, there: Any) -> None:
    found = sentry._config(read_schedule(when), None)
    assert (found and found["schedule"]) == there


# -- harmless ----------------------------------------------------------------------------------------------------


def test_without_the_sdk_set_up_jobs_run_as_ever(app: App) -> None:
    sentry.instrument(app, every_failure=True, monitor_schedules=True)

    @app.task(keep_result=60, retry=TWICE)
    def work() -> int:
        if current_job().attempt == 1:
            raise ValueError
        return 1

    handle = work.enqueue()
    burst(app)
    assert handle.result() == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_of_the_instrument_fails_no_job_and_is_logged_once(
    app: App, begin: Begin, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    class Broken(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            raise OSError("no network")

    begin(traces_sample_rate=1.0, transport=Broken())

    def work(number: int) -> None:
        if number >= 3:
            raise ValueError

    async def awork(number: int) -> None:
        work(number)

    task: Any = app.task(retry=NO_RETRY)(awork if is_async else work)
    handles = [task.enqueue(n) for n in range(5)]
    burst(app)

    assert [handle.state() for handle in handles] == ["done", "done", "done", "dead", "dead"]
    said = [record.getMessage() for record in caplog.records if record.name == "laneway" and record.levelno >= logging.WARNING]
    assert len(said) == len({*said}) >= 1
    assert all("Jobs are not affected" in line for line in said)


def test_instrumenting_twice_has_no_effect(app: App, begin: Begin) -> None:
    sent = begin()
    sentry.instrument(app, every_failure=True)

    @app.task(retry=TWICE)
    def work() -> None:
        raise ValueError

    work.enqueue()
    burst(app)
    assert kinds(sent.events) == [("error", "ValueError")]


def test_both_tracers_add_to_the_baggage_of_a_job(app: App, begin: Begin) -> None:
    from opentelemetry import baggage, context  # noqa: PLC0415

    from laneway.contrib import opentelemetry  # noqa: PLC0415

    opentelemetry.instrument(app)
    begin(traces_sample_rate=1.0)
    seen: dict[str, Any] = {}

    @app.task
    def work() -> None:
        seen.update(current_job().headers, user=baggage.get_baggage("user"))

    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        with sentry_sdk.start_transaction(name="/order"):
            work.enqueue()
    finally:
        context.detach(token)
    burst(app)

    assert seen["user"] == "ada"
    assert seen["baggage"].startswith("user=ada,sentry-")
    assert "sentry-trace" in seen
