"""Fetching and judging, as tables and properties: pure, so nothing here waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Cancel, Retry, RetryIn, Snooze
from laneway.core.instant import SECOND
from laneway.core.job import Claim, Unit
from laneway.core.outcome import Cancelled, Dead, Retrying, Snoozed
from laneway.worker.prefetch import MOST_UNSETTLED, MOST_WAITING, SHORT, WAITING, Prefetch
from laneway.worker.verdicts import UNKNOWN_FOR, judge, unknown

QUEUES = st.lists(st.sampled_from("abcdefgh"), unique=True)
LOADS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1000))
ERROR = ValueError("no such user")

# -- pace --------------------------------------------------------------------------------------------------------


def test_a_new_worker_is_careful_until_it_has_measured() -> None:
    pace = Prefetch(10)

    assert pace.mean == WAITING
    assert pace.unsettled == 10
    assert pace.ahead == 1


@pytest.mark.parametrize(
    ("seconds", "unsettled", "ahead"),
    [
        (0.0, MOST_UNSETTLED, MOST_WAITING),
        (0.00002, 50, MOST_WAITING),
        (0.0001, 20, MOST_WAITING),
        (0.0009, 20, 55),
        (SHORT, 10, 50),
        (0.01, 10, 5),
        (0.0501, 10, 0),
        (3600.0, 10, 0),
    ],
)
def test_what_follows_from_how_long_jobs_take(seconds: float, unsettled: int, ahead: int) -> None:
    pace = Prefetch(10)

    pace.measured(10 * seconds, 10)

    assert pace.unsettled == unsettled
    assert pace.ahead == ahead


def test_a_measure_of_nothing_changes_nothing() -> None:
    pace = Prefetch(1)

    pace.measured(0.0, 0)

    assert pace.mean == WAITING


def test_five_jobs_together_say_all_about_the_pace_and_one_a_fifth() -> None:
    many, one = Prefetch(1), Prefetch(1)

    many.measured(5.0, 5)
    one.measured(1.05, 1)

    assert many.mean == pytest.approx(1.0)
    assert one.mean == pytest.approx(WAITING + 0.2)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 500)), max_size=30), st.integers(1, 1000))
def test_the_mean_stays_within_what_was_measured_and_the_limits_hold(measures: list[tuple[float, int]], slots: int) -> None:
    pace = Prefetch(slots)

    for seconds, jobs in measures:
        pace.measured(seconds, jobs)

    each = [seconds / jobs for seconds, jobs in measures if jobs] + [WAITING]
    assert min(each) * (1 - 1e-9) - 1e-12 <= pace.mean <= max(each) * (1 + 1e-9)
    assert pace.unsettled == slots or 2 * slots <= pace.unsettled <= max(2 * slots, MOST_UNSETTLED)
    assert 0 <= pace.ahead <= MOST_WAITING
    assert pace.ahead * pace.mean <= WAITING + 1e-9


@given(st.floats(0.0005, 10))
def test_the_mean_follows_the_jobs_within_a_few_measures(seconds: float) -> None:
    pace = Prefetch(1)

    for _ in range(60):
        pace.measured(seconds, 1)

    assert pace.mean == pytest.approx(seconds, rel=0.01)


# -- judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "attempt", "error", "outcome"),
    [
        (Retry(times=2, backoff=7), 1, ERROR, (Retrying, 7)),
        (Retry(times=2, backoff=7), 2, ERROR, (Retrying, 7)),
        (Retry(times=2, backoff=7), 3, ERROR, (Dead, None)),
        (Retry(times=2, backoff=lambda retries: 10**retries), 1, ERROR, (Retrying, 1)),
        (Retry(times=2, backoff=lambda retries: 10**retries), 2, ERROR, (Retrying, 10)),
        (Retry(times=0), 1, ERROR, (Dead, None)),
        (Retry(times=2, on=(KeyError,)), 1, ERROR, (Dead, None)),
        (Retry(times=2, backoff=1, on=(LookupError,)), 1, KeyError("a"), (Retrying, 1)),
        (Retry(times=2, give_up_on=(ValueError,)), 1, ERROR, (Dead, None)),
        (Retry(times=2, backoff=1), 1, KeyboardInterrupt(), (Dead, None)),
        (Retry(times=2, backoff=1, on=(BaseException,)), 1, SystemExit(3), (Retrying, 1)),
        (Retry(times=0), 1, Snooze(30), (Snoozed, 30)),
        (Retry(times=0), 99, Snooze(0), (Snoozed, 0)),
        (Retry(times=2, give_up_on=(Exception,)), 1, Snooze(0.5), (Snoozed, 0.5)),
        (Retry(times=2), 2, RetryIn(60), (Retrying, 60)),
        (Retry(times=2), 3, RetryIn(60), (Dead, None)),
        (Retry(times=0), 1, RetryIn(60), (Dead, None)),
    ],
)
def test_what_a_failed_run_means(policy: Retry, attempt: int, error: BaseException, outcome: tuple[type, float | None]) -> None:
    kind, seconds = outcome

    found = judge(policy, attempt, error)

    assert type(found) is kind
    if isinstance(found, Retrying | Snoozed):
        assert seconds is not None
        assert found.after == seconds * SECOND
    if isinstance(found, Retrying | Dead):
        assert found.error.kind.endswith(type(error).__qualname__)
        assert found.error.message == str(error)


def test_a_cancel_keeps_its_reason() -> None:
    assert judge(Retry(), 1, Cancel("sold out")) == Cancelled("sold out")


def boom(_: int) -> float:
    raise LookupError("no such table")


@pytest.mark.parametrize(
    ("backoff", "kind"),
    [
        (boom, "LookupError"),
        (lambda _: -1, "ValueError"),
        (lambda _: math.nan, "ValueError"),
        (lambda _: "soon", "ValueError"),
        (lambda _: None, "ValueError"),
        (lambda _: 1e300, "ValueError"),
        (lambda: 1, "TypeError"),
    ],
)
def test_a_backoff_that_cannot_be_used_gives_the_job_up_and_says_why(backoff: object, kind: str) -> None:
    found = judge(Retry(times=3, backoff=backoff), 1, ERROR)  # type: ignore[arg-type]

    assert isinstance(found, Dead)
    assert found.error.kind == kind


class Forgetful(Snooze):
    """A user's own, that never tells its base for how long."""

    def __init__(self) -> None:
        Exception.__init__(self, "later")


