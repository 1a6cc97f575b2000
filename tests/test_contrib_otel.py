"""OpenTelemetry: what its own SDK exports of enqueues and runs."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from laneway import App, Cancel, JobContext, LaneFailures, Retry, Snooze, Worker, current_job
from laneway.contrib import opentelemetry
from laneway.errors import BulkError, ConfigError
from workbench import DEADLINE, SOON, Faulty, burst, faulty, url

NO_RETRY = Retry(times=0)
TWICE = Retry(times=1, backoff=0)


class Bench:
    """An app that is instrumented, and what was exported."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics], shutdown_on_exit=False)
        self.tracer = self.provider.get_tracer("test")
        opentelemetry.instrument(app, self.provider, self.meters)

    @property
    def sent(self) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.kind is SpanKind.PRODUCER]

    @property
    def runs(self) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]

    def points(self, name: str) -> list[Any]:
        found = self._metrics.get_metrics_data()
        metrics = [one for part in (found.resource_metrics if found else ()) for s in part.scope_metrics for one in s.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def bench(app: App) -> Iterator[Bench]:
    made = Bench(app)
    yield made
    made.provider.shutdown()
    made.meters.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def errors(span: ReadableSpan) -> list[dict[str, Any]]:
    return [dict(event.attributes or {}) for event in span.events if event.name == "exception"]


# -- one trace ---------------------------------------------------------------------------------------------------


@pytest.mark.every_store
@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_is_a_child_of_the_enqueue_in_the_trace_of_the_request(app: App, is_async: bool) -> None:
    bench = Bench(app)

    def work(number: int) -> None:
        with bench.tracer.start_as_current_span("query"):
            pass

    async def awork(number: int) -> None:
        await asyncio.sleep(0)
        work(number)

    task = app.task(name="work", queue="mail", lane="number")(awork if is_async else work)
    with bench.tracer.start_as_current_span("request"):
        handle = task.enqueue(7)
    burst(app)

    request, query = (next(s for s in bench._spans.get_finished_spans() if s.name == name) for name in ("request", "query"))
    [sent], [run] = bench.sent, bench.runs
    assert (parent_id(sent), parent_id(run), parent_id(query)) == tuple(context(s).span_id for s in (request, sent, run))
    assert {context(span).trace_id for span in (request, sent, run, query)} == {context(request).trace_id}
    assert (sent.name, run.name) == ("send mail", "process mail")
    assert attributes(sent) == {
        "messaging.system": "laneway", "messaging.operation.type": "send", "messaging.operation.name": "send",
        "messaging.destination.name": "mail", "messaging.message.id": handle.id, "laneway.task": "work",
    }  # fmt: skip
    assert attributes(run) == {
        "messaging.system": "laneway", "messaging.operation.type": "process", "messaging.operation.name": "process",
        "messaging.destination.name": "mail", "messaging.message.id": handle.id, "laneway.task": "work", "laneway.lane": "7",
        "laneway.attempt": 1, "laneway.outcome": "done",
    }  # fmt: skip
    assert (run.status.status_code, list(run.links)) == (StatusCode.UNSET, [])


def test_an_awaited_enqueue_is_traced_too(bench: Bench) -> None:
    @bench.app.task
    def work(number: int) -> None: ...

    async def request() -> None:
        with bench.tracer.start_as_current_span("request"):
            await asyncio.gather(*(work.aenqueue(n) for n in range(3)))

    asyncio.run(request())
    burst(bench.app)

    [root] = [span for span in bench._spans.get_finished_spans() if span.name == "request"]
    assert [parent_id(span) for span in bench.sent] == [context(root).span_id] * 3
    assert {parent_id(span) for span in bench.runs} == {context(span).span_id for span in bench.sent}


def test_enqueue_many_has_one_span_for_a_chunk_and_a_task(bench: Bench) -> None:
    @bench.app.task(queue="mail")
    def mail(number: int) -> None: ...

    @bench.app.task(queue="images")
    def scale(number: int) -> None: ...

    with bench.tracer.start_as_current_span("request") as root:
        assert mail.enqueue_many([(n,) for n in range(25)], chunk=10) == 25
        bench.app.enqueue_many([mail.bind(1), scale.bind(2), mail.bind(3)])
    burst(bench.app)

    counts = [(span.name, attributes(span).get("messaging.batch.message_count")) for span in bench.sent]
    assert counts == [("send mail", 10), ("send mail", 10), ("send mail", 5), ("send images", None), ("send mail", 2)]
    assert {parent_id(span) for span in bench.sent} == {root.get_span_context().span_id}
    children = [parent_id(span) for span in bench.runs]
    assert [children.count(context(span).span_id) for span in bench.sent] == [10, 10, 5, 1, 2]


def test_a_job_that_a_job_enqueues_belongs_to_the_same_trace(bench: Bench) -> None:
    @bench.app.task
    def second() -> None: ...

    @bench.app.task
    def first() -> None:
        second.enqueue()

    first.enqueue()
    burst(bench.app)

    assert len({context(span).trace_id for span in (*bench.sent, *bench.runs)}) == 1
    by_task = {attributes(span)["laneway.task"]: span for span in bench.runs}
    [inner] = [span for span in bench.sent if attributes(span)["laneway.task"] == second.name]
    assert parent_id(inner) == context(by_task[first.name]).span_id
    assert parent_id(by_task[second.name]) == context(inner).span_id


def test_an_enqueue_that_fails_is_an_error(bench: Bench) -> None:
    @bench.app.task
    def work(number: int) -> None: ...

    with pytest.raises(BulkError):
        work.enqueue_many([(1,), ("x",)])

    [span] = bench.sent
    assert span.status.status_code is StatusCode.ERROR
    assert [error["exception.type"] for error in errors(span)] == ["laneway.errors.BadArguments"]
    assert [(point.value, point.attributes["error.type"]) for point in bench.points("messaging.client.sent.messages")] == [
        (2, "laneway.errors.BadArguments")
    ]
    assert get_current() == {}, "a context was left behind"


# -- outcomes ----------------------------------------------------------------------------------------------------


def test_a_retry_is_linked_with_the_enqueue_and_the_attempt_before(bench: Bench) -> None:
    @bench.app.task(retry=TWICE)
    def work() -> None:
        if current_job().attempt == 1:
            raise ValueError("not yet")

    work.enqueue()
    burst(bench.app)

    [sent], [first, second] = bench.sent, bench.runs
    assert [attributes(span)["laneway.outcome"] for span in (first, second)] == ["retrying", "done"]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
    assert first.status.description == "ValueError: not yet"
    assert attributes(first)["error.type"] == "ValueError"
    [error] = errors(first)
    assert (error["exception.type"], error["exception.message"]) == ("ValueError", "not yet")
    assert "in work" in error["exception.stacktrace"]
    assert [link.context.span_id for link in second.links] == [context(sent).span_id, context(first).span_id]
    assert {context(span).trace_id for span in (sent, first, second)} == {context(sent).trace_id}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("raised", "outcome"), [(Snooze(3600), "snoozed"), (Cancel("no"), "cancelled")])
