"""Learning what computes and what waits: as tables, properties, and with figures as real threads gave them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.worker.shares.learn import Kind, Learner, Seen, kind_of_queue, merge

SEEN = st.dictionaries(
    st.sampled_from(["resize", "send"]), st.tuples(*[st.integers(0, 1000).map(float)] * 6), max_size=2
)  # fmt: skip


def one_second(learner: Learner, crowd: Mapping[str, tuple[int, float, float]], busy: float, speed: float = 1.0) -> None:
    """Let a second pass in which each task had so many threads, each in runs of so many seconds, so much of them on the CPU."""
    for task, (threads, seconds, used) in crowd.items():
        for _ in range(max(int(threads / seconds), threads)):
            learner.ran(task, seconds, seconds * used, seconds * busy)
    learner.second(busy, [task for task, (threads, *_) in crowd.items() for _ in range(threads)], speed)


@pytest.mark.parametrize(
    ("crowd", "busy", "speed", "kinds"),
    [
        ({"loop": (1, 0.01, 0.98)}, 0.98, 1.0, {"loop": "cpu"}),
        ({"loop": (5, 0.04, 0.19)}, 0.97, 1.0, {"loop": "cpu"}),
        ({"loop": (25, 0.2, 0.04)}, 1.0, 1.0, {"loop": "cpu"}),
        ({"hash": (1, 0.003, 0.98)}, 0.98, 1.0, {"hash": "cpu"}),
        ({"hash": (25, 0.04, 0.08)}, 1.98, 1.0, {"hash": "cpu"}),  # it lets go of the interpreter: both cores are taken
        ({"sleep": (1, 0.05, 0.001)}, 0.001, 1.0, {"sleep": "io"}),
        ({"sleep": (25, 0.05, 0.0005)}, 0.01, 1.0, {"sleep": "io"}),
        ({"call": (25, 0.05, 0.01)}, 0.25, 1.0, {"call": "io"}),
        ({"partly": (1, 0.02, 0.3)}, 0.3, 1.0, {"partly": "io"}),
        ({"loop": (12, 0.1, 0.083), "sleep": (13, 0.05, 0.002)}, 1.0, 1.0, {"loop": "cpu", "sleep": "io"}),
        ({"loop": (24, 0.2, 0.041), "sleep": (1, 0.1, 0.002)}, 1.0, 1.0, {"loop": "cpu", "sleep": "io"}),
        ({"loop": (1, 0.01, 0.97), "sleep": (24, 0.05, 0.001)}, 1.0, 1.0, {"loop": "cpu", "sleep": "io"}),
        # others want the cores too
        ({"loop": (1, 0.02, 0.47)}, 0.47, 0.46, {"loop": "cpu"}),
        ({"loop": (25, 0.4, 0.02)}, 0.5, 0.06, {"loop": "cpu"}),
        ({"loop": (1, 0.01, 0.7), "sleep": (24, 0.05, 0.001)}, 0.72, 0.68, {"loop": "cpu", "sleep": "io"}),
        ({"partly": (1, 0.02, 0.23)}, 0.23, 0.6, {"partly": "io"}),
        ({"call": (25, 0.05, 0.01)}, 0.26, 0.41, {"call": "io"}),
        ({"call": (25, 0.05, 0.03)}, 0.8, 1.0, {}),  # who shares what is there equally shows nothing, unless it is all there is
    ],
)
def test_what_computes_and_what_waits_is_told_apart_however_many_run(
    crowd: dict[str, tuple[int, float, float]], busy: float, speed: float, kinds: dict[str, Kind]
) -> None:
    learner = Learner()

    for _ in range(4):
        one_second(learner, crowd, busy, speed)

    assert learner.kinds == kinds


def test_what_was_seen_at_leisure_counts_more_than_what_was_seen_in_a_crowd() -> None:
    learner = Learner()
    said: list[Kind] = []

    for crowd, busy, seconds in (((25, 0.2, 0.04), 1.0, 20), ((1, 0.02, 0.3), 0.3, 2), ((25, 0.2, 0.04), 1.0, 300)):
        for _ in range(seconds):
            one_second(learner, {"partly": crowd}, busy)
        said.append(learner.kinds["partly"])

    # Many of it fill the interpreter, so it is taken for one that computes; then it runs alone, and is known from then on.
    assert said == ["cpu", "io", "io"]


def test_beside_one_that_computes_it_shows_who_waits() -> None:
    learner = Learner()
    for _ in range(5):
        one_second(learner, {"loop": (5, 0.1, 0.1), "partly": (20, 0.2, 0.025)}, 1.0)

    for _ in range(10):
        one_second(learner, {"loop": (1, 0.02, 0.8), "partly": (1, 0.02, 0.17)}, 1.0)

    assert learner.kinds == {"loop": "cpu", "partly": "io"}


def test_runs_that_began_in_a_crowd_say_nothing_when_the_crowd_has_gone() -> None:
    learner = Learner()
    for _ in range(3):
        one_second(learner, {"loop": (25, 2.5, 0.04)}, 1.0)

    for _ in range(25):
        learner.ran("loop", 2.5, 0.1, 2.5)
    learner.second(0.3, ["loop"])

    assert learner.kinds == {"loop": "cpu"}


def test_it_takes_a_few_runs_to_know() -> None:
    learner = Learner()
    learner.second(0.0, [])

    for _ in range(4):
        learner.ran("send", 0.2, 0.001, 0.002)
    learner.second(0.01, ["send"])
    assert learner.kinds == {}

    learner.ran("send", 0.2, 0.001, 0.002)
    learner.second(0.01, ["send"])
    assert learner.kinds == {"send": "io"}


def test_runs_too_short_for_the_clocks_say_nothing() -> None:
    learner = Learner()
    learner.second(0.0, [])

    for _ in range(100):
        learner.ran("nothing", 0.000001, 0.000001, 0.000001)
    learner.second(0.1, [])

    assert learner.kinds == {}


def test_a_clock_that_was_set_back_says_nothing() -> None:
    learner = Learner()
    learner.second(0.0, [])

    for _ in range(100):
        learner.ran("send", -5.0, 0.1, 0.1)
    learner.second(0.1, [])

    assert learner.news() == {}


@pytest.mark.parametrize("known", [False, True])
def test_a_task_between_the_two_stays_what_it_was(known: bool) -> None:
    learner = Learner({"odd": (200.0, 10.0, 9.0, 0.0, 0.0, 0.0)} if known else None)

    for _ in range(20):
        one_second(learner, {"odd": (1, 0.02, 0.58)}, 0.58)

    assert learner.kinds == {"odd": "cpu" if known else "io"}


def test_a_task_that_changes_is_seen_to_have_changed() -> None:
    learner = Learner({"send": (10_000.0, 500.0, 1.0, 0.0, 0.0, 0.0)})
    assert learner.kinds == {"send": "io"}

    for _ in range(20):
        one_second(learner, {"send": (1, 0.02, 0.97)}, 0.97)

    assert learner.kinds == {"send": "cpu"}


def test_what_was_learned_survives_as_plain_numbers_and_news_are_told_once() -> None:
    first = Learner()
    for _ in range(3):
        one_second(first, {"loop": (12, 0.1, 0.083), "sleep": (13, 0.05, 0.002)}, 1.0)

    stored = merge({}, first.news())

    assert Learner(stored).kinds == first.kinds == {"loop": "cpu", "sleep": "io"}
    assert first.news() == {}


@given(SEEN, SEEN, SEEN)
def test_merging_is_in_any_order(one: dict[str, Seen], other: dict[str, Seen], third: dict[str, Seen]) -> None:
    assert merge(one, other) == merge(other, one)
    assert merge(merge(one, other), third) == merge(one, merge(other, third)) == merge(third, one, other)
    assert merge(one, {}) == one


@given(SEEN)
def test_whatever_is_stored_can_be_begun_with(known: dict[str, Seen]) -> None:
    assert set(Learner(known).kinds) <= set(known)


@pytest.mark.parametrize(
    ("queue", "tasks", "kind"),
    [
        ("mail-io", {}, "io"),
        ("mail-io", {"resize": 9.0}, "io"),
        ("mail", {}, None),
        ("mail", {"new": 5.0}, None),
        ("mail", {"send": 5.0}, "io"),
        ("mail", {"send": 5.0, "resize": 5.0}, "io"),
        ("mail", {"send": 1.0, "resize": 5.0}, None),
        ("mail", {"resize": 5.0}, "cpu"),
        ("mail", {"resize": 99.0, "send": 1.0}, "cpu"),
        ("mail", {"resize": 5.0, "new": 5.0}, None),
    ],
)
def test_what_a_queue_is_like(queue: str, tasks: dict[str, float], kind: Kind | None) -> None:
    assert kind_of_queue(queue, tasks, {"send": "io", "resize": "cpu"}) == kind


def test_runs_that_come_at_once_in_a_second_with_time_left_are_a_crowd() -> None:
    learner = Learner()

    for _ in range(3):  # two at a time for a third of the second, beside others that only wait
        for _ in range(13):
            learner.ran("loop", 0.05, 0.022, 0.047)
        for _ in range(25):
            learner.ran("sleep", 0.5, 0.0001, 0.25)
        learner.second(0.5, ["sleep"] * 25)

    assert learner.kinds == {"loop": "cpu", "sleep": "io"}


@pytest.mark.parametrize("seen_now", [0, 1, 2, 24])
def test_a_crowd_whose_runs_have_just_ended_together_is_one(seen_now: int) -> None:
    learner = Learner()
    learner.second(1.0, [], 0.3)

    for _ in range(3):  # 25 at a time, each 15 ms of the 375 ms that a round takes; the second ends between two rounds
        for _ in range(66):
            learner.ran("loop", 0.375, 0.015, 0.375)
        learner.second(1.0, ["loop"] * seen_now, 0.3)

    assert learner.kinds == {"loop": "cpu"}


def test_one_long_run_after_the_other_is_no_crowd() -> None:
    learner = Learner()

    for _ in range(8):
        learner.second(0.1, ["send"])
        learner.second(0.1, ["send"])
        learner.ran("send", 2.5, 0.02, 0.3)
        learner.second(0.1, ["send"])

    assert learner.kinds == {"send": "io"}
