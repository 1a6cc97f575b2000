"""The retry policy: how often, how long between, and for which errors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from laneway import Retry
from laneway.core.instant import FAR
from laneway.core.retry import grow


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