def test_a_snooze_and_a_cancel_are_no_errors(bench: Bench, is_async: bool, raised: Exception, outcome: str) -> None:
    def work() -> None:
        raise raised

    async def awork() -> None:
        raise raised

    bench.app.task(awork if is_async else work).enqueue()
    burst(bench.app)

    [run] = bench.runs
    assert (attributes(run)["laneway.outcome"], run.status.status_code, errors(run)) == (outcome, StatusCode.UNSET, [])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_death_is_an_error(bench: Bench, is_async: bool) -> None:
    def work() -> None:
        raise KeyError("gone")

    async def awork() -> None:
        raise KeyError("gone")

    bench.app.task(retry=NO_RETRY)(awork if is_async else work).enqueue()
    burst(bench.app)

    [run] = bench.runs
    assert (attributes(run)["laneway.outcome"], run.status.status_code) == ("dead", StatusCode.ERROR)
    assert [error["exception.type"] for error in errors(run)] == ["KeyError"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_that_takes_too_long_ends_its_span(bench: Bench, is_async: bool) -> None:
    def work() -> None:
        while True:
            time.sleep(0.01)

    async def awork() -> None:
        await asyncio.sleep(60)

    bench.app.task(retry=NO_RETRY, timeout=0.2)(awork if is_async else work).enqueue()
    burst(bench.app)

    [run] = bench.runs
    assert (attributes(run)["laneway.outcome"], attributes(run)["error.type"]) == ("dead", "laneway.errors.JobTimeout")


def test_an_error_of_another_middleware_is_one_of_the_run(bench: Bench) -> None:
    @bench.app.middleware
    def broken(job: JobContext) -> Generator[None, None, None]:
        raise RuntimeError("no database")
        yield

    @bench.app.task(retry=NO_RETRY)
    def work() -> None: ...

    work.enqueue()
    burst(bench.app)

    [run] = bench.runs
    assert (run.status.status_code, [error["exception.message"] for error in errors(run)]) == (StatusCode.ERROR, ["no database"])


def test_a_result_that_cannot_be_kept_is_an_error(bench: Bench) -> None:
    @bench.app.task(keep_result=60)
    def work() -> Any:
        return object()

    work.enqueue()
    burst(bench.app)

    [run] = bench.runs
    assert (run.status.status_code, attributes(run)["laneway.outcome"]) == (StatusCode.ERROR, "dead")


def test_the_text_of_an_error_is_the_one_that_is_stored(tmp_path: Path) -> None:
    app = App(url(tmp_path), format_error=lambda error: "(hidden)")
    bench = Bench(app)

    @app.task(retry=NO_RETRY)
    def work() -> None:
        raise ValueError("secret")

    work.enqueue()
    burst(app)
    app.close()

    assert errors(bench.runs[0])[0]["exception.stacktrace"] == "(hidden)"


# -- collectors --------------------------------------------------------------------------------------------------


def test_a_collectors_run_is_linked_with_the_enqueues_of_its_payloads(bench: Bench) -> None:
    @bench.app.collector(max_lanes=2)
    def index(lanes: dict[str, list[int]]) -> None: ...

    for lane, payload in (("a", 1), ("a", 2), ("b", 3)):
        with bench.tracer.start_as_current_span("request"):
            index.enqueue(lane, payload)
    burst(bench.app)

    [run] = bench.runs
    assert {link.context.span_id for link in run.links} == {context(span).span_id for span in bench.sent}
    assert (run.parent, len(run.links), attributes(run)["messaging.batch.message_count"]) == (None, 3, 3)
    assert context(run).trace_id not in {context(span).trace_id for span in bench.sent}


def test_a_collectors_lanes_fail_by_themselves(bench: Bench) -> None:
    @bench.app.collector(max_lanes=3, retry=NO_RETRY)
    def index(lanes: dict[str, list[int]]) -> None:
        raise LaneFailures({"a": ValueError("bad"), "b": Snooze(3600)})

    index.enqueue_many([("a", 1), ("b", 2), ("c", 3)])
    burst(bench.app)

    [run] = bench.runs
    assert attributes(run)["laneway.outcome"] == "dead"
    assert [error["exception.message"] for error in errors(run)] == ["bad"]


# -- metrics -----------------------------------------------------------------------------------------------------


def test_runs_and_enqueues_are_measured(bench: Bench) -> None:
    @bench.app.task(queue="mail", name="work", retry=TWICE)
    def work(number: int) -> None:
        if number == 2:
            raise ValueError

    work.enqueue_many([(1,), (2,), (3,)])
    burst(bench.app)

    sent = {"messaging.system": "laneway", "messaging.operation.name": "send", "messaging.destination.name": "mail"}
    [point] = bench.points("messaging.client.sent.messages")
    assert (point.value, point.attributes) == (3, {**sent, "laneway.task": "work"})
    [point] = bench.points("messaging.client.operation.duration")
    assert (point.count, point.explicit_bounds[-1]) == (1, 10)
    consumed = {
        (point.attributes["laneway.outcome"], point.attributes.get("error.type")): point.value
        for point in bench.points("messaging.client.consumed.messages")
    }
    assert consumed == {("done", None): 2, ("retrying", "ValueError"): 1, ("dead", "ValueError"): 1}
    assert sum(point.count for point in bench.points("messaging.process.duration")) == 4
    [point] = bench.points("laneway.wait.duration")
    assert (point.count, 0 <= point.sum < 60) == (4, True)


# -- harmless ----------------------------------------------------------------------------------------------------


class Broken(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise OSError("no collector")


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_of_the_instrument_fails_no_job_and_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    bench.provider.add_span_processor(Broken())

    def work(number: int) -> int:
        return number

    async def awork(number: int) -> int:
        return number

    task: Any = bench.app.task(keep_result=60)(awork if is_async else work)
    handles = [task.enqueue(n) for n in range(5)]
    burst(bench.app)

    assert [handle.result() for handle in handles] == list(range(5))
    said = [record.getMessage() for record in caplog.records if record.name == "laneway" and record.levelno >= logging.WARNING]
    assert len(said) == 2  # one for enqueues and one for runs
    assert all("Jobs are not affected" in line for line in said)


def test_instrumenting_twice_has_no_effect(bench: Bench) -> None:
    opentelemetry.instrument(bench.app, bench.provider, bench.meters)

    @bench.app.task
    def work() -> None: ...

    work.enqueue()
    burst(bench.app)
    assert (len(bench.sent), len(bench.runs)) == (1, 1)


@pytest.mark.parametrize(("module", "needs"), [("opentelemetry", "opentelemetry"), ("sentry", "sentry_sdk")])
def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str, needs: str) -> None:
    monkeypatch.setitem(sys.modules, needs, None)
    monkeypatch.delitem(sys.modules, f"laneway.contrib.{module}", raising=False)
    extra = {"opentelemetry": "otel"}.get(module, module)
    with pytest.raises(ConfigError, match=re.escape(f'pip install "laneway[{extra}]"')):
        importlib.import_module(f"laneway.contrib.{module}")


def test_without_an_sdk_jobs_run_as_ever(app: App) -> None:
    opentelemetry.instrument(app)

    @app.task(keep_result=60)
    def work() -> int:
        assert not trace.get_current_span().is_recording()
        return 1

    handle = work.enqueue()
    burst(app)
    assert handle.result() == 1


def test_a_store_that_is_away_leaves_no_span_open(bench: Bench) -> None:
    made: Faulty = faulty(bench.app)

    @bench.app.task
    def work() -> None: ...

    def away(*_: object) -> None:
        raise OSError("away")

    made.push = away  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="away"):
        work.enqueue()
    assert [span.status.status_code for span in bench.sent] == [StatusCode.ERROR]


