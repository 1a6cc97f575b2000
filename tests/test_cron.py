"""Schedules as pure values: which occurrences there are, and which are made up for."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import App
from laneway.core.cron import Schedule, missed, read_schedule
from laneway.core.instant import SECOND, as_datetime
from laneway.errors import DeclarationError

PARIS = ZoneInfo("Europe/Paris")


def micros(*when: int, zone: Any = PARIS, fold: int = 0) -> int:
    return round(datetime(*when, tzinfo=zone, fold=fold).timestamp()) * SECOND  # type: ignore[misc,arg-type]


def occurrences(expression: str, after: int, number: int, timezone: str = "Europe/Paris") -> list[str]:
    found = islice(read_schedule(expression, timezone).occurrences(after), number)
    return [f"{as_datetime(occurrence).astimezone(ZoneInfo(timezone)):%d. %H:%M:%S%z}" for occurrence in found]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 3 * * *", ["02. 03:00:00+0100", "03. 03:00:00+0100"]),
        ("*/20 * * * *", ["01. 12:20:00+0100", "01. 12:40:00+0100"]),
        ("*/20 * * * * *", ["01. 12:00:20+0100", "01. 12:00:40+0100"]),
        ("@daily", ["02. 00:00:00+0100", "03. 00:00:00+0100"]),
        (" @Hourly ", ["01. 13:00:00+0100", "01. 14:00:00+0100"]),
        ("0 9 * * mon", ["05. 09:00:00+0100", "12. 09:00:00+0100"]),
    ],
)
def test_a_cron_expression_has_its_occurrences_in_its_time_zone(expression: str, said: list[str]) -> None:
    assert occurrences(expression, micros(2026, 1, 1, 12), 2) == said


def test_the_hour_that_is_skipped_in_spring() -> None:
    before = micros(2026, 3, 28, 12)
    assert occurrences("30 2 * * *", before, 2) == ["29. 03:00:00+0200", "30. 02:30:00+0200"]
    assert occurrences("30 * * * *", micros(2026, 3, 29, 1), 3) == ["29. 01:30:00+0100", "29. 03:30:00+0200", "29. 04:30:00+0200"]


def test_the_hour_that_comes_twice_in_autumn() -> None:
    assert occurrences("30 2 * * *", micros(2026, 10, 24, 12), 2) == ["25. 02:30:00+0200", "26. 02:30:00+0100"]
    assert occurrences("30 * * * *", micros(2026, 10, 25, 1, 59), 3) == [
        "25. 02:30:00+0200",
        "25. 02:30:00+0100",
        "25. 03:30:00+0100",
    ]


def test_an_interval_has_the_same_occurrences_for_everybody() -> None:
    every = read_schedule(timedelta(minutes=5))
    assert [occurrence // SECOND for occurrence in islice(every.occurrences(1_000 * SECOND), 3)] == [1200, 1500, 1800]
    assert every.last(1_200 * SECOND) == 1_200 * SECOND


@pytest.mark.parametrize(
    "schedule", [Schedule(every=7 * SECOND), read_schedule("*/7 * * * * *"), read_schedule("5 4 * * *", "Europe/Paris")]
)
@given(st.integers(0, 60_000_000), st.integers(0, 500_000))
def test_occurrences_go_up_and_the_last_one_is_the_one_before_the_next(schedule: Schedule, start: int, more: int) -> None:
    now = (1_700_000_000 + start) * SECOND + more
    first, second = islice(schedule.occurrences(now), 2)
    assert now < first < second
    last = schedule.last(now)
    assert last is not None
    assert last <= now
    assert next(schedule.occurrences(last)) == first
    assert schedule.last(first) == first


@given(st.integers(0, 100), st.integers(0, 300))
def test_what_is_made_up_for(last: int, passed: int) -> None:
    every = Schedule(every=10 * SECOND)
    now = last + passed
    all_of_them = [occurrence for occurrence in range(10, 500, 10) if last < occurrence <= now]
    said = {
        policy: [occurrence // SECOND for occurrence in missed(every, last * SECOND, now * SECOND, policy)]
        for policy in ("one", "all", "none")
    }
    assert said == {"one": all_of_them[-1:], "all": all_of_them, "none": []}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "61 * * * *"}, "bad minute"),
        ({"schedule": "* * *"}, "wrong number of fields"),
        ({"schedule": "0 0 31 2 *"}, "bad day-of-month|never comes"),
        ({"schedule": "@dayly"}, 'Did you mean "@daily"'),
        ({"schedule": 5}, "is not a schedule"),
        ({"schedule": timedelta(milliseconds=10)}, "at least a second"),
        ({"schedule": timedelta(days=36_500)}, "at most ten years"),
        ({"schedule": timedelta(minutes=1), "timezone": "Europe/Paris"}, "an interval has none"),
        ({"schedule": "@daily", "timezone": "Europe/Pariss"}, 'Did you mean "Europe/Paris"'),
        ({"schedule": "@daily", "timezone": 5}, "is not a time zone"),
        ({"timezone": "Europe/Paris"}, "goes with schedule="),
        ({"schedule": "@daily", "catch_up": "some"}, "use one of 'one', 'all', 'none'"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_it_is_declared(app: App, options: Any, said: str) -> None:
    with pytest.raises((DeclarationError, TypeError), match=said):

        @app.task(**options)
        def work() -> None: ...


def test_a_task_with_a_schedule_runs_without_arguments(app: App) -> None:
    with pytest.raises(DeclarationError, match="give all its parameters defaults"):

        @app.task(schedule="@daily")
        def work(order: int) -> None: ...

    @app.task(schedule="@daily")
    def fine(order: int = 1) -> None: ...

    assert fine.schedule == Schedule(expression="0 0 * * *")


def test_a_slot_in_utc_is_the_same_instant_everywhere() -> None:
    occurrence = next(read_schedule("0 3 * * *").occurrences(micros(2026, 1, 1, zone=UTC)))
    assert as_datetime(occurrence) == datetime(2026, 1, 1, 3, tzinfo=UTC)


# -- without time zone data --------------------------------------------------------------------------------------

BARE = """
import sys
sys.modules["tzdata"] = None  # as if it were not installed
from itertools import islice
from laneway import App
from laneway.errors import DeclarationError
from laneway.core.instant import SECOND, as_datetime

app = App("sqlite://")
try:
    task = app.task(name="report", schedule="0 3 * * *", **({"timezone": sys.argv[1]} if sys.argv[1:] else {}))(lambda: None)
except DeclarationError as error:
    sys.exit(str(error))
after = 1_767_268_800 * SECOND  # noon of the first of January 2026
print(*(as_datetime(at).isoformat() for at in (task.schedule.last(after), *islice(task.schedule.occurrences(after), 2))))
"""


def without_zones(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Declare a schedule where neither the system nor a package has time zones."""
    return subprocess.run(
        [sys.executable, "-c", BARE, *arguments],
        env={"PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("UTC",), ("Etc/UTC",)])
def test_utc_needs_no_time_zone_data(arguments: tuple[str, ...]) -> None:
    ran = without_zones(*arguments)
    assert ran.stdout.split() == ["2026-01-01T03:00:00+00:00", "2026-01-02T03:00:00+00:00", "2026-01-03T03:00:00+00:00"], (
        ran.stderr
    )


def test_without_time_zone_data_another_zone_is_an_error_that_says_what_to_install() -> None:
    ran = without_zones("Europe/Paris")
    assert ran.returncode == 1
    assert "timezone='Europe/Paris': Python finds no time zone data here. Install it: pip install tzdata" in ran.stderr
