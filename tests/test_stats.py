"""`app.stats`: what workers count is what happened, told once, whatever gets lost on the way."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import App, Cancel, LaneFailures, Retry, Snooze, Worker
from laneway.core.buckets import BOUNDS, Figures, Gauge, Report, step_of
from laneway.core.instant import SECOND
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.desk.stats import Day, Point, Summary
from laneway.errors import ConfigError, StoreUnavailable
from laneway.events import RunsSettled
from laneway.worker.duties.stats_reporter import StatsReporter
from settling import settled_alike
from workbench import burst, faulty, until, wait, working

EVERY_STORE = True
FIGURES = ("enqueued", "processed", "failed", "retried", "dead", "cancelled", "snoozed")


def sums(points: Sequence[Point | Day]) -> dict[str, int]:
    """What was counted in all, but for zeros."""
    found = {name: sum(getattr(point, name) for point in points) for name in FIGURES}
    return {name: number for name, number in found.items() if number}


def counts(summary: Summary) -> dict[str, int]:
    return {name: number for name in FIGURES if (number := getattr(summary, name))}


# -- what is counted ---------------------------------------------------------------------------------------------


def declare(app: App) -> dict[str, Any]:
    """One task for each way a run can end."""

    @app.task(name="good", queue="fast")
    def good() -> None: ...

    @app.task(name="bad", retry=Retry(times=2, backoff=0))
    def bad() -> None:
        raise ValueError("no 17")

    @app.task(name="off")
    def off() -> None:
        raise Cancel("not needed")

    @app.task(name="later")
    def later(snoozed: list[int]) -> None:
        if not done.is_set():
            done.set()
            raise Snooze(0.001)

    done = threading.Event()
    return {"good": good, "bad": bad, "off": off, "later": later}


def test_every_way_a_run_ends_is_counted_by_task_and_queue(app: App) -> None:
    tasks = declare(app)
    for name, number in (("good", 5), ("bad", 2), ("off", 3)):
        for _ in range(number):
            tasks[name].enqueue()
    tasks["later"].enqueue([])

    burst(app)
    while sum(app.inspect.counts().values()) > 2:  # the dead
        burst(app)

    expected = {
        "good": {"enqueued": 5, "processed": 5},
        "bad": {"enqueued": 2, "failed": 6, "retried": 4, "dead": 2},
        "off": {"enqueued": 3, "cancelled": 3},
        "later": {"enqueued": 1, "processed": 1, "snoozed": 1},
    }
    assert {name: counts(one) for name, one in app.stats.tasks().items()} == expected
    assert {name: sums(points) for name, points in app.stats.series(by_task=True).items()} == expected
    assert {name: sums(points) for name, points in app.stats.minutes(by_task=True).items()} == expected
    assert {name: sums(days) for name, days in app.stats.history(by_task=True).items()} == expected
    assert {name: counts(one) for name, one in app.stats.queues().items()}["fast"] == expected["good"]
    whole = sums(app.stats.series())
    assert {name: whole[name] for name in app.stats.totals()} == app.stats.totals()
    assert sums(app.stats.history()) == sums(app.stats.minutes()) == whole


def test_of_a_collector_payloads_come_and_are_done_and_lanes_fail(app: App) -> None:
    @app.collector(name="collect", max_lanes=10, retry=Retry(times=0))
    def collect(lanes: dict[str, list[int]]) -> None:
        raise LaneFailures({"b": ValueError("no")})

    collect.enqueue_many([("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)])
    burst(app)

    found = app.stats.tasks()["collect"]
    assert counts(found) == {"enqueued": 5, "processed": 3, "failed": 2, "dead": 2}
    assert (found.run.count, found.wait.count) == (2, 4)
    assert app.stats.totals() == {"enqueued": 5, "processed": 3, "failed": 2, "retried": 0, "dead": 2}


def test_times_are_those_of_the_runs(app: App) -> None:
    begun, ended = 1_000_000, 1_002_000
    told = [settled_alike(Claim(n, "q", "t", (Unit(f"j{n}", None, 1, 0, 1_000 * n),)), Done(), begun, ended) for n in range(100)]
    tally = StatsReporter(app.store, "w", 5, lambda: 0)
    tally.count(RunsSettled(told, ()))
    failed = settled_alike(told[0].claim, Retrying(0, ErrorInfo("E", "m")), 1_000_000, 3_000_000)
    tally.count(RunsSettled([failed], ()))
    tally.finish()

    found = app.stats.tasks()["t"]

    assert (found.run.count, found.wait.count) == (101, 101)
    assert found.run.mean == pytest.approx((100 * 0.002 + 2) / 101)
    assert found.run.p50 == pytest.approx(0.002, rel=0.1)
    assert found.run.p99 == pytest.approx(0.002, rel=0.1)
    assert found.wait.p50 == pytest.approx(0.951, rel=0.1)
    assert found.rate > 0
    assert app.stats.queues()["q"].run == found.run


@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_counts_do_not_depend_on_how_runs_were_settled_together(app: App, portion: int) -> None:
    error = ErrorInfo("E", "m")
    outcomes: list[Outcome] = [Done(), Done(), Done(), Retrying(0, error), Dead(error), Cancelled(), Snoozed(0), Done()]
    runs = [
        settled_alike(Claim(n, f"q{n % 2}", f"t{n % 3}", (Unit(f"j{n}", None, 1, 0, 5),)), outcomes[n % 8], 10 + n, 20 + 3 * n)
        for n in range(5_000)
    ]
    tally = StatsReporter(app.store, "w", 5, lambda: 0)
    for start in range(0, len(runs), portion):
        tally.count(RunsSettled(runs[start : start + portion], ()))
    tally.finish()

    for number in range(3):
        mine = [run for run in runs if run.claim.task == f"t{number}"]
        found = app.stats.tasks()[f"t{number}"]
        names = {"processed": Done, "cancelled": Cancelled, "snoozed": Snoozed, "retried": Retrying, "dead": Dead}
        expected = {name: sum(isinstance(run.outcomes[0], kind) for run in mine) for name, kind in names.items()}
        assert counts(found) == {**expected, "failed": expected["retried"] + expected["dead"]}
        assert found.run.mean == pytest.approx(sum(run.finished - run.started for run in mine) / len(mine) / SECOND)
        assert found.wait.mean == pytest.approx(sum(run.started - 5 for run in mine) / len(mine) / SECOND)
        assert found.run.count == found.wait.count == len(mine)


class Ear:
    """A store that only hears reports."""

    def __init__(self) -> None:
        self.heard: list[Report] = []

    def record(self, report: Report) -> None:
        self.heard.append(report)


@given(st.lists(st.one_of(st.integers(-5, 50), st.sampled_from(BOUNDS), st.integers(0, 2**42)), min_size=1, max_size=30))
def test_every_time_is_in_its_step(times: list[int]) -> None:
    ear = Ear()
    tally = StatsReporter(ear, "w", 5, lambda: 0)  # type: ignore[arg-type]
    claims = [Claim(n, "q", "t", (Unit(f"j{n}", None, 1, 0, 0),)) for n in range(len(times))]
    told = [settled_alike(claim, Done(), time, 2 * time) for claim, time in zip(claims, times, strict=True)]
    tally.count(RunsSettled(told, ()))
    tally.finish()

    [figures] = ear.heard[0].series.values()

    assert figures.waits == figures.runs == Counter(map(step_of, times))


def test_what_is_enqueued_in_bulk_is_counted(app: App) -> None:
    @app.task(name="one", lane="number")
    def one(number: int) -> None: ...

    @app.task(name="two")
    def two() -> None: ...

    assert one.enqueue_many((n,) for n in range(2_500)) == 2_500
    assert app.enqueue_many(bound for n in range(100) for bound in (one.bind(n), two.bind())) == 200
    one.using(run_after=5).enqueue_many((n,) for n in range(10))

    assert {name: found.enqueued for name, found in app.stats.tasks().items()} == {"one": 2_610, "two": 100}
    assert app.stats.totals()["enqueued"] == 2_710


def test_what_was_refused_is_not_counted(app: App) -> None:
    runs = [settled_alike(Claim(n, "q", "t", (Unit(f"j{n}", None, 1, 0, 5),)), Done(), 10, 20) for n in range(10)]
    tally = StatsReporter(app.store, "w", 5, lambda: 0)
    tally.count(RunsSettled(runs, ["j3", "j7"]))
    tally.finish()

    assert app.stats.tasks()["t"].processed == 8


# -- nothing lost, nothing twice ---------------------------------------------------------------------------------


class Forgetful:
    """A store that keeps reports, and loses some of its answers; or that is away."""

    def __init__(self, real: Any, *losses: str) -> None:
        self._real = real
        self._losses = list(losses)

    def record(self, report: Report) -> None:
        loss = self._losses.pop(0) if self._losses else ""
        if loss != "away":
            self._real.record(report)
        if loss:
            raise StoreUnavailable("away")


@pytest.mark.parametrize(
    "losses", [("answer",), ("away",), ("answer", "answer", "away", "answer"), ("away", "", "answer"), ("", "away", "away")]
)
def test_a_lost_answer_and_a_store_that_is_away_lose_and_repeat_nothing(app: App, losses: tuple[str, ...]) -> None:
    tally = StatsReporter(Forgetful(app.store, *losses), "w", 5, lambda: 0)  # type: ignore[arg-type]
    for number in range(8):
        claim = Claim(number, "q", "t", (Unit(f"j{number}", None, 1, 0, 5),))
        tally.count(RunsSettled([settled_alike(claim, Dead(ErrorInfo("E", "m")), 10, 20)], ()))
        tally.tick()
    tally.finish()

    assert app.stats.tasks()["t"].dead == 8
    assert [group.count for group in app.stats.errors()] == [8]


def test_a_worker_that_hears_no_answer_counts_what_it_ran_once(app: App) -> None:
    @app.task(name="t")
    def work() -> None: ...

    work.enqueue_many([() for _ in range(40)])
    store, answers = faulty(app), iter((False, True, False, True, True))

    def lose() -> None:
        if next(answers, False):
            raise StoreUnavailable("lost")

    store.after = lose
    burst(app)

    assert app.stats.tasks()["t"].processed == app.stats.totals()["processed"] == 40


def test_a_long_run_is_told_while_the_worker_goes_on(app: App) -> None:
    gate = threading.Event()

    @app.task(name="long")
    def long() -> None:
        wait(gate)

    @app.task(name="short")
    def short() -> None: ...

    with working(app, slots=3):
        long.enqueue()
        short.enqueue()
        until(lambda: "short" in app.stats.tasks() and app.stats.tasks()["short"].processed == 1, "the report")
        until(lambda: app.stats.series()[-1].running > 0 or app.stats.series()[-2].running > 0, "a look at the slots")
        points = app.stats.series(20)
        gate.set()
    seen = max(points, key=lambda point: point.running)
    assert 0 < seen.running <= 2
    assert seen.memory > 5_000_000
    assert (seen.workers, seen.slots) == (1, 3)
    assert app.stats.tasks()["long"].processed == 1


def test_nothing_is_written_by_a_worker_that_never_had_anything_to_tell(app: App) -> None:
    @app.task
    def work() -> None: ...

    Worker(app, slots=1).run(burst=True)

    assert app.store_inspect.figures(10_000_000, 2).buckets == {}


# -- what is shown -----------------------------------------------------------------------------------------------


def test_lists_have_a_value_for_every_stretch_oldest_first(app: App) -> None:
    app.store.record(Report(worker="w", number=1, series={("q", "t"): Figures(processed=2)}))
    now = datetime.now(UTC)

    series, minutes, days = app.stats.series(1000), app.stats.minutes(24), app.stats.history(365)

    assert (len(series), len(minutes), len(days)) == (100, 24 * 60, 365)
    for points, step in ((series, 10), (minutes, 60)):
        assert {later.at - earlier.at for earlier, later in itertools.pairwise(points)} == {timedelta(seconds=step)}
        assert abs(points[-1].at - now) < timedelta(seconds=step + 10)
    assert (days[-1].date - days[0].date).days == 364
    assert abs((days[-1].date - now.date()).days) <= 1
    assert {len(points) for points in app.stats.series(by_queue=True).values()} == {100}
    assert list(app.stats.history(by_queue=True)) == ["q"]


def test_an_empty_store_has_figures_too(app: App) -> None:
    assert sums(app.stats.series()) == {}
    assert sums(app.stats.history()) == {}
    assert app.stats.tasks() == app.stats.queues() == {}
    assert app.stats.series(by_task=True) == {}
    assert app.stats.learned() == {}
    assert app.stats.errors() == []


@pytest.mark.parametrize(("name", "number"), [("series", 0), ("series", 3600), ("history", 5000), ("minutes", -1)])
def test_more_than_is_kept_cannot_be_asked_for(app: App, name: str, number: int) -> None:
    with pytest.raises(ConfigError, match=r"kept|above 0|from 1 on"):
        getattr(app.stats, name)(number)


def test_one_of_both_can_be_asked_for(app: App) -> None:
    with pytest.raises(ConfigError, match="choose one"):
        app.stats.series(by_task=True, by_queue=True)


@pytest.mark.parametrize("seconds", [10, 600, 3600, 86_400, 30 * 86_400])
def test_a_while_of_any_length_is_summed_up(app: App, seconds: float) -> None:
    figures = Figures(processed=4, run_time=4_000, runs={step_of(1_000): 4})
    app.store.record(Report(worker="w", number=1, series={("q", "t"): figures}, gauge=Gauge(samples=1)))

    found = app.stats.tasks(seconds)["t"]

    assert (found.processed, found.run.count) == (4, 4)
    assert found.run.mean == pytest.approx(0.001)
    assert found.seconds <= seconds + 86_400


def test_failures_are_grouped_and_can_be_forgotten(app: App) -> None:
    @app.task(name="flaky", retry=Retry(times=0))
    def flaky(number: int) -> None:
        if number % 2:
            raise ValueError(f"no order {number}")
        raise KeyError(number)

    handles = [flaky.enqueue(number) for number in range(10)]
    burst(app)

    groups = {group.kind: group for group in app.stats.errors()}

    assert {kind: group.count for kind, group in groups.items()} == {"ValueError": 5, "KeyError": 5}
    group = groups["ValueError"]
    assert (group.message, group.task, group.queue) == ("no order #", "flaky", "default")
    assert group.place.startswith(__file__)
    assert group.place.endswith("in flaky")
    assert group.job in {handle.id for handle in handles}
    assert "raise ValueError" in group.error.traceback
    assert abs(group.last_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert app.stats.forget_error(group)
    assert not app.stats.forget_error(group.id)
    assert [left.kind for left in app.stats.errors()] == ["KeyError"]
    assert app.stats.errors(limit=1)[0].kind == "KeyError"


def test_more_kinds_of_failures_than_are_told_apart_are_counted_all(app: App) -> None:
    tally = StatsReporter(app.store, "w", 5, lambda: 0)
    words = ["".join(chr(97 + int(digit)) for digit in f"{n:03}") for n in range(300)]
    for number, word in enumerate(words):
        claim = Claim(number, "q", "t", (Unit(word, None, 1, 0, 5),))
        tally.count(RunsSettled([settled_alike(claim, Dead(ErrorInfo("E", word)), 10, 20)], ()))
    tally.finish()

    groups = app.stats.errors(limit=1000)

    assert len(groups) == 201
    assert sum(group.count for group in groups) == 300


def test_what_was_learned_can_be_read(app: App) -> None:
    tally = StatsReporter(app.store, "w", 5, lambda: 0, lambda: {"t": (1, 2, 3, 4, 5, 6)})
    tally.tick()
    tally.finish()

    assert app.stats.learned() == {"t": (2, 4, 6, 8, 10, 12)}


@pytest.mark.parametrize("limit", [0, -1, 1.5, "x", True, None])
@pytest.mark.parametrize("name", ["recent", "errors", "history"])
def test_a_limit_is_a_whole_number(app: App, name: str, limit: Any) -> None:
    with pytest.raises(ConfigError, match="use a whole number"):
        getattr(app.stats, name)(limit)