class ForgetfulRetry(RetryIn):
    def __init__(self) -> None:
        Exception.__init__(self, "later")


def changed(error: Snooze | RetryIn, seconds: object) -> BaseException:
    error.seconds = seconds  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    "error", [Forgetful(), ForgetfulRetry(), changed(Snooze(1), math.nan), changed(RetryIn(1), "soon"), changed(Snooze(1), -5)]
)
def test_a_snooze_without_a_usable_time_gives_the_job_up(error: BaseException) -> None:
    assert isinstance(judge(Retry(times=3), 1, error), Dead)


# -- unknown tasks -----------------------------------------------------------------------------------------------

PLACE = 1_000_000 * SECOND


@pytest.mark.parametrize(
    ("age", "wait"),
    [(-50.0, 1.0), (0.0, 1.0), (0.5, 1.0), (2.0, 2.0), (100.0, 100.0), (299.0, 299.0), (301.0, 300.0), (3600.0, 300.0)],
)
def test_an_unknown_task_is_put_back_for_longer_each_time(age: float, wait: float) -> None:
    claim = Claim(1, "default", "mail", (Unit("a", None, 1, 0, PLACE + round(age * SECOND), PLACE),))

    assert unknown(claim) == Snoozed(round(wait * SECOND))


def test_an_unknown_task_is_dead_after_an_hour() -> None:
    claim = Claim(1, "default", "mail", (Unit("a", None, 1, 0, PLACE + UNKNOWN_FOR + 1, PLACE),))

    found = unknown(claim)

    assert isinstance(found, Dead)
    assert found.error.kind == "unknown task"
    assert '"mail"' in found.error.message


def test_short_jobs_beside_long_ones_are_not_claimed_ahead_as_if_all_were_short() -> None:
    pace = Prefetch(25)
    pace.measured(0.0005, 100)
    assert pace.short
    assert pace.ahead == MOST_WAITING

    pace.has_longest(0.5)

    assert not pace.short
    assert (pace.ahead, pace.unsettled, pace.share) == (0, 25, 1)

    pace.has_longest(0.0)
    assert pace.short

    pace.is_at_least(0.1)
    assert not pace.short
    assert (pace.ahead, pace.unsettled) == (0, 25)
