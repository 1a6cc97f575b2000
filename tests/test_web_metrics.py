"""Metrics, read with Prometheus' own parser: right, bounded however many names there are, and never smaller than before.

And the Grafana dashboard among the examples, which shows nothing that is not exported.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import Bench
from laneway import App, Retry, Snooze, Worker
from laneway.core.buckets import OTHERS, Bucket, Figures, Report, step_of
from laneway.core.job import STATES, Job
from laneway.ids import new_id
from laneway.present.snapshot import Snapshot
from laneway.store.inspection import QueueInfo, RunningJob, WorkerStatus
from laneway.web.metrics import LIMITS, MOST, Metrics, totals_by_task
from webdesk import Shop, visiting

EVERY_STORE = True
ROOT = Path(__file__).parent.parent


class Scrape:
    """What Prometheus would read."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        try:
            parser = importlib.import_module("prometheus_client.parser")
        except ModuleNotFoundError as error:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(error))
        families = list(parser.text_string_to_metric_families(text))
        self.types: dict[str, str] = {family.name: family.type for family in families}
        assert len(self.types) == len(families), "each family once"
        assert all(family.documentation for family in families)
        self.samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for sample in itertools.chain.from_iterable(family.samples for family in families):
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in self.samples, "each series once"
            self.samples[key] = sample.value

    def of(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]

    def labels(self, label: str) -> set[str]:
        return {value for _, labels in self.samples for name, value in labels if name == label}

    def histogram(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """The numbers up to each limit, in the order of the limits."""
        wanted = set(labels.items())
        found = {
            float(dict(labels)["le"]): value
            for (metric, labels), value in self.samples.items()
            if metric == f"{name}_bucket" and wanted <= set(labels)
        }
        return sorted(found.items())


def scrape(app: App) -> Scrape:
    with visiting(app) as client:
        answer = client.ask("GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(answer.text)


def seen(*queues: str, jobs: list[RunningJob] | None = None) -> Snapshot:
    busy = WorkerStatus(
        id="w", host="h", pid=1, fleet="", version="", queues=(), tasks=(), slots=9, phase="working", started_at=None,
        uptime=None, last_beat=None, beat_age=None, rss=0, pss=0, jobs=jobs or [],
    )  # fmt: skip
    waiting: dict[str, int] = {**dict.fromkeys(STATES, 0), "ready": 2}
    return Snapshot("sqlite://", {}, [QueueInfo(name, paused=False, counts=waiting) for name in queues], {}, [busy])


# -- what is told ------------------------------------------------------------------------------------------------


def test_prometheus_reads_what_the_store_knows(app: App) -> None:
    Shop(app).fill()
    found = scrape(app)

    assert found.of("laneway_up") == 1
    assert found.of("laneway_jobs", queue="billing", state="dead") == 1
    assert (found.of("laneway_processed_total"), found.of("laneway_failed_total")) == (1, 2)
    assert 0 < found.of("laneway_lag_seconds", queue="mail") < 20
    assert (found.of("laneway_workers", phase="working"), found.of("laneway_slots_free")) == (1, 4)
    assert {name: kind for name, kind in found.types.items() if kind != "gauge"} == {
        **{f"laneway_{name}": "counter" for name in ("merged", "recovered", "refused")},
        **{
            f"laneway_{of}{name}": "counter"
            for name in ("enqueued", "processed", "failed", "retried", "dead", "cancelled")
            for of in ("", "task_")
        },
        "laneway_task_snoozed": "counter",
        "laneway_run_seconds": "histogram",
        "laneway_wait_seconds": "histogram",
    }


def test_counters_by_task_and_queue_say_how_runs_ended(app: App) -> None:
    @app.task(name="flaky", retry=Retry(times=1, backoff=0))
    def flaky() -> None:
        raise ValueError

    @app.task(name="later", queue="slow")
    def later() -> None:
        raise Snooze(3600)

    @app.task(name="fine")
    def fine() -> None: ...

    flaky.enqueue()
    later.enqueue()
    for queue in ("default", "slow", "slow"):
        fine.using(queue=queue).enqueue()
    Worker(app, 2).run(burst=True)
    found = scrape(app)

    names = ("enqueued", "processed", "failed", "retried", "dead", "cancelled", "snoozed")
    told = {
        (task, queue): [found.of(f"laneway_task_{name}_total", queue=queue, task=task) for name in names]
        for task, queue in (("flaky", "default"), ("later", "slow"), ("fine", "default"), ("fine", "slow"))
    }
    assert told == {
        ("flaky", "default"): [1, 0, 2, 1, 1, 0, 0],
        ("later", "slow"): [1, 0, 0, 0, 0, 0, 1],
        ("fine", "default"): [1, 1, 0, 0, 0, 0, 0],
        ("fine", "slow"): [2, 2, 0, 0, 0, 0, 0],
    }
    for kind in ("run", "wait"):
        assert found.of(f"laneway_{kind}_seconds_count", task="flaky") == 2
        assert found.of(f"laneway_{kind}_seconds_count", task="fine") == 3
        assert found.of(f"laneway_{kind}_seconds_sum", task="fine") > 0


def test_a_histogram_has_a_time_in_every_bucket_whose_limit_it_does_not_exceed() -> None:
    times = [0, 1, 999, *LIMITS, *(limit - 1 for limit in LIMITS), 10**12, 10**15]
    figures = Figures(run_time=sum(times))
    for one in times:
        figures.add(Figures(runs={step_of(one): 1}))
    found = Scrape(Metrics().text(seen(), Bucket({("q", "t"): figures})))

    expected = [(limit / 1e6, float(sum(one < limit for one in times))) for limit in LIMITS]
    assert found.histogram("laneway_run_seconds", task="t") == [*expected, (float("inf"), len(times))]
    assert found.of("laneway_run_seconds_count", task="t") == len(times)
    assert found.of("laneway_run_seconds_sum", task="t") == sum(times) / 1e6
    assert [number for _, number in found.histogram("laneway_wait_seconds", task="t")] == [0.0] * (len(LIMITS) + 1)


def test_a_store_without_jobs_has_metrics_and_so_has_one_that_is_away(app: App) -> None:
    assert scrape(app).of("laneway_enqueued_total") == 0
    assert Scrape(Metrics().text(None)).samples == {("laneway_up", ()): 0.0}


# -- never smaller -----------------------------------------------------------------------------------------------


def is_cumulative(name: str, types: Mapping[str, str]) -> bool:
    return re.sub("_(total|bucket|sum|count)$", "", name) in {name for name, kind in types.items() if kind != "gauge"}


def test_no_counter_shrinks_when_intervals_are_closed_and_dropped(bench: Bench) -> None:
    """Also for a dashboard that was started anew for each scrape."""
    before: dict[Any, float] = {}
    for number in range(1, 40):
        task = f"app.task-{number % 7}"
        bench.store.push([Job(new_id(), task, "default", b"[[1],{}]")])
        figures = Figures(processed=1, run_time=1500, runs={step_of(1500): 1}, waits={step_of(9): 1})
        bench.store.record(Report(worker="w", number=number, series={("default", task): figures}))
        bench.clock.advance((0.5, 11.0, 70.0, 86_400.0, 86_400.0 * 200)[number % 5])
        found = Scrape(Metrics().text(seen(), totals_by_task(bench.inspect)))
        after = {key: value for key, value in found.samples.items() if is_cumulative(key[0], found.types)}
        assert {key: (value, after.get(key)) for key, value in before.items() if after.get(key, -1) < value} == {}
        before = after
    assert sum(value for (name, _), value in before.items() if name == "laneway_task_processed_total") == 39


# -- bounded -----------------------------------------------------------------------------------------------------


def test_series_stay_few_however_many_queues_and_tasks_there_are() -> None:
    def totals(names: range) -> Bucket:
        bucket = Bucket()
        for n in names:
            bucket.at((f"q-{n}", f"task-{n}")).add(Figures(processed=1, runs={step_of(5): 1}))
        return bucket

    def running(names: range) -> Snapshot:
        return seen(*(f"q-{n}" for n in names), jobs=[RunningJob(f"j{n}", f"task-{n}", "q", None, n, None) for n in names])

    metrics = Metrics()
    first = Scrape(metrics.text(running(range(10_000)), totals(range(10_000))))
    later = Scrape(metrics.text(running(range(5_000, 12_000)), totals(range(12_000))))

    assert first.of("laneway_jobs", queue="other", state="ready") == 2 * (10_000 - MOST)
    assert first.of("laneway_running", task="other") == 10_000 - MOST
    assert first.of("laneway_run_seconds_count", task="other") == 10_000 - MOST
    assert first.of("laneway_task_processed_total", queue="other", task="other") == 10_000 - MOST
    for label in ("queue", "task"):
        assert len(first.labels(label) | later.labels(label)) == MOST + 1
        assert OTHERS not in first.labels(label)
    assert len(first.samples) < 20_000
    assert later.of("laneway_running", task="other") == 7_000
    assert later.of("laneway_run_seconds_count", task="other") == 12_000 - MOST


def test_another_dashboard_shows_the_same_names() -> None:
    totals = Bucket({("q", f"task-{n:04}"): Figures(processed=n) for n in reversed(range(500))})
    one, two = Metrics(), Metrics()
    one.text(seen())

    assert one.text(seen(), totals) == two.text(seen(), totals)


@pytest.mark.parametrize("name", ['a"b\\c\nd', "\\", "\\n", "{a='b', c=\"d\"} 1", "ünï – \u202e😀", "a\rb\tc", " "])
def test_every_name_comes_through(name: str) -> None:
    found = Scrape(Metrics().text(seen(name), Bucket({(name, name): Figures(processed=3, runs={step_of(9): 3})})))

    assert found.of("laneway_jobs", queue=name, state="ready") == 2
    assert found.of("laneway_task_processed_total", queue=name, task=name) == 3
    assert found.of("laneway_run_seconds_count", task=name) == 3


# -- the Grafana dashboard ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board() -> Any:
    return json.loads((ROOT / "examples" / "grafana" / "laneway.json").read_text())


def queries(board: Any) -> Iterator[str]:
    """Everything that the dashboard asks Prometheus."""
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (variable["definition"] for variable in board["templating"]["list"] if variable["type"] == "query")


def test_the_grafana_dashboard_asks_for_what_is_exported(board: Any, file_app: App) -> None:
    Shop(file_app).fill()
    found = scrape(file_app)
    exported: dict[str, set[str]] = {}
    for name, labels in found.samples:
        exported.setdefault(name, {"job"}).update(label for label, _ in labels)

    asked = list(queries(board))
    for query in asked:
        selected = re.findall(r"(laneway_\w+)(?:\{([^}]*)\})?", query)
        assert selected, query
        for name, labels in selected:
            assert name in exported, query
            wanted = {*re.findall(r"(\w+)=", labels), *re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query)))}
            assert wanted <= exported[name], query
    for kind in ("run", "wait"):
        for share in ("0.5", "0.95"):
            quantile = f"histogram_quantile({share}, sum by (le, task) (rate(laneway_{kind}_seconds_bucket{{"
            assert any(query.startswith(quantile) for query in asked)


def test_the_grafana_dashboard_is_well_formed(board: Any) -> None:
    panels = board["panels"]
    assert isinstance(board["schemaVersion"], int)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"row", "stat", "timeseries"}
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")

    taken: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        targets = panel.get("targets", [])
        assert bool(targets) == (panel["type"] != "row")
        assert len({target["refId"] for target in targets}) == len(targets)
        for asks in (panel, *targets) if targets else ():
            assert asks["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - {"__rate_interval", "__all"}
    assert used == set(variables)
