"""Statistics of real fleets, beside a count of the same jobs that was written outside the store.

After clean stops they are equal. Who is killed takes along what it has counted since its last report, a second's worth: so much
may be missing, and nothing is counted twice. What arrived and the totals are exact in any case.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import redisbench
from conftest import SOAK, often
from fleet_evidence import SECOND, Fault, Mark
from fleetbench import Fleet, Trial, open_trial, tell
from laneway.desk.stats import Day, Point
from workbench import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and adopts orphans")


#: A report is written by one verb, which the contract suite proves on each store: kills meet it on another one with make soak.
AFTER_KILLS = ["sqlite", *(["redis"] if SOAK else [])]


@pytest.fixture(params=["sqlite", "redis"])
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    store = redisbench.emptied().url if request.param == "redis" else ""
    with open_trial(tmp_path, store=store) as made:
        yield made


def processed(points: list[Point] | list[Day]) -> int:
    return sum(point.processed for point in points)


def until_told(trial: Trial, number: int) -> None:
    until(lambda: processed(trial.app.stats.series()) > number, f"more than {number} jobs in the figures")


def ends(trial: Trial) -> list[Mark]:
    trial.tail.look()
    return [mark for mark in trial.tail.marks if mark.what == "end"]


def assert_figures(trial: Trial, least: int) -> int:
    """All levels say the same, and as much as can be expected; return what they say was done."""
    stats, jobs = trial.app.stats, len(trial.jobs)
    done = processed(stats.series())
    assert done == processed(stats.minutes()) == processed(stats.history()) == stats.tasks()["step"].processed
    assert least <= done <= jobs == stats.totals()["processed"] == stats.totals()["enqueued"]
    for points in (stats.series(), stats.history(), stats.series(by_task=True)["step"], stats.series(by_queue=True)["default"]):
        assert sum(point.enqueued for point in points) == jobs
    found = stats.tasks()["step"]
    assert (found.run.count, found.wait.count) == (done, done)
    return done


@pytest.mark.soak
def test_after_clean_stops_figures_equal_the_evidence(trial: Trial) -> None:
    chance = random.Random(5)  # noqa: S311 - chance that can be had again
    rounds = often(1, 12)
    for _ in range(rounds):
        fleet = trial.start("--shutdown-timeout", "30")
        trial.enqueue(f"l{chance.randrange(100)}" for _ in range(250))
        trial.until_left(chance.randint(20, 200))
        fleet.stop()
    verdict = trial.finish(trial.start())

    assert verdict.repeats == []
    assert len(ends(trial)) == len(trial.jobs) == 250 * rounds
    assert_figures(trial, least=250 * rounds)
    longest = sorted((run.end.at - run.start.at) / SECOND for run in verdict.runs if run.end is not None)
    found = trial.app.stats.tasks()["step"].run
    assert found.p50 >= longest[len(longest) // 2] * 0.9  # a run is a little longer than what its job sees of it
    assert found.mean >= sum(longest) / len(longest)


def kill(fleet: Fleet, role: str) -> Fault:
    return fleet.kill(role, fleet.of_role("worker")[0]) if role == "worker" else fleet.kill(role)


@pytest.mark.soak
@pytest.mark.parametrize("trial", AFTER_KILLS, indirect=True)
def test_who_is_killed_takes_along_what_it_has_not_told_yet_and_no_more(trial: Trial) -> None:
    fleet, at_risk, stats = trial.start(), 0, trial.app.stats
    for role in ("worker", "fleet", "supervisor"):
        trial.until_left(0)
        trial.enqueue((f"l{n % 100}" for n in range(500)), 0.04)
        until_told(trial, processed(stats.series()) + 50)
        told = processed(stats.series())
        kill(fleet, role)
        at_risk += len(ends(trial)) - told
        if not fleet.lives:
            fleet.assert_gone()
            fleet = trial.start()
    trial.finish(fleet)

    assert at_risk < len(trial.jobs) / 2, "this showed nothing"
    done = assert_figures(trial, least=len(trial.jobs) - at_risk)
    tell(f"{len(trial.jobs) - done} of {len(trial.jobs)} jobs are missing in the figures, {at_risk} could be")