# -- other processes ---------------------------------------------------------------------------------------------


class ToFile(SpanExporter):
    """Appends a line for each span, from any process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            for span in spans:
                line = {
                    "name": span.name, "trace": context(span).trace_id, "span": context(span).span_id,
                    "parent": parent_id(span), "pid": os.getpid(), "status": span.status.status_code.name,
                    "links": [link.context.span_id for link in span.links], **attributes(span),
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
        return SpanExportResult.SUCCESS

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]


class Isolated:
    """An app whose spans are exported in batches, by a thread of the SDK, to a file."""

    def __init__(self, folder: Path) -> None:
        self.app = App(url(folder))
        self._file = ToFile(folder / "spans")
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(self._file, schedule_delay_millis=3_600_000))
        opentelemetry.instrument(self.app, self.provider)

    def runs(self) -> list[dict[str, Any]]:
        self.provider.force_flush()
        return [span for span in self._file.read() if span["name"].startswith("process")]

    def sent(self) -> dict[str, Any]:
        [found] = [span for span in self._file.read() if span["name"].startswith("send")]
        return found


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[Isolated]:
    made = Isolated(tmp_path)
    yield made
    made.provider.shutdown()
    made.app.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_the_span_of_an_isolated_run_is_exported_before_its_process_ends(isolated: Isolated, is_async: bool) -> None:
    def work() -> None: ...

    async def awork() -> None: ...

    isolated.app.task(isolate=True)(awork if is_async else work).enqueue()
    burst(isolated.app)

    [run] = isolated.runs()
    assert (run["laneway.outcome"], run["pid"] != os.getpid()) == ("done", True)
    assert (run["trace"], run["parent"]) == (isolated.sent()["trace"], isolated.sent()["span"])


def test_an_isolated_run_that_fails_has_one_span(isolated: Isolated) -> None:
    @isolated.app.task(isolate=True, retry=TWICE)
    def work() -> None:
        raise ValueError

    work.enqueue()
    burst(isolated.app)

    runs = isolated.runs()
    assert [(run["laneway.outcome"], run["status"]) for run in runs] == [("retrying", "ERROR"), ("dead", "ERROR")]
    assert runs[1]["links"] == [isolated.sent()["span"]]  # the attempt before ran in another process


def test_an_isolated_run_that_cannot_end_its_span_gets_one_of_the_worker(isolated: Isolated) -> None:
    @isolated.app.task(isolate=True, retry=NO_RETRY, timeout=0.2, name="slow")
    def slow() -> None:
        while True:
            try:
                time.sleep(60)
            except BaseException:  # noqa: BLE001, S112 - it ignores that its time is up
                continue

    @isolated.app.task(isolate=True, retry=NO_RETRY, name="crash")
    def crash() -> None:
        os._exit(3)

    slow.enqueue()
    burst(isolated.app)
    [run] = isolated.runs()
    assert (run["laneway.outcome"], run["error.type"], run["pid"]) == ("dead", "laneway.errors.JobTimeout", os.getpid())

    crash.enqueue()
    burst(isolated.app)
    [_, run] = isolated.runs()
    assert (run["laneway.outcome"], run["error.type"], run["pid"]) == ("dead", "laneway.errors.JobCrashed", os.getpid())


PROGRAM = """
import os, sys
from pathlib import Path
from laneway import App
from laneway.contrib import opentelemetry
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from test_contrib_otel import ToFile

