"""Dispatch policies: pure choices, tested as tables and properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.errors import ConfigError, LanewayError
from laneway.pool import Dispatch, LeastBusyFirst, RoundRobin, Shared, Topic, UnknownTopic, WorkerPool

LOADS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(st.integers(1, 50))
def test_a_shared_line_has_all_workers(size: int) -> None:
    assert list(Shared().lines(size)) == [size]


@given(st.integers(0), LOADS)
def test_the_least_busy_has_no_more_than_any_other_and_is_the_first_of_those(number: int, loads: list[int]) -> None:
    chosen = LeastBusyFirst().choose(number, loads, None)

    assert all(loads[chosen] <= load for load in loads)
    assert all(loads[chosen] < load for load in loads[:chosen])


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(0, 100))
def test_round_robin_is_fair_to_one_from_any_moment_on(start: int, size: int, jobs: int) -> None:
    turns = Counter(RoundRobin().choose(start + number, [0] * size, None) for number in range(jobs))
    assert max(turns[worker] for worker in range(size)) - min(turns[worker] for worker in range(size)) <= 1


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 9), min_size=1, max_size=6))
def test_every_topic_has_a_line_of_its_own_with_its_workers(topics: dict[str, int]) -> None:
    policy = Topic(topics)
    sizes = policy.lines(sum(topics.values()))

    chosen = {topic: policy.choose(0, [0] * len(topics), topic) for topic in topics}

    assert sorted(chosen.values()) == list(range(len(topics)))
    assert {topic: sizes[line] for topic, line in chosen.items()} == topics


@given(st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True), st.integers(0, 20))
def test_topics_without_numbers_are_dealt_evenly(topics: list[str], more: int) -> None:
    size = len(topics) + more
    sizes = Topic(topics).lines(size)

    assert sum(sizes) == size
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("topic", "said"), [("mial", 'Did you mean "mail"'), (None, "using(topic=...)"), ("x", "mail, img")])
def test_an_unknown_topic_is_an_error_that_says_what_is_known(topic: str | None, said: str) -> None:
    with WorkerPool(2, dispatch=Topic(["mail", "img"])) as pool, pytest.raises(UnknownTopic) as caught:
        pool.using(topic=topic).submit(print)

    assert said in str(caught.value)
    assert caught.value.topic == topic
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("size", "topics"),
    [(4, {"mail": 3}), (2, {"mail": 2, "img": 1}), (2, {"mail": 2, "img": 0}), (1, ["mail", "img"]), (3, {"a": 4, "b": -1})],
)
def test_topics_that_do_not_add_up_to_the_pool_are_an_error(size: int, topics: dict[str, int] | list[str]) -> None:
    with pytest.raises(ConfigError, match=f"{size} workers"):
        WorkerPool(size, dispatch=Topic(topics))


@pytest.mark.parametrize("topics", [[], {}, "mail", ["a", "a"], [1]])
def test_topics_that_are_no_names_are_an_error(topics: list[str]) -> None:
    with pytest.raises(ConfigError, match="topics"):
        Topic(topics)


class Sized(Dispatch):
    def __init__(self, sizes: list[int], choice: int = 0) -> None:
        self.sizes = sizes
        self.choice = choice

    def lines(self, size: int) -> Sequence[int]:
        return self.sizes

    def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
        return self.choice


@pytest.mark.parametrize("sizes", [[], [1], [3, 0], [4, -1], [2, 2]])
def test_a_policy_that_does_not_deal_all_workers_is_an_error(sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"Sized\.lines\(3\)"):
        WorkerPool(3, dispatch=Sized(sizes))


@pytest.mark.parametrize("choice", [-1, 2])
def test_a_policy_that_chooses_a_line_that_is_not_there_is_an_error_of_the_caller(choice: int) -> None:
    with WorkerPool(3, dispatch=Sized([1, 2], choice)) as pool, pytest.raises(ConfigError, match="Sized chose line"):
        pool.submit(print)


def test_a_policy_of_ones_own_needs_one_method() -> None:
    class Last(Dispatch):
        def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
            return len(loads) - 1

    with WorkerPool(3, dispatch=Last()) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]

    assert [stats.done for stats in pool.stats().values()] == [0, 0, 2]


def test_a_policy_that_fails_fails_the_caller_and_nobody_else() -> None:
    class Picky(Dispatch):
        def choose(self, number: int, loads: Sequence[int], topic: str | None) -> int:
            if topic is None:
                raise LanewayError("no")
            return 0

    with WorkerPool(2, dispatch=Picky()) as pool:
        with pytest.raises(LanewayError, match="no"):
            pool.submit(abs, -1)
        assert pool.using(topic="a").submit(abs, -2).result() == 2


@pytest.mark.parametrize("topics", [{"a": "1", "b": 1}, {"a": 1.0, "b": 1}, {"a": True, "b": 1}, None, 3, [["a"]]])
def test_topics_of_another_shape_are_told(topics: Any) -> None:
    with pytest.raises(ConfigError, match=r"whole number|different names"):
        Topic(topics)
