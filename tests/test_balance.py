"""Balancing, as tables and properties, and as a worker without a store: pure, so nothing here waits."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.errors import ConfigError
from laneway.store.contract import ClaimRequest
from laneway.worker.balance import Policy, adaptive, check, even, smoothed_loads, strict, weighted
from laneway.worker.prefetch import SHORT, Prefetch
from laneway.worker.shares.fair import Balance, QueueShare, deal, expected, first_to_run

LOADS = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e-io", "f-io", "g-io"]), st.integers(0, 100_000))
SOME_LOADS = LOADS.filter(bool)
WEIGHTS = {f"q{number}": number + 1 for number in range(10)}
IDLE = [f"idle{number}" for number in range(40)]

# -- policies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "loads", "shares"),
    [
        (25, [50_000, 2_000, 500, 340], [21, 2, 1, 1]),
        (25, [], []),
        (25, [100], [25]),
        (25, [100, 100], [12, 13]),
        (25, [100, 200], [9, 16]),
        (25, [95, 95, 110], [8, 8, 9]),
        (25, [100, 100, 200, 200], [4, 4, 8, 9]),
        (25, [100, 100, 200, 201], [4, 4, 8, 9]),
        (5, [6, 6, 8], [1, 2, 2]),  # 0.6 and 0.6 and 0.8 of two: three, so the one that was rounded up most gives its back
        (12, [7, 7, 7, 7, 7], [2, 2, 2, 3, 3]),
        (25, [7, 0], [24, 1]),
        (4, [0, 0], [2, 2]),
        (3, [5, 5, 5], [1, 1, 1]),
        (2, [5, 9, 7], [0, 1, 1]),
        (0, [5, 9], [0, 0]),
    ],
)
def test_adaptive_deals_one_each_and_the_rest_by_load(slots: int, loads: list[int], shares: list[int]) -> None:
    names = [f"q{number}" for number in range(len(loads))]

    assert adaptive(slots, dict(zip(names, loads, strict=True))) == dict(zip(names, shares, strict=True))


@pytest.mark.parametrize(
    ("loads", "io", "shares"),
    [
        ({"img": 9000, "mail-io": 10, "web-io": 30}, None, {"img": 1, "mail-io": 6, "web-io": 18}),
        ({"img": 9000, "mail": 10, "web": 30}, ["mail", "web", "gone"], {"img": 1, "mail": 6, "web": 18}),
        ({"mail-io": 10, "img": 30}, [], {"mail-io": 7, "img": 18}),
        ({"img": 9000, "mail-io": 0}, None, {"img": 1, "mail-io": 24}),
    ],
)
def test_where_there_are_io_queues_the_others_have_one_slot(
    loads: dict[str, int], io: Collection[str] | None, shares: dict[str, int]
) -> None:
    assert adaptive(25, loads, io) == shares


@pytest.mark.parametrize(
    ("slots", "loads", "shares"),
    [
        (25, [7, 7], [12, 13]),
        (25, [100, 200], [12, 13]),
        (25, [200, 100], [13, 12]),
        (25, [95, 95, 110], [8, 8, 9]),
        (25, [1, 2, 3, 4, 5, 6, 7], [3, 3, 3, 4, 4, 4, 4]),
        (25, [9, 0, 9], [12, 0, 13]),
        (25, [0, 0], [12, 13]),
        (2, [5, 9, 7, 0], [0, 1, 1, 0]),
        (25, [], []),
    ],
)
def test_even_deals_equally_to_those_that_have_work(slots: int, loads: list[int], shares: list[int]) -> None:
    names = [f"q{number}" for number in range(len(loads))]

    assert even(slots, dict(zip(names, loads, strict=True))) == dict(zip(names, shares, strict=True))


@pytest.mark.parametrize("policy", [even, adaptive])
@given(slots=st.integers(0, 60), loads=SOME_LOADS, turn=st.integers(0, 1000))
def test_every_slot_is_dealt_and_every_queue_is_named_in_its_order(
    policy: Callable[..., dict[str, int]], slots: int, loads: dict[str, int], turn: int
) -> None:
    shares = policy(slots, loads, turn=turn)

    assert list(shares) == list(loads)
    assert sum(shares.values()) == slots
    assert all(share >= 0 and type(share) is int for share in shares.values())


@given(slots=st.integers(7, 60), loads=SOME_LOADS)
def test_adaptive_is_within_one_slot_of_the_exact_proportion_and_longer_queues_never_have_less(
    slots: int, loads: dict[str, int]
) -> None:
    shares = adaptive(slots, loads, io=())

    total = sum(loads.values()) or 1
    for queue, load in loads.items():
        assert shares[queue] >= 1
        if sum(loads.values()):
            # Rounded (a half), and one more or less where the rounding has to come out even.
            assert abs(shares[queue] - 1 - (slots - len(loads)) * load / total) <= 1.5
    for one, other in itertools.pairwise(sorted(loads, key=lambda queue: loads[queue])):
        assert shares[one] <= shares[other] + (loads[one] == loads[other])


@pytest.mark.parametrize("policy", [even, adaptive])
@given(slots=st.integers(1, 5), loads=LOADS.filter(lambda loads: len(loads) > 5), start=st.integers(0, 100))
def test_with_fewer_slots_than_queues_all_have_their_turn(
    policy: Callable[..., dict[str, int]], slots: int, loads: dict[str, int], start: int
) -> None:
    loads = {queue: load + 1 for queue, load in loads.items()}
    rounds = math.ceil(len(loads) / slots)

    served = Counter[str]()
    for turn in range(start, start + rounds):
        served.update(policy(slots, loads, turn=turn))

    assert all(served[queue] for queue in loads)


@given(slots=st.integers(1, 60), loads=SOME_LOADS)
def test_weights_count_among_those_that_have_work(slots: int, loads: dict[str, int]) -> None:
    weights = {"a": 6.0, "b": 3.0, "c": 0.5}

    shares = weighted(weights)(slots, loads)

    assert list(shares) == list(loads)
    assert sum(shares.values()) == pytest.approx(slots)
    busy = [queue for queue, load in loads.items() if load] or list(loads)
    for one, other in itertools.combinations(busy, 2):
        assert shares[one] * weights.get(other, 1) == pytest.approx(shares[other] * weights.get(one, 1))


@pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan, "6", True, None])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match=r"the weight of 'low' is .*: use a number greater than 0"):
        weighted({"low": weight})


@pytest.mark.parametrize(
    ("loads", "shares"),
    [
        ({"low": 1, "default": 1, "critical": 1}, [("critical", 10), ("default", 0), ("low", 0)]),
        ({"low": 1, "default": 1, "critical": 0}, [("default", 10), ("low", 0), ("critical", 0)]),
        ({"other": 9, "low": 1}, [("low", 10), ("other", 0)]),
        ({}, []),
    ],
)
def test_strict_serves_the_first_that_has_work(loads: dict[str, int], shares: list[tuple[str, int]]) -> None:
    assert list(strict(["critical", "default", "low"])(10, loads).items()) == shares


def half(slots: int, loads: Mapping[str, int]) -> dict[str, float]:
    return {"a": slots / 2}


@pytest.mark.parametrize(
    ("given_shares", "message"),
    [
        (None, "the balance policy half gave None: return a dict of slots by queue"),
        ([("a", 1)], "return a dict"),
        ({"mial": 1}, "gave slots to 'mial', which is not among the loads. Did you mean \"mail\"?"),
        ({"a": -1}, "gave 'a' -1 slots: use numbers from 0"),
        ({"a": math.nan}, "gave 'a' nan slots"),
        ({"a": math.inf}, "gave 'a' inf slots"),
        ({"a": "3"}, "gave 'a' '3' slots"),
        ({"a": True}, "gave 'a' True slots"),
        ({"a": 8, "mail": 3}, "gave away 11 slots: there are 10"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(given_shares: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(given_shares, 10, {"a": 1, "mail": 1}, half)

    assert message in str(caught.value)


def test_who_is_not_named_by_a_policy_has_nothing() -> None:
    assert check(half(10, {}), 10, {"b": 2, "a": 1}) == {"a": 5.0, "b": 0}


# -- small changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [even, adaptive, weighted({"a": 3})])
@given(
    loads=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10_000), min_size=1),
    changes=st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(-0.1, 0.1)), max_size=20),
)
def test_loads_that_change_by_a_tenth_move_no_slot(
    policy: Policy, loads: dict[str, int], changes: list[dict[str, float]]
) -> None:
    balance = Balance(25, policy)
    balance.look(loads, 0.0)
    first = balance.shares

    seen: list[dict[str, float]] = []
    for second, change in enumerate(changes, 1):
        now = {queue: max(round(load * (1 + change.get(queue, 0))), 1) for queue, load in loads.items()}
        assert balance.look(now, float(second))
        seen.append(balance.shares)

    assert all(shares == first for shares in seen)


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000)), st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000))
)
def test_what_is_felt_is_near_the_load(before: dict[str, int], loads: dict[str, int]) -> None:
    now = smoothed_loads(smoothed_loads({}, before), loads)

    for queue, load in loads.items():
        assert load == 0 or abs(now[queue] - load) <= max(0.25 * before.get(queue, 0), 2)
        assert load > 0 or now.get(queue, 0) < 1


def test_a_queue_that_ran_empty_is_forgotten_after_some_seconds() -> None:
    loads = smoothed_loads({}, {"a": 1000})

    seconds = 0
    while loads:
        loads = smoothed_loads(loads, {"a": 0})
        seconds += 1

    assert 3 <= seconds <= 10


def test_shares_are_dealt_once_a_second_and_at_once_when_a_queue_gets_work() -> None:
    balance = Balance(10)

    assert balance.look({"a": 5, "b": 0}, 100.0)
    assert balance.shares == {"a": 10}
    assert not balance.look({"a": 50_000, "b": 0}, 100.9)
    assert balance.look({"a": 5, "b": 1}, 100.95)
    assert balance.shares == {"a": 5, "b": 5}
    assert not balance.look({"a": 5, "b": 0}, 100.99)
    assert balance.look({"a": 5, "b": 0}, 101.0)


def test_a_policy_hears_the_turn_and_what_is_io_if_it_asks() -> None:
    heard: list[tuple[int, set[str]]] = []

    def curious(slots: int, loads: Mapping[str, int], turn: int, io: set[str]) -> dict[str, int]:
        heard.append((turn, io))
        return dict.fromkeys(loads, 1)

    balance = Balance(10, curious)
    balance.look({"a": 1, "b-io": 1, "c": 1}, 0.0, io=["c", "d"])
    balance.look({"a": 1}, 1.0)

    assert heard == [(0, {"b-io", "c"}), (1, {"b-io"})]


@pytest.mark.parametrize("answer", [{"zzz": 1}, {"a": 99}, None, 1 / 3])
def test_a_policy_that_fails_is_replaced_by_even_and_what_is_wrong_is_kept(answer: object) -> None:
    def broken(slots: int, loads: Mapping[str, int]) -> Mapping[str, float]:
        if isinstance(answer, float):
            raise ZeroDivisionError("no slots")
        return answer  # type: ignore[return-value]

    balance = Balance(10, broken)
    balance.look({"a": 3, "b": 3}, 0.0)

    assert balance.shares == {"a": 5, "b": 5}
    assert isinstance(balance.trouble, ConfigError | ZeroDivisionError)


# -- dealing -----------------------------------------------------------------------------------------------------

PARTS = st.lists(
    st.builds(
        QueueShare, st.sampled_from("abcdefgh"), st.sampled_from([0.0, 0.4, 1.0, 2.5, 21.0]), st.integers(0, 30),
        st.integers(0, 300), st.floats(0, 100), st.floats(0.00002, 100), st.none() | st.integers(1, 3),
    ),
    unique_by=lambda part: part.queue,
)  # fmt: skip


@given(parts=PARTS, capacity=st.integers(0, 300), least=st.sampled_from([1, 50]))
def test_no_place_stays_empty_while_work_waits(parts: list[QueueShare], capacity: int, least: int) -> None:
    there = sum(min(part.load, part.room()) for part in parts)
    loads = {part.queue: part.load for part in parts}

    dealt = deal(parts, 25, sum(part.held for part in parts), capacity, least=least)

    assert sum(dealt.values()) == min(capacity, there)
    assert all(0 < number <= loads[queue] for queue, number in dealt.items())


def test_a_worker_without_jobs_deals_its_slots_as_the_policy_says() -> None:
    loads = {"images": 50_000, "mail": 2_000, "sync": 500, "reports": 340}
    balance = Balance(25, adaptive)
    balance.look(loads, 0.0)

    wants = balance.wants(list(loads), loads, 25, 0, 0.0)

    assert {want.queue: want.most for want in wants[:4]} == {"images": 21, "mail": 2, "sync": 1, "reports": 1}
    assert wants[4:] == [ClaimRequest(queue, 25) for queue in loads]


def test_an_owner_gets_the_next_slots_until_it_has_its_share_and_the_borrower_goes_on_with_the_rest() -> None:
    balance = Balance(10, even)
    balance.look({"a": 99}, 0.0)
    balance.took([(token, "a") for token in range(10)], 0.0)
    loads = {"a": 99, "b": 99}
    balance.look(loads, 2.0)

    dealt: list[str] = []
    for token in range(10):  # one after the other ends after a minute
        now = 60 + token / 10
        want = balance.wants(["a", "b"], loads, 1, token, now, ending=[token])[0]
        balance.ran([(token, now)], now)
        balance.took([(100 + token, want.queue)], now)
        dealt.append(want.queue)

    assert dealt[:5] == ["b"] * 5
    assert dealt.count("a") >= 2  # b makes up for what it missed, but never takes everything


def test_a_queue_that_comes_back_does_not_make_up_for_the_time_it_had_no_work() -> None:
    balance = Balance(10)
    for second in range(100):
        balance.look({"a": 99}, float(second))
        balance.wants(["a", "b"], {"a": 99}, 10, second, float(second))
        balance.took([(1000 + second, "a")], float(second))
        balance.ran([(1000 + second, 1.0)], second + 1.0)
    loads = {"a": 9999, "b": 9999}
    balance.look(loads, 100.0)

    wants = balance.wants(["a", "b"], loads, 200, 0, 100.0, least=50)

    assert {want.queue: want.most for want in wants[:2]} == {"a": 100, "b": 100}


def test_strict_queues_borrow_in_their_order() -> None:
    loads = {"low": 99, "critical": 2, "default": 3}
    balance = Balance(10, strict(["critical", "default", "low"]))
    balance.look(loads, 0.0)

    wants = balance.wants(list(loads), loads, 10, 5, 0.0)

    assert [(want.queue, want.most) for want in wants[:3]] == [("critical", 2), ("default", 3), ("low", 5)]


def test_a_collectors_batches_are_in_its_wants() -> None:
    loads = {"a": 9, "b": 9}
    balance = Balance(4)
    balance.look(loads, 0.0)

    wants = balance.wants(["a", "b"], loads, 4, 0, 0.0, run_sizes={"b": (10, 7)})

    assert wants == [ClaimRequest("a", 2), ClaimRequest("b", 2, 10, 7), ClaimRequest("a", 4), ClaimRequest("b", 4, 10, 7)]


def test_one_busy_queue_is_asked_for_everything_and_all_others_too() -> None:
    balance = Balance(4)
    balance.look({"b": 9}, 0.0)

    assert balance.wants(["a", "b", "c"], {"b": 9}, 4, 1, 0.0) == [
        ClaimRequest("b", 4),
        ClaimRequest("c", 4),
        ClaimRequest("a", 4),
    ]


def test_what_went_back_is_not_counted() -> None:
    loads = {"a": 99, "b": 99}
    balance = Balance(4)
    balance.look(loads, 0.0)
    balance.took([(1, "a"), (2, "a"), (3, "b")], 0.0)

    balance.returned([1, 2])

    assert [(want.queue, want.most) for want in balance.wants(["a", "b"], loads, 3, 0, 0.0)[:2]] == [("a", 2), ("b", 1)]


def test_what_an_exchange_in_the_air_will_bring_counts_as_held() -> None:
    loads = {"a": 99, "b": 99}
    balance = Balance(4)
    balance.look(loads, 0.0)
    wants = balance.wants(["a", "b"], loads, 1, 0, 0.0)

    asked = expected(wants, 1)

    assert asked == {"a": 1}
    assert balance.wants(["a", "b"], loads, 1, 1, 0.0, asked=asked)[0] == ClaimRequest("b", 1)
    assert expected([ClaimRequest("a", 3), ClaimRequest("b", 2), ClaimRequest("a", 9), ClaimRequest("b", 9)], 7) == {
        "a": 5,
        "b": 2,
    }


# -- jobs that compute -------------------------------------------------------------------------------------------


def test_a_queue_whose_jobs_compute_has_one_at_a_time_and_is_not_even_asked_for_more() -> None:
    loads = {"images": 99, "mail": 99}
    balance = Balance(10)
    balance.look(loads, 0.0, cpu=["images"])
    balance.took([(token, "images") for token in range(3)], 0.0)
    balance.ran([(token, 5.0) for token in range(3)], 5.0)  # it takes long: no second one waits here
    balance.took([(3, "images")], 5.0)

    assert {want.queue for want in balance.wants(["images", "mail"], loads, 9, 0, 5.0)} == {"mail"}
    assert balance.held_back
    assert ClaimRequest("images", 1) in balance.wants(["images", "mail"], loads, 10, 0, 5.0, ending=[3])


def test_short_jobs_that_compute_may_wait_inside_a_worker_as_others_do() -> None:
    part = QueueShare("images", share=1, held=1, load=99, mean=0.01, cap=1)

    assert part.room() == 5


def test_where_jobs_said_to_compute_leave_the_process_idle_more_may_start_and_one_when_it_is_taken() -> None:
    balance = Balance(10)
    balance.look({"a": 99}, 0.0, cpu=["a"], busy=0.0)

    def most_after(second: float, busy: float) -> int:
        balance.took([(int(second) * 100 + number, "a") for number in range(10)], second)
        balance.look({"a": 99}, second, cpu=["a"], busy=busy)
        return balance.computing

    assert [most_after(1, 0.1), most_after(2, 0.1), most_after(3, 0.6), most_after(4, 0.1), most_after(5, 0.1)] == [
        2,
        4,
        4,
        8,
        10,
    ]
    assert most_after(6, 0.9) == 1


def test_claims_of_tasks_that_compute_let_others_go_first() -> None:
    hand = [("resize", "images"), ("resize", "images"), ("resize", "mixed"), ("send", "mixed"), ("send", "mail")]

    def start(free: int, running: dict[str, int]) -> list[int]:
        return first_to_run(hand, free, running, {"resize"}, {"images"})

    assert start(5, {}) == [0, 2, 3, 4]  # the second waits; in the mixed queue nothing waits while there are places
    assert start(2, {}) == [0, 3]
    assert start(5, {"resize": 1}) == [2, 3, 4]
    assert start(2, {"resize": 1}) == [3, 4]
    assert first_to_run(hand, 2, {}, set(), set()) == [0, 1]


# -- over time ---------------------------------------------------------------------------------------------------


def simulate(
    policy: Policy, lengths: Mapping[str, float], seconds: float, slots: int = 25, idle: Sequence[str] = ()
) -> tuple[Counter[str], float]:
    """Run a worker that never runs out of work, without a store: what was run of each queue, and how much in all.

    Claims are made as the loop does: as places come free, and ahead for short jobs, which one thread runs.
    """
    chance = random.Random(1)  # noqa: S311 - not for secrets
    pace, balance = Prefetch(slots), Balance(slots, policy)
    loads, queues, tokens = dict.fromkeys(lengths, 10_000), [*lengths, *idle], itertools.count()
    hand: deque[tuple[int, str]] = deque()
    running: list[tuple[float, int, str, float]] = []  # until when, token, queue, length
    ended: list[tuple[int, float]] = []
    work, now = Counter[str](), 0.0
    for turn in itertools.count():
        limit = pace.unsettled - len(running) + pace.ahead - len(hand)
        balance.look(loads, now)
        wants = balance.wants(queues, loads, limit, turn, now, ending=[token for token, _ in ended], least=pace.share)
        balance.ran(ended, now)
        pace.measured(sum(length for _, length in ended), len(ended))
        claims = [(next(tokens), want.queue) for want in wants for _ in range(min(want.most, loads.get(want.queue, 0)))][:limit]
        balance.took(claims, now)
        hand.extend(claims)
        while hand and len(running) < pace.unsettled:
            token, queue = hand.popleft()
            length = lengths[queue] * chance.uniform(0.7, 1.3)
            begins = max([now, *(until for until, *_ in running)]) if pace.mean < SHORT else now
            heapq.heappush(running, (begins + length, token, queue, length))
        ended = []
        while running and (not ended or pace.mean < SHORT):
            now, token, queue, length = heapq.heappop(running)
            ended.append((token, length))
            work[queue] += length  # type: ignore[assignment]
        if now >= seconds:
            return work, sum(work.values()) / now
    raise AssertionError("time goes on for ever")


def furthest(work: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return how far the worst is from its weight."""
    each = sum(work.values()) / sum(weights.values())
    return max(abs(work[queue] / (weight * each) - 1) for queue, weight in weights.items())


