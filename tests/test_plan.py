"""Capacity: the published figures of Workerholic, row by row, and what must hold for every load."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.capacity import DAY, WEEK, Crew, Load, Machine, Pace, Plan, pace, plan
from laneway.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30

MAIL = plan(Load(rate=1000, share=0.1, seconds=0.05, kind="io", bytes=26))
IMAGES = plan(Load(rate=1000, share=0.01, seconds=4, kind="cpu", bytes=26), Machine(cores=4, app_memory=400 * MIB, ram=4 * GIB))
LARGE = plan(IMAGES.load, Machine(cores=20, app_memory=400 * MIB, ram=64 * GIB))

# What the texts say, and where it is in a plan.
PUBLISHED: list[tuple[str, Plan, Callable[[Plan], object], object]] = [
    ("8.64 million emails a day", MAIL, lambda p: p.jobs_a_day, 8_640_000),
    ("120 hours to process them", MAIL, lambda p: p.hours_of_work_a_day, 120),
    ("enqueuing : processing is 1:5", MAIL, lambda p: p.alone.ratio, 5),
    ("1.73 million of them done in a day", MAIL, lambda p: p.alone.jobs_a_day, 1_728_000),
    ("96 more hours every day", MAIL, lambda p: p.alone.hours_a_day, 96),
    ("48.4 million wait after a week", MAIL, lambda p: p.alone.after_week, 48_384_000),
    ("1.17 GB of memory after a week", MAIL, lambda p: round(p.alone.bytes_after_week / GIB, 2), 1.17),
    ("5 workers instead of 1", MAIL, lambda p: p.need.slots, 5),
    ("864,000 images a day", IMAGES, lambda p: p.jobs_a_day, 864_000),
    ("960 hours of processing", IMAGES, lambda p: p.hours_of_work_a_day, 960),
    ("enqueue : processing is 1:40", IMAGES, lambda p: p.alone.ratio, 40),
    ("936 more hours every day", IMAGES, lambda p: p.alone.hours_a_day, 936),
    ("5.9 million wait after a week", IMAGES, lambda p: round(p.alone.after_week / 1e6, 1), 5.9),
    ("146.2 MB of memory after a week", IMAGES, lambda p: round(p.alone.bytes_after_week / MIB, 1), 146.2),
    ("1:10 with four cores", IMAGES, lambda p: p.with_machine.ratio, 10),
    ("1.6 GB of 4 for four processes", IMAGES, lambda p: round((p.need.ram_each or 0) / GIB, 1), 1.6),
    ("40 cores are needed", IMAGES, lambda p: p.need.processes, 40),
    ("10 machines of four cores", IMAGES, lambda p: p.need.machines, 10),
    ("or 2 of 20 cores", IMAGES, lambda p: (2, 20) in {(o.machines, o.cores) for o in p.need.options}, True),
    ("1:2 with 20 cores", LARGE, lambda p: p.with_machine.ratio, 2),
    ("2 machines of 20 cores", LARGE, lambda p: p.need.machines, 2),
    ("8 GB for 20 processes, of 1,000 MB each GB", LARGE, lambda p: (p.need.ram_each or 0) / MIB / 1000, 8),
]


@pytest.mark.parametrize(("said", "answers", "found", "expected"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_a_published_figure_comes_out(said: str, answers: Plan, found: Callable[[Plan], object], expected: object) -> None:
    assert found(answers) == expected


# -- single answers ----------------------------------------------------------------------------------------------


def test_a_backlog_goes_with_what_is_left_over() -> None:
    load = Load(rate=10, seconds=0.5, backlog=600)  # 5 at a time to keep up; 8 can do 6 more a second
    assert pace(load, 8).drained == 100
    assert pace(load, 8).after_day == 0
    assert pace(load, 5).drained is None
    assert pace(load, 5).after_week == 600


def test_to_drain_within_an_hour_takes_more_than_to_keep_up() -> None:
    need = plan(Load(rate=10, seconds=1, backlog=36_000)).need
    assert (need.slots, need.slots_for_hour, need.slots_for_day) == (10, 20, 11)


def test_nobody_at_work_does_nothing() -> None:
    idle = plan(Load(rate=1, seconds=1, backlog=5), crew=Crew(slots=0, processes=0, machines=0)).now
    assert idle is not None
    assert (idle.ratio, idle.keeps_up, idle.hours_a_day, idle.drained, idle.jobs_a_day) == (None, False, None, None, 0)
    assert idle.after_day == DAY + 5


def test_jobs_that_compute_get_one_place_in_a_process_however_many_slots_it_has() -> None:
    crew = Crew(slots=50, processes=2, machines=1)
    assert (crew.at_once("io"), crew.at_once("cpu")) == (50, 2)
    now = plan(Load(rate=10, seconds=1, kind="cpu"), crew=crew).now
    assert now is not None
    assert now.ratio == 5


def test_memory_may_let_cores_idle() -> None:
    answers = plan(Load(rate=10, seconds=1, kind="cpu"), Machine(cores=8, ram=4 * GIB, app_memory=GIB))
    assert answers.machine.processes == 4
    assert (answers.need.machines, answers.need.ram_each, answers.need.ram) == (3, 4 * GIB, 10 * GIB)


@pytest.mark.parametrize("cores", [1, 8])
@pytest.mark.parametrize("slots", [1, 5])
def test_jobs_that_wait_need_no_cores(slots: int, cores: int) -> None:
    need = plan(Load(rate=50, seconds=1, kind="io"), Machine(cores=cores, slots=slots)).need
    assert (need.slots, need.processes, need.machines, need.options) == (50, 50 // slots, 1, ())


def test_jobs_that_wait_need_as_many_machines_as_their_memory_takes() -> None:
    machine = Machine(cores=2, slots=1, ram=4 * GIB, app_memory=GIB)
    need = plan(Load(rate=10, seconds=1, kind="io"), machine).need
    assert (need.processes, need.machines, need.ram_each, need.ram) == (10, 3, 4 * GIB, 10 * GIB)
    assert [(way.machines, way.cores, way.ram_each) for way in need.options] == [(1, 2, 10 * GIB)]
    assert plan(Load(rate=10, seconds=1, kind="cpu"), machine).need.machines == 5


def test_where_nothing_comes_nobody_waits_longer_even_if_nobody_works() -> None:
    idle = plan(Load(rate=0, seconds=1, backlog=5), crew=Crew(slots=0, processes=0, machines=0)).now
    assert idle is not None
    assert (idle.keeps_up, idle.hours_an_hour, idle.hours_a_day, idle.after_week, idle.drained) == (True, 0, 0, 5, None)


def test_nothing_that_comes_needs_nothing() -> None:
    need = plan(Load(rate=0, seconds=1), Machine(app_memory=MIB)).need
    assert (need.slots, need.processes, need.machines, need.ram, need.busy, need.options) == (0, 0, 0, 0, 0, ())


def test_a_figure_counts_as_it_is_written() -> None:
    assert 100 * 0.07 > 7  # as floats are
    assert plan(Load(rate=100, share=0.07, seconds=1)).need.slots == 7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate": -1}, "rate=-1: use a number from 0 to 1,000,000,000"),
        ({"rate": math.nan}, "rate=nan: use a number from 0"),
        ({"rate": math.inf}, "rate=inf: use"),
        ({"rate": "7"}, "rate='7': use a number"),
        ({"rate": True}, "rate=True: use a number"),
        ({"seconds": 0}, "seconds=0: use a number from 0.000001 to"),
        ({"share": 1.5}, "share=1.5: use a number from 0 to 1"),
        ({"bytes": -1}, "bytes=-1: use a whole number from 0"),
        ({"backlog": 0.5}, "backlog=0.5: use a whole number"),
        ({"kind": "gpu"}, "kind='gpu': use io for jobs that wait for others, cpu for jobs that compute"),
    ],
)
def test_a_load_that_cannot_be_is_an_error_that_says_what_to_use(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        Load(**{"rate": 1, "seconds": 1, **wrong})
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"slots": 0}, {"ram": 0}, {"app_memory": -1}, {"ram": 10, "app_memory": 11}])
def test_a_machine_that_cannot_be_is_an_error_that_says_what_to_use(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="use "):
        Machine(**wrong)


# -- what always holds -------------------------------------------------------------------------------------------

decimals = st.decimals(0, 100_000, places=3).map(float)
loads = st.builds(
    Load,
    rate=decimals,
    share=st.integers(0, 100).map(lambda percent: percent / 100),
    seconds=st.integers(1, 10_000_000).map(lambda millis: millis / 1000),
    kind=st.sampled_from(["io", "cpu"]),
    bytes=st.integers(0, 100_000),
    backlog=st.integers(0, 10**9),
)
machines = st.builds(
    Machine,
    cores=st.integers(1, 128),
    slots=st.integers(1, 200),
    app_memory=st.none() | st.integers(1, GIB),
    ram=st.none() | st.integers(GIB, 64 * GIB),
)
crews = st.builds(Crew, slots=st.integers(0, 1000), processes=st.integers(0, 50), machines=st.integers(0, 10))


@given(loads, machines, crews)
def test_no_figure_is_less_than_nothing_and_every_one_is_finite(load: Load, machine: Machine, crew: Crew) -> None:
    answers = plan(load, machine, crew)
    assert answers.now is not None
    whole = asdict(answers)
    parts = [whole[name] for name in ("alone", "with_machine", "now", "need")] + list(whole["need"]["options"])
    figures = [(name, value) for part in parts for name, value in part.items() if isinstance(value, int | float)]
    assert [(name, value) for name, value in figures if not 0 <= value < math.inf] == []


@given(loads, st.integers(0, 5000))
def test_it_keeps_up_exactly_if_the_ratio_is_at_most_one(load: Load, at_once: int) -> None:
    found = pace(load, at_once)
    if found.ratio is None:
        assert found.keeps_up == (load.jobs == 0)
    else:
        assert found.keeps_up == (load.work <= at_once) == (found.ratio <= 1)
    left = pace(replace(load, backlog=0), at_once).after_week
    more = load.jobs - at_once / Fraction(str(load.seconds))  # with every second
    assert left == 0 if found.keeps_up else left > 0 or more * WEEK < 1


@given(loads, st.integers(1, 5000))
def test_ratio_times_jobs_at_a_time_is_the_work(load: Load, at_once: int) -> None:
    ratio = pace(load, at_once).ratio
    assert ratio is not None
    assert ratio * at_once == pytest.approx(float(load.work))


@given(loads, machines)
def test_what_is_needed_keeps_up_and_one_less_does_not(load: Load, machine: Machine) -> None:
    need = plan(load, machine).need
    each = machine.each(load.kind)
    assert pace(load, need.slots).keeps_up
    assert need.slots == 0 or not pace(load, need.slots - 1).keeps_up
    assert (need.processes - 1) * each < need.slots <= need.processes * each
    most = machine.most(load.kind) or max(need.processes, 1)
    assert (need.machines - 1) * most < need.processes <= need.machines * most
    assert 0 <= need.busy <= 1


@given(loads, machines)
def test_every_other_way_has_enough_on_fewer_machines(load: Load, machine: Machine) -> None:
    need = plan(load, machine).need
    for option in need.options:
        assert option.machines < need.machines
        assert option.ram_each is None or option.machines * option.ram_each >= (need.ram or 0)
        if load.kind == "cpu":
            assert option.cores > machine.processes
            assert option.machines * option.cores >= need.processes
        else:
            assert (option.ram_each or 0) > (need.ram_each or 0)


def gone(found: Pace) -> float:
    return math.inf if found.drained is None else found.drained


@given(loads, decimals, st.integers(0, 500))
def test_more_requests_never_make_anything_easier(load: Load, more: float, at_once: int) -> None:
    heavier = replace(load, rate=load.rate + more)
    before, after = pace(load, at_once), pace(heavier, at_once)
    assert (before.ratio or 0) <= (after.ratio or 0)
    assert before.keeps_up >= after.keeps_up
    assert before.after_day <= after.after_day
    assert before.bytes_after_week <= after.bytes_after_week
    assert gone(before) <= gone(after)
    assert plan(load).need.slots <= plan(heavier).need.slots


@given(loads, st.integers(0, 500), st.integers(0, 500))
def test_more_at_a_time_never_makes_anything_worse(load: Load, at_once: int, more: int) -> None:
    before, after = pace(load, at_once), pace(load, at_once + more)
    assert before.keeps_up <= after.keeps_up
    assert before.after_week >= after.after_week
    assert before.jobs_a_day <= after.jobs_a_day
    assert gone(before) >= gone(after)


@given(loads, st.integers(1, 10**9), st.integers(1, 500))
def test_a_backlog_is_gone_after_the_time_that_is_said_and_not_before(load: Load, backlog: int, at_once: int) -> None:
    load = replace(load, backlog=backlog)
    found = pace(load, at_once)
    spare = at_once / Fraction(str(load.seconds)) - load.jobs
    if found.drained is None:
        assert spare <= 0
        assert found.after_week >= backlog
    else:
        assert found.drained * float(spare) == pytest.approx(backlog)
        assert found.after_day == 0 or found.drained > DAY


@given(loads)
def test_to_be_rid_of_a_backlog_sooner_takes_no_less(load: Load) -> None:
    need = plan(load).need
    assert need.slots <= need.slots_for_day <= need.slots_for_hour
    drained = pace(load, need.slots_for_hour).drained
    assert drained is not None
    assert drained <= 3600 + 1e-6


@pytest.mark.parametrize("per", [60, 3600, 86_400])
@pytest.mark.parametrize(("number", "seconds"), [(50, 120.0), (100, 15.0), (7, 0.25), (1, 86_400.0), (12, 5.0)])
def test_a_rate_a_minute_an_hour_or_a_day_is_exact(number: int, seconds: float, per: int) -> None:
    answers = plan(Load(rate=number / per, seconds=seconds))

    assert answers.load.work == Fraction(number, per) * Fraction(str(seconds))


@given(st.integers(1, 10**6), st.sampled_from([1, 60, 3600, 86_400]))
def test_a_share_of_whole_numbers_is_taken_as_it_is(number: int, per: int) -> None:
    assert Load(rate=number / per, seconds=1.0).jobs == Fraction(number, per)
