"""Instants and durations: what `run_after=` may be, and what it becomes."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.clock import now_micros
from laneway.core.instant import FAR, as_datetime, micros, parse_when

FAR_EAST = timezone(timedelta(hours=14))
FAR_WEST = timezone(timedelta(hours=-12))


def test_now_is_this_machines_time_in_microseconds() -> None:
    before = time.time_ns() // 1000
    now = now_micros()
    assert before <= now <= time.time_ns() // 1000


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, 0), (1, 1_000_000), (0.1, 100_000), (1e-6, 1), (1e-7, 0), (-1.5, -1_500_000)]
)
def test_seconds_become_whole_microseconds(seconds: float, expected: int) -> None:
    assert micros(seconds) == expected
    assert isinstance(micros(seconds), int)


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))
def test_a_moment_survives_the_way_through_microseconds(moment: datetime) -> None:
    instant = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert as_datetime(instant) == moment
    assert as_datetime(instant).utcoffset() == timedelta(0)


@given(st.floats(min_value=0, max_value=FAR))
def test_seconds_are_a_delay_from_the_stores_now(seconds: float) -> None:
    assert parse_when(seconds, now_micros()) == (micros(seconds), 0)


@pytest.mark.parametrize(
    ("when", "delay"),
    [
        (60, 60_000_000),
        (0.5, 500_000),
        (timedelta(minutes=5), 300_000_000),
        (timedelta(microseconds=1), 1),
        (FAR, FAR * 1_000_000),
        (0, 0),
        (-5, 0),
        (timedelta(days=-1), 0),
    ],
)
def test_a_duration_is_a_delay_and_one_in_the_past_is_none(when: object, delay: int) -> None:
    assert parse_when(when, now_micros()) == (delay, 0)


@pytest.mark.parametrize("zone", [UTC, FAR_EAST, FAR_WEST])
def test_a_moment_is_absolute_whatever_its_zone(zone: timezone) -> None:
    moment = datetime(2020, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
    assert parse_when(moment.astimezone(zone), now_micros()) == (0, 1_582_979_400_123_456)


@pytest.mark.parametrize(
    "moment",
    [datetime(1969, 12, 31, tzinfo=UTC), datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=FAR_EAST)],
)
def test_a_moment_before_the_epoch_is_now(moment: datetime) -> None:
    assert parse_when(moment, now_micros()) == (0, 0)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (datetime(2030, 1, 1), "no time zone.*datetime.now\\(UTC\\)"),
        (datetime.max.replace(tzinfo=UTC), "more than ten years"),
        (datetime.max.replace(tzinfo=FAR_WEST), "more than ten years"),
        (timedelta.max, "more than ten years"),
        (FAR + 1, "counted in seconds"),
        (1_700_000_000_000, "a time stamp in milliseconds"),  # a time stamp in milliseconds
        (1_700_000_000, "time stamp.*fromtimestamp"),
        (1_700_000_000.5, "time stamp.*fromtimestamp"),
        (math.inf, "inf"),
        pytest.param(10**400, "ten years", id="401 digits"),
        (True, "not a time: use seconds, a timedelta or an aware datetime"),
        ("60", "not a time: use seconds, a timedelta or an aware datetime"),
        (None, "not a time: use seconds, a timedelta or an aware datetime"),
    ],
)
def test_what_nobody_means_is_refused_with_what_to_give_instead(when: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_when(when, now_micros())


@pytest.mark.parametrize("when", [math.nan, -math.inf])
def test_what_is_no_duration_is_not_called_a_long_one(when: float) -> None:
    with pytest.raises(ValueError, match=r"nan|inf") as caught:
        parse_when(when, now_micros())
    assert "ten years" not in str(caught.value)