@pytest.mark.parametrize(
    ("length", "seconds"), [(0.00002, 1), (0.0001, 1), (0.0005, 2), (0.0009, 3), (0.01, 3), (0.2, 60), (60, 15_000)]
)
def test_ten_of_fifty_queues_share_what_is_run_by_weight(length: float, seconds: float) -> None:
    work, _ = simulate(weighted(WEIGHTS), dict.fromkeys(WEIGHTS, length), seconds, idle=IDLE)

    assert furthest(work, WEIGHTS) < 0.05


def test_weights_hold_where_queues_have_jobs_of_different_length_and_all_slots_are_used() -> None:
    lengths = {queue: (0.003, 0.01, 0.1, 1.0)[number % 4] for number, queue in enumerate(WEIGHTS)}

    work, used = simulate(weighted(WEIGHTS), lengths, 14, idle=IDLE)

    assert furthest(work, WEIGHTS) < 0.05
    assert used > 0.98 * 25


def test_weights_hold_with_fewer_slots_than_queues() -> None:
    work, _ = simulate(weighted(WEIGHTS), dict.fromkeys(WEIGHTS, 0.5), 600, slots=3)

    assert furthest(work, WEIGHTS) < 0.05


def test_even_turns_hold_with_fewer_slots_than_queues() -> None:
    work, _ = simulate(even, dict.fromkeys(WEIGHTS, 0.1), 300, slots=3)

    assert furthest(work, dict.fromkeys(WEIGHTS, 1)) < 0.05


