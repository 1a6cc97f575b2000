"""Fleets that are killed at random on PostgreSQL, with evidence written outside the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import collect_jobs
import postgresbench
from conftest import SOAK
from fleetbench import Trial, open_trial
from test_fleet_collect import SEEDS as COLLECT_SEEDS
from test_fleet_collect import collect_at_random
from test_fleet_kill import SEEDS as FLEET_SEEDS
from test_fleet_kill import kill_at_random, stop_at_random

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and adopts orphans")

only_in_soak = pytest.mark.skipif(not SOAK, reason="only with make soak")


@pytest.fixture
def healthy(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, store=postgresbench.emptied().url) as made:
        yield made


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Trial]:
    with open_trial(tmp_path, program=collect_jobs.__file__, store=postgresbench.emptied().url) as made:
        yield made


@pytest.mark.parametrize("seed", FLEET_SEEDS)
def test_kill_9_at_random_loses_nothing_and_repeats_only_what_it_cut(healthy: Trial, seed: int) -> None:
    kill_at_random(healthy, seed, kills=4, jobs=600)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", FLEET_SEEDS)
def test_kill_9_at_random_for_long(healthy: Trial, seed: int) -> None:
    kill_at_random(healthy, seed, kills=200, jobs=50_000)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", FLEET_SEEDS)
def test_sigterm_at_random_loses_and_repeats_nothing(healthy: Trial, seed: int) -> None:
    stop_at_random(healthy, seed, stops=100, jobs=25_000)


@pytest.mark.parametrize("seed", COLLECT_SEEDS)
def test_lanes_are_collected_in_order_and_nothing_is_swallowed_whatever_is_killed(collecting: Trial, seed: int) -> None:
    collect_at_random(collecting, seed, kills=3, payloads=900)


@pytest.mark.soak
@only_in_soak
@pytest.mark.parametrize("seed", COLLECT_SEEDS)
def test_lanes_are_collected_in_order_for_long(collecting: Trial, seed: int) -> None:
    collect_at_random(collecting, seed, kills=200, payloads=100_000)
