"""The retry policy: how often, how long between, and for which errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Retry
from laneway.core.instant import FAR
from laneway.core.retry import grow, stored_policy, with_stored


@pytest.mark.parametrize(
    ("policy", "attempt", "error", "allowed"),
    [
        (Retry(), 1, ValueError(), True),
        (Retry(), 5, ValueError(), True),
        (Retry(), 6, ValueError(), False),
        (Retry(times=0), 1, ValueError(), False),
        (Retry(times=1), 1, ValueError(), True),
        (Retry(times=1), 2, ValueError(), False),
        (Retry(), 1, KeyboardInterrupt(), False),
        (Retry(on=(BaseException,)), 1, KeyboardInterrupt(), True),
        (Retry(on=(OSError,)), 1, TimeoutError(), True),
        (Retry(on=(OSError,)), 1, ValueError(), False),
        (Retry(on=()), 1, ValueError(), False),
        (Retry(give_up_on=(KeyError,)), 1, KeyError(), False),
        (Retry(give_up_on=(KeyError,)), 1, IndexError(), True),
        (Retry(on=(LookupError,), give_up_on=(KeyError,)), 1, KeyError(), False),
    ],
)
def test_a_failed_attempt_is_retried_as_the_policy_says(policy: Retry, attempt: int, error: BaseException, allowed: bool) -> None:
    assert policy.allows(attempt, error) is allowed


@pytest.mark.parametrize("name", ["on", "give_up_on"])
def test_one_error_class_may_be_given_without_a_tuple(name: str) -> None:
    loose: dict[str, Any] = {name: ValueError}
    assert getattr(Retry(**loose), name) == (ValueError,)


@pytest.mark.parametrize(("retries", "least"), [(0, 15), (1, 16), (2, 31), (3, 96), (4, 271)])
def test_the_default_wait_grows_with_jitter_on_top(retries: int, least: int) -> None:
    waits = {Retry().delay(retries) for _ in range(50)}
    assert len(waits) > 1
    assert least <= min(waits)
    assert max(waits) <= least + 30 * (retries + 1)


@pytest.mark.parametrize("retries", [25, 133, 134, 1_000, 100_000])
def test_the_default_wait_is_never_refused_however_many_retries(retries: int) -> None:
    assert 0 < Retry(times=10**6).delay(retries) <= FAR
    assert grow(retries) > 0


@pytest.mark.parametrize(
    ("times", "days"),
    [(14, 1), (16, 2), (18, 3), (19, 5), (20, 6), (21, 8), (22, 10), (23, 13), (24, 16), (25, 20)],
)
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_all_retries_together_take_so_many_full_days(
    times: int, days: int, chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: chance)
    assert sum(Retry(times=times).delay(retries) for retries in range(times)) // 86_400 == days


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(backoff=10), [10, 10, 10]),
        (Retry(backoff=0), [0, 0, 0]),
        (Retry(backoff=0.25), [0.25, 0.25, 0.25]),
        (Retry(backoff=lambda retries: 2**retries), [1, 2, 4]),
    ],
)
def test_a_wait_is_seconds_or_a_function_of_the_retries_before(policy: Retry, delays: list[float]) -> None:
    assert [policy.delay(retries) for retries in range(3)] == delays


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"times": -1}, "times=-1.*whole number"),
        ({"times": 1.5}, "times=1.5.*whole number"),
        ({"times": True}, "times=True.*whole number"),
        ({"times": "5"}, "times='5'.*whole number"),
        ({"backoff": -1}, "backoff of -1.*seconds"),
        ({"backoff": math.nan}, "backoff of nan.*seconds"),
        ({"backoff": math.inf}, "backoff of inf.*seconds"),
        ({"backoff": 10**400}, "backoff of 1000.*seconds"),
        ({"backoff": FAR + 1}, "ten years"),
        ({"backoff": "10"}, "backoff of '10'.*seconds"),
        ({"backoff": None}, "backoff of None.*seconds"),
        ({"backoff": True}, "backoff of True.*seconds"),
        ({"on": "ValueError"}, "on='ValueError'.*exception classes"),
        ({"on": (ValueError, 5)}, "on=.*exception classes"),
        ({"give_up_on": int}, "give_up_on=.*exception classes"),
        ({"give_up_on": (ValueError(),)}, "give_up_on=.*exception classes"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Retry(**options)


@pytest.mark.parametrize("answer", [None, "soon", -1, math.nan, math.inf, FAR * 2, True, pytest.param(10**400, id="401 digits")])
def test_a_bad_answer_of_the_users_function_is_named(answer: Any) -> None:
    policy = Retry(backoff=lambda _: answer)
    with pytest.raises(ValueError, match="a backoff of"):
        policy.delay(0)


def test_a_policy_is_a_value() -> None:
    assert Retry(times=3, backoff=1) == Retry(times=3, backoff=1)
    assert hash(Retry(times=3)) == hash(Retry(times=3))
    with pytest.raises(AttributeError):
        Retry().times = 7  # type: ignore[misc]


def test_a_list_names_each_wait_and_the_last_one_stays() -> None:
    policy = Retry(times=9, backoff=[10, 30.5, 60])
    assert [policy.delay(retries) for retries in range(5)] == [10, 30.5, 60, 60, 60]
    assert policy == Retry(times=9, backoff=(10, 30.5, 60))


@pytest.mark.parametrize("backoff", [100, [100, 200], lambda _: 100, grow])
def test_no_wait_is_longer_than_the_longest(backoff: Any) -> None:
    assert {Retry(backoff=backoff, max_delay=9, jitter=0.5).delay(retries) for retries in range(5, 50)} <= {9}


@given(st.floats(0, 1), st.integers(0, 30), st.sampled_from([7, (1, 2, 900), lambda retries: retries]))
def test_jitter_spreads_a_wait_either_way_and_no_further(jitter: float, retries: int, backoff: Any) -> None:
    plain = Retry(backoff=backoff).delay(retries)
    found = [Retry(backoff=backoff, jitter=jitter).delay(retries) for _ in range(20)]
    assert plain * (1 - jitter) * 0.999999 <= min(found)
    assert max(found) <= plain * (1 + jitter) * 1.000001
    assert len(set(found)) > 1 or plain * jitter < 1e-9


def test_jitter_is_as_often_shorter_as_longer() -> None:
    found = [Retry(backoff=100, jitter=0.1).delay(0) for _ in range(2000)]
    assert 90 <= min(found) < 91
    assert 109 < max(found) <= 110
    assert 99 < sum(found) / len(found) < 101


@pytest.mark.parametrize(
    "bad",
    [{"backoff": []}, {"backoff": "10"}, {"backoff": [1, -1]}, {"backoff": [1, None]}, {"max_delay": -1}, {"max_delay": True},
     {"max_delay": "1"}, {"jitter": -0.1}, {"jitter": 1.1}, {"jitter": None}, {"jitter": math.nan}],
)  # fmt: skip
def test_a_wait_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"use |at least one"):
        Retry(**bad)


TASKS = Retry(times=5, backoff=[1, 2], on=(OSError,), max_delay=7, jitter=0.2)


@pytest.mark.parametrize(
    ("policy", "meant"),
    [
        (Retry(times=2), replace(TASKS, times=2)),
        (Retry(times=2, backoff=9), replace(TASKS, times=2, backoff=9, max_delay=None, jitter=0.0)),
        (Retry(times=2, backoff=[3, 4]), replace(TASKS, times=2, backoff=(3, 4), max_delay=None, jitter=0.0)),
        (Retry(times=2, jitter=0.5), replace(TASKS, times=2, max_delay=None, jitter=0.5)),
        (Retry(times=2, backoff=9, max_delay=3), replace(TASKS, times=2, backoff=9, max_delay=3, jitter=0.0)),
    ],
)
def test_a_policy_that_is_stored_with_a_job_stands_for_its_tasks(policy: Retry, meant: Retry) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(stored_policy(policy)))
    assert with_stored(TASKS, stored) == meant


def test_what_earlier_versions_stored_is_read() -> None:
    assert with_stored(TASKS, [3, None]) == replace(TASKS, times=3)
    assert with_stored(TASKS, [3, 60]) == replace(TASKS, times=3, backoff=60, max_delay=None, jitter=0.0)


@pytest.mark.parametrize("stored", [[], [1], [1, 2, 3], [1, "x"], ["1", 2], [1, 2, 3, 4, 5], [1, None, "x", 0.1]])
def test_what_was_stored_by_somebody_else_is_an_error(stored: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        with_stored(TASKS, stored)