def test_a_hiccup_of_the_machine_is_not_charged_to_the_queue_whose_job_ran_then() -> None:
    balance = Balance(10, even)
    balance.look({"a": 100, "b": 100}, 0.0)
    for token in range(200):
        balance.took([(token, "ab"[token % 2])], token / 1000)
        balance.ran([(token, 0.3 if token == 150 else 0.00001)], token / 1000 + 0.5)

    spent = {queue: part.spent for queue, part in balance._parts.items()}
    assert spent["a"] < 1.3 * spent["b"]


def test_who_computes_has_its_slot_though_others_hold_theirs_for_long() -> None:
    loads = {"images": 99, "calls": 99}
    balance = Balance(25, adaptive)
    balance.look(loads, 0.0, cpu=["images"], io=["calls"])
    balance.took([(token, "calls") for token in range(24)], 0.0)

    dealt: list[str] = []
    for token in range(100, 120):  # one after the other, while the same 24 calls go on
        now = (token - 99) * 0.02
        balance.look(loads, now, cpu=["images"], io=["calls"])
        want = balance.wants(["calls", "images"], loads, 1, token, now)[0]
        dealt.append(want.queue)
        balance.took([(token, want.queue)], now)
        balance.ran([(token, 0.02)], now + 0.02)

    assert dealt == ["images"] * 20


def test_what_a_queue_had_before_it_was_known_to_compute_is_forgiven() -> None:
    loads = {"images": 99, "calls": 99}
    balance = Balance(10)
    balance.look(loads, 0.0)
    balance.wants(["images", "calls"], loads, 10, 0, 0.0)
    balance.took([(token, "images") for token in range(10)], 0.0)
    balance.ran([(token, 4.0) for token in range(10)], 4.0)

    balance.look(loads, 5.0, cpu=["images"])

    assert "images" in [want.queue for want in balance.wants(["images", "calls"], loads, 3, 1, 5.0)][:2]
