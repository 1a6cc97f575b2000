"""Figures add up, whoever adds them and in whatever order; times read from them are nearly right; faults are told apart."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.core import buckets
from laneway.core.buckets import BOUNDS, Bucket, Figures, Gauge, Gauges, Report, quantile, step_of
from laneway.core.error_groups import fault_of, normal, place_of
from laneway.core.outcome import ErrorInfo

COUNT = st.integers(0, 2**40)
STEPS = st.dictionaries(st.integers(0, len(BOUNDS)), st.integers(1, 2**30), max_size=8)
FIGURES = st.builds(Figures, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, STEPS, STEPS)
GAUGES = st.builds(Gauges, *[st.integers(0, 1000)] * 3, st.integers(0, 1000).map(float), COUNT, st.integers(0, 1000).map(float))
KEYS = st.tuples(st.sampled_from(["q", "r"]), st.text(max_size=5))
BUCKETS = st.builds(Bucket, st.dictionaries(KEYS, FIGURES, max_size=5), GAUGES)


def copy(bucket: Bucket) -> Bucket:
    return buckets.decode(buckets.encode(bucket))


def added(*buckets: Bucket) -> Bucket:
    total = Bucket()
    for bucket in buckets:
        total.add(copy(bucket))
    return total


def total(bucket: Bucket) -> Figures:
    figures_ = Figures()
    for one in bucket.series.values():
        figures_.add(one)
    return figures_


# -- adding ------------------------------------------------------------------------------------------------------


@given(BUCKETS, BUCKETS, BUCKETS)
def test_adding_is_commutative_and_associative(one: Bucket, two: Bucket, three: Bucket) -> None:
    assert added(one, two) == added(two, one)
    assert added(added(one, two), three) == added(one, added(two, three))
    assert added(one) == one


@given(BUCKETS)
def test_bytes_say_what_the_bucket_said(bucket: Bucket) -> None:
    raw = buckets.encode(bucket)

    assert buckets.decode(raw) == bucket
    counts = buckets.decode(raw, "counts")
    assert counts.gauges == bucket.gauges
    assert {key: one.failed for key, one in counts.series.items()} == {key: one.failed for key, one in bucket.series.items()}
    brief = buckets.decode(raw, "total")
    [whole] = brief.series.values()
    expected = total(bucket)
    assert (whole.enqueued, whole.processed, whole.wait_time) == (expected.enqueued, expected.processed, expected.wait_time)


@pytest.mark.parametrize("depth", ["total", "counts", "times"])
@pytest.mark.parametrize("raw", [b"", None, b"\xff", b"\x93\x01\x02\x03", b"[]", b"\x90"])
def test_what_is_no_bucket_is_empty(raw: bytes | None, depth: Any) -> None:
    assert buckets.decode(raw, depth) == Bucket()


@given(st.text(), FIGURES, st.one_of(st.none(), st.builds(Gauge, *[st.integers(0, 9)] * 4, st.floats(0, 9))))
def test_a_report_is_read_as_it_was_told(worker: str, one: Figures, gauge: Gauge | None) -> None:
    told = Report(worker=worker, number=1, series={("q", "t"): one}, gauge=gauge)

    assert buckets.decode_report(buckets.encode_report(told)) == (worker, gauge, {("q", "t"): one})


def test_a_worker_is_as_busy_as_on_average_and_as_big_as_at_most() -> None:
    gauge = Gauge(samples=3, busy=9, slots=5, rss=7, cpu=1.0)
    gauge.add(Gauge(samples=1, busy=1, slots=5, rss=9, cpu=0.5))

    found = Gauges.of([gauge, Gauge(samples=1, busy=4, slots=4, rss=1)])

    assert found == Gauges(stretches=1, workers=2, slots=9, running=6.5, memory=10, cpu=1.5)
    assert Gauges.of([]) == Gauges()


# -- times -------------------------------------------------------------------------------------------------------


def exact(times: list[int], share: float) -> int:
    return sorted(times)[max(math.ceil(share * len(times)), 1) - 1]


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_off_by_a_tenth_at_most(times: list[int], share: float) -> None:
    steps: dict[int, int] = {}
    for time in times:
        buckets.add_times(steps, {step_of(time): 1})

    found, right = quantile(steps, share), exact(times, share)

    assert found == right == 0 or abs(found / max(right, 1) - 1) <= 0.1


def test_quantiles_of_usual_times_are_near() -> None:
    chance = random.Random(3)  # noqa: S311 - chance that can be had again
    times = [int(chance.lognormvariate(10, 2)) for _ in range(10_000)]
    steps: dict[int, int] = {}
    for time in times:
        steps[step_of(time)] = steps.get(step_of(time), 0) + 1

    for share in (0.5, 0.95, 0.99):
        assert quantile(steps, share) == pytest.approx(exact(times, share), rel=0.1)


def test_no_times_are_no_quantile() -> None:
    assert quantile({}, 0.5) == 0


def test_clocks_that_differ_and_years_of_waiting_are_taken_for_the_first_and_the_last_step() -> None:
    assert step_of(-5) == step_of(0) == 0
    assert quantile({step_of(10**15): 1}, 0.5) == BOUNDS[-1]


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no user 17", "no user 4"),
        ("no user 'bob'", 'no user "alice and carol"'),
        ("<Thing at 0x7f01>", "<Thing at 0x8a2>"),
        ("order 3f2a-77 of cr2gs4f27wcr5p1m8gx5", "order 99 of cr2gs4f27wcr5p1m8gx6"),
        ("a  b\n c", "a b c"),
        ("took 1.5 s", "took 20.25 s"),
    ],
)
def test_names_and_numbers_make_no_difference(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), [("no user", "no order"), ("it is late", "it is early"), ("", "x")])
def test_words_do(one: str, other: str) -> None:
    assert normal(one) != normal(other)


def caught(call: Any) -> ErrorInfo:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return ErrorInfo.of(error)
    raise AssertionError("nothing was raised")


def fail(number: int) -> None:
    raise ValueError(f"no {number}")


def fail_elsewhere(number: int) -> None:
    raise ValueError(f"no {number}")


def test_the_place_is_in_the_users_own_code() -> None:
    assert place_of(caught(lambda: fail(1)).traceback).startswith(__file__ + ":")
    assert place_of(caught(lambda: fail(1)).traceback).endswith(" in fail")
    library = caught(lambda: random.Random().randrange(5, 1))  # noqa: S311 - it raises
    assert place_of(library.traceback).startswith(__file__)
    assert place_of("") == place_of("what a user's own formatter wrote") == ""
    assert place_of('  File "/usr/lib/python3.11/json.py", line 3, in loads\n') == "/usr/lib/python3.11/json.py:3 in loads"


def test_faults_are_the_same_if_kind_message_and_place_are() -> None:
    one = fault_of(caught(lambda: fail(1)), "j1", "t", "q")
    two = fault_of(caught(lambda: fail(2)), "j2", "other", "q")
    elsewhere = fault_of(caught(lambda: fail_elsewhere(1)), "j1", "t", "q")
    other_kind = fault_of(ErrorInfo("KeyError", "no 1", caught(lambda: fail(1)).traceback), "j1", "t", "q")

    assert one.id == two.id
    assert len({one.id, elsewhere.id, other_kind.id}) == 3
    assert (two.message, two.error.message, two.job, two.task, two.count) == ("no #", "no 2", "j2", "other", 1)


def test_a_sample_keeps_the_end_of_its_traceback() -> None:
    fault = fault_of(ErrorInfo("E", "m", "x" * 20_000 + "the end"), "j", "t", "q")

    assert len(fault.error.traceback) == 8_000
    assert fault.error.traceback.endswith("the end")