app = App()
opentelemetry.instrument(app)

@app.on_start
def set_up():
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(ToFile(Path(os.environ["SPANS"])), schedule_delay_millis=3_600_000))
    trace.set_tracer_provider(provider)

@app.task
def plain(): ...

@app.task
async def on_loop(): ...

@app.task(isolate=True)
def alone(): ...

if __name__ == "__main__":
    set_up()
    with trace.get_tracer("web").start_as_current_span("request"):
        for task in (plain, on_loop, alone):
            task.enqueue()
"""


def test_a_program_and_a_fleet_share_a_trace(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM)
    paths = [str(tmp_path), str(Path(__file__).parent), *sys.path]
    environ = {**os.environ, "LANEWAY_URL": url(tmp_path), "SPANS": str(tmp_path / "spans"), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "jobs.py"], cwd=tmp_path, env=environ, check=True, timeout=60)
    worker = [sys.executable, "-m", "laneway", "worker", "--app", "jobs:app", "-p", "1", "--burst"]
    done = subprocess.run(worker, cwd=tmp_path, env=environ, check=True, timeout=60, capture_output=True, text=True)

    spans = ToFile(tmp_path / "spans").read()
    assert "has started the thread" not in done.stderr
    assert sorted(span["name"].split()[0] for span in spans) == ["process"] * 3 + ["request"] + ["send"] * 3
    assert len({span["trace"] for span in spans}) == 1
    runs = {span["laneway.task"]: span for span in spans if span["name"].startswith("process")}
    sent = {span["laneway.task"]: span for span in spans if span["name"].startswith("send")}
    assert {task: span["parent"] for task, span in runs.items()} == {task: span["span"] for task, span in sent.items()}
    assert len({span["pid"] for span in spans}) == 3  # the program, a worker, and the isolated run


def test_a_worker_in_a_program_flushes_when_it_stops(isolated: Isolated) -> None:
    @isolated.app.task
    def work() -> None: ...

    work.enqueue()
    Worker(isolated.app).run(burst=True)
    assert [span["name"] for span in isolated._file.read()] == ["send default", "process default"]


def test_an_exporter_that_hangs_delays_the_end_of_a_worker_for_a_while_only(
    isolated: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(opentelemetry, "FLUSH", 0.1)
    monkeypatch.setattr(isolated._file, "export", lambda spans: never.wait(DEADLINE))

    @isolated.app.task
    def work() -> None: ...

    handle = work.enqueue()
    start = time.monotonic()
    burst(isolated.app)
    took = time.monotonic() - start
    never.set()
    assert (handle.state(), took < SOON) == ("done", True)
