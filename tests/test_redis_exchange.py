"""The exchange on Redis has a branch for what is most common: plain jobs, and jobs with nothing but a lane.

It must leave everything as the general code does, which knows all rules. Two databases of one server get the same steps at the
same time. In one the script is as it is; in the other no record is taken for plain. Answers and keys must be the same after
each step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import redisbench
from conftest import Clock, often
from laneway.core.job import Claim, Job
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import StoreCorrupt, StoreMoved, StoreUnavailable, UnknownJob
from laneway.store.contract import ClaimRequest
from laneway.worker import Worker
from settling import settled_alike

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

import redis

from laneway import App
from laneway.store.redis import RedisInspect, RedisStore, scripts
from laneway.store.redis.keys import queue_key
from laneway.store.redis.reading import runs_of
from laneway.store.transfer import Move, write_move

ERROR = ErrorInfo("e", "m")
#: What comes between two steps: mostly jobs that have nothing special about them, but perhaps their lane.
ODD: dict[str, dict[str, Any]] = {
    "usual": {}, "other lane": {"lane": "b"}, "no lane": {"lane": None}, "late": {"delay": 3_000_000},
    "expires": {"expires": 2_000_000}, "unique": {"unique": "k"}, "urgent": {"lane": None, "priority": 1},
    "laned and urgent": {"lane": "c", "priority": 2},
}  # fmt: skip
OTHERS = ["tick", "pause", "resume", "garbage", "gone", "note", "mark", "lose", "fail", "end"]
STEPS = ["settle", "settle three", "settle all", "settle only", "settle twice"]
#: Something is held and something waits; something odd happens; a step is made.
phrases = st.tuples(
    st.lists(st.sampled_from(["usual", "settle"]), max_size=4), st.sampled_from(["usual", *ODD, *OTHERS]), st.sampled_from(STEPS)
)
events = st.lists(phrases, min_size=1, max_size=12).map(
    lambda said: [word for before, odd, step in said for word in (*before, odd, step)]
)
#: How a key is read.
READS: dict[bytes, tuple[Any, ...]] = {
    b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1, "WITHSCORES"), b"list": ("LRANGE", 0, -1), b"set": ("SMEMBERS",),
    b"string": ("GET",),
}  # fmt: skip
ENDS: list[Outcome] = [Dead(ERROR), Dead(ERROR, halt=True), Cancelled(), Snoozed(0)]

_DONE = Done()


class Side:
    """One of the two databases."""

    def __init__(self, number: int, *, general: bool, lane: str | None) -> None:
        url = f"{redisbench.server().url.rpartition('/')[0]}/{number}"
        self.lane = lane
        self.clock = Clock()
        self.client: Any = redis.Redis.from_url(url)
        self.client.flushdb()
        self.store = RedisStore(url, clock=self.clock)
        if general:
            self.store._exchanges.script = general_script()
        self.held: list[Claim] = []

    def step(self, event: str, number: int) -> object:
        if event in ODD:
            return self.store.push([Job(f"j{number}", "t", "default", b"[[],{}]", **{"lane": self.lane, **ODD[event]})])
        if event in STEPS:
            return self.settle(event)
        if event in ("fail", "end"):
            outcomes = [Retrying(1_000_000, ERROR)] if event == "fail" else ENDS
            return self.exchange([settled_alike(one, as_, 1, 2) for one, as_ in zip(self.held, outcomes, strict=False)], 2)
        return getattr(self, event)()

    def tick(self) -> None:
        self.clock.advance(1)

    def pause(self, paused: bool = True) -> None:
        if self.store.queues.read():
            RedisInspect(self.store).pause("default", paused)

    def resume(self) -> None:
        self.pause(paused=False)

    def note(self) -> None:
        self.store.note([(one.unit.id, one.token, b'{"log":[]}') for one in self.held[:1]])

    def mark(self) -> None:
        for one in self.held[:1]:
            with contextlib.suppress(UnknownJob):
                RedisInspect(self.store).cancel(one.unit.id)

    def lose(self) -> None:
        """Somebody else has it, and we do not know."""
        self.store.give_back("w")
        self.store.exchange("x", [], [ClaimRequest("default", 9)], 9)

    def gone(self) -> None:
        self.garbage("gone")

    def garbage(self, how: str = "garbage") -> None:
        """Let the next be no job any more."""
        waiting = self.client.zrange(queue_key("default", "DUE", "0") if self.lane is None else self.parked(), 0, 0)
        if waiting and how == "gone":
            self.client.hdel(queue_key("default", "JOB"), waiting[0][8:])
        elif waiting:
            self.client.hset(queue_key("default", "JOB"), waiting[0][8:], b"\x81" + b"d" * 17 + b"\xff\xff?")

    def parked(self) -> str:
        return queue_key("default", "PARKED", self.lane or "")

    def settle(self, step: str) -> object:
        """End the first of what is held, and claim: who is met behind its lane's holder is parked."""
        number, most = {"settle": (1, 9), "settle three": (3, 2), "settle all": (9, 9), "settle only": (2, 0)}.get(step, (2, 3))
        last = self.held[-1:]
        settled = [
            settled_alike(one, Done(b"1"), 1, 2, keep=10**8) if one in last else settled_alike(one, _DONE, 1, 2)
            for one in self.held[:number]
        ]
        return self.exchange(settled + settled[:1] if step == "settle twice" else settled, most)

    def exchange(self, settled: list[Settled], most: int) -> object:
        answer = self.store.exchange("w", settled, [ClaimRequest("default", most)] if most else [], most)
        ended = [item.claim.token for item in settled]
        self.held = [one for one in self.held if one.token not in ended] + answer.claims
        claims = [(claim.unit, claim.token, claim.lost) for claim in answer.claims]
        return answer.refused, claims, answer.more, answer.next_due, answer.loads

    def keys(self) -> dict[bytes, object]:
        """All that is there, but for the bell, which fades."""
        names = [key for key in self.client.keys("*") if not key.endswith(b"bell")]
        kinds = self.ask([("TYPE", name) for name in names])
        values = self.ask([(READS[kind][0], name, *READS[kind][1:]) for name, kind in zip(names, kinds, strict=True)])
        # In a list of runs there may be a newline between them.
        plain = [
            [part.replace(b"\n", b"") for part in value] if kind == b"list" else value
            for kind, value in zip(kinds, values, strict=True)
        ]
        return dict(zip(names, plain, strict=True))

    def ask(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send many commands at once."""
        with self.client.pipeline(transaction=False) as line:
            for command in commands:
                line.execute_command(*command)
            return list(line.execute())

    def close(self) -> None:
        self.store.close()
        self.client.flushdb()
        self.client.close()


def general_script() -> str:
    """Return the digest of the exchange for which no record is plain."""
    nothing = {**scripts.CONSTANTS, "PLAIN": -1, "PLAIN_IN_LANE": -1}
    with mock.patch.object(scripts, "CONSTANTS", nothing):
        return scripts.script.__wrapped__("exchange").digest


@pytest.mark.model
@settings(max_examples=often(25, 1_000), deadline=None)
@given(st.sampled_from([None, "a"]), events)
@example(None, ["usual", "pause", "settle", "resume"])
@example(None, ["usual", "urgent", "settle three"])
@example(None, ["usual", "note", "settle all"])
@example("a", ["usual", "usual", "late", "settle", "tick", "tick", "tick", "settle"])
@example("a", ["usual", "usual", "no lane", "settle", "settle twice"])
@example("a", ["usual", "settle", "pause", "settle", "resume", "settle"])
@example("a", ["usual", "settle", "urgent", "settle", "settle"])
@example("a", ["usual", "other lane", "settle all", "settle all"])
@example("a", ["gone", "settle", "garbage", "settle", "settle"])
@example("a", ["unique", "laned and urgent", "settle", "settle", "urgent", "settle"])
def test_the_branch_for_plain_jobs_leaves_what_the_general_code_leaves(lane: str | None, moves: list[str]) -> None:
    short, general = Side(0, general=False, lane=lane), Side(1, general=True, lane=lane)
    try:
        for number, event in enumerate([*["usual"] * 4, "settle", *moves, *["settle"] * 5]):
            assert short.step(event, number) == general.step(event, number)
            assert short.keys() == general.keys()
    finally:
        short.close()
        general.close()


# -- how much is asked -------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> Iterator[App]:
    made = App(redisbench.emptied().url)
    yield made
    made.close()


@pytest.fixture
def store() -> Iterator[RedisStore]:
    made = RedisStore(redisbench.emptied().url)
    yield made
    made.close()


def calls_of(command: str) -> int:
    said = redisbench.server().ask("INFO", "commandstats").decode()
    found = [line for line in said.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


def jobs(queue: str, number: int, lane: str | None = None) -> list[Job]:
    return [Job(f"{queue}{n}", "t", queue, b"[[],{}]", lane) for n in range(number)]


def done(claims: list[Claim]) -> list[Settled]:
    return [settled_alike(one, Done(), 1, 2) for one in claims]


def test_a_busy_worker_asks_one_script_in_an_exchange(app: App) -> None:
    ran: list[int] = []

    @app.task(name="note")
    def note(number: int) -> None:
        ran.append(number)

    note.enqueue_many([(number,) for number in range(2000)])
    redisbench.server().ask("CONFIG", "RESETSTAT")

    Worker(app, slots=4).run(burst=True)

    assert sorted(ran) == list(range(2000))
    assert 1000 <= int(redisbench.server().ask("HGET", queue_key("default", "META"), "runs")) <= 1500  # others are forgotten
    assert calls_of("hlen") < calls_of("evalsha") / 2  # the registry is asked along only now and then


def test_the_next_of_a_lane_is_claimed_without_an_index_if_nothing_else_is_ready(app: App) -> None:
    ran: list[int] = []

    @app.task(name="note", lane=lambda number: "all")
    def note(number: int) -> None:
        ran.append(number)

    note.enqueue_many([(number,) for number in range(300)])
    redisbench.server().ask("CONFIG", "RESETSTAT")

    Worker(app, slots=4).run(burst=True)

    assert ran == list(range(300))
    assert calls_of("zremrangebyrank") < 150


@pytest.mark.parametrize("clock", [None, Clock()])
def test_queues_that_have_nothing_are_not_asked_by_who_is_busy(clock: Clock | None) -> None:
    """With a clock that a test sets it goes the same way, as long as that clock says that it is a moment ago."""
    store = RedisStore(redisbench.emptied().url, clock=clock)
    store.push([*jobs("a", 9), *jobs("b", 1), *jobs("c", 1)])
    wants = [ClaimRequest(queue, 2) for queue in "abc"]
    held = store.exchange("w", [], wants, 4).claims
    redisbench.server().ask("CONFIG", "RESETSTAT")

    answer = store.exchange("w", done([one for one in held if one.queue == "a"]), wants, 2)

    assert [one.unit.id for one in answer.claims] == ["a2", "a3"]
    assert (answer.more, answer.loads) == (True, {"a": 5, "b": 0, "c": 0})
    assert calls_of("evalsha") == 1
    (clock.advance if clock else time.sleep)(0.06)
    store.exchange("w", done(answer.claims), wants, 2)
    assert calls_of("evalsha") > 3
    store.close()


@pytest.mark.parametrize("closed", ["a", "b"])
def test_what_is_claimed_beside_a_queue_that_a_copy_has_just_closed_is_not_lost(store: RedisStore, closed: str) -> None:
    store.push([Job("1", "t", "a", b"[[],{}]"), Job("2", "t", "b", b"[[],{}]")])
    wants = [ClaimRequest("a", 5), ClaimRequest("b", 5)]
    store.wire.ask(
        ("HSET", queue_key(closed, "META"), "moved", write_move(Move("c", "redis://new/0")))
    )  # and not the other one yet

    claims = store.exchange("w", [], wants, 10).claims

    assert [claim.queue for claim in claims] == ["b" if closed == "a" else "a"]
    with pytest.raises(StoreMoved):
        store.exchange("w", [], wants, 10)
    assert store.exchange("w", [settled_alike(claim, Done(), 1, 2) for claim in claims], wants, 10).refused == []


@pytest.mark.parametrize("outcome", [Done(), Retrying(0, ERROR)])
def test_a_queue_that_a_copy_has_closed_takes_outcomes_and_gives_no_claims(store: RedisStore, outcome: Outcome) -> None:
    wants = [ClaimRequest("a", 5, lanes=2)]
    store.push(jobs("a", 2))
    held = store.exchange("w", [], wants, 1).claims
    store.wire.ask(("HSET", queue_key("a", "META"), "moved", write_move(Move("c", "redis://new/0"))))

    answer = store.exchange("w", [settled_alike(one, outcome, 1, 2) for one in held], wants, 5)

    assert (answer.refused, answer.claims) == ([], [])
    assert redisbench.server().ask("EXISTS", queue_key("a", "RUNNING", "w")) == 0
    with pytest.raises(StoreMoved):
        store.exchange("w", [], wants, 5)


@pytest.mark.parametrize("outcome", [Done(), Cancelled()])
def test_of_many_runs_the_last_are_kept_however_they_ended(store: RedisStore, outcome: Outcome) -> None:
    store.push(jobs("a", 2000))
    while held := store.exchange("w", [], [ClaimRequest("a", 100)], 100).claims:
        store.exchange("w", [settled_alike(one, outcome, 1, 2) for one in held], [], 0)

    portions = redisbench.server().ask("LRANGE", queue_key("a", "RECENT"), 0, -1)
    kept = sum(len(runs_of(portion)) for portion in portions)
    assert 1000 <= kept <= 1500
    assert int(redisbench.server().ask("HGET", queue_key("a", "META"), "runs")) == kept


def test_tokens_grow_from_process_to_process_though_one_only_settled(store: RedisStore) -> None:
    other, wants = RedisStore(redisbench.server().url), [ClaimRequest("a", 1)]
    store.push(jobs("a", 2))
    held = store.exchange("w", [], wants, 1).claims
    store.exchange("w", done(held), [], 0)

    [later] = other.exchange("v", [], wants, 1).claims

    assert later.token > held[0].token
    other.close()


def test_who_gets_nothing_knows_how_all_queues_stand(store: RedisStore) -> None:
    other = RedisStore(redisbench.server().url)
    store.push([*jobs("a", 2), *jobs("b", 1)])
    wants = [ClaimRequest(queue, 2) for queue in "abc"]
    held = store.exchange("w", [], wants, 3).claims
    other.push([*jobs("c", 1), Job("late", "t", "b", b"[[],{}]")])  # we are not told, and do not know the queue

    answer = store.exchange("w", done([one for one in held if one.queue == "a"]), wants, 3)

    assert [one.unit.id for one in answer.claims] == ["late", "c0"]
    other.close()


def test_queues_that_another_process_made_are_claimed_from_and_told_at_once(store: RedisStore) -> None:
    other = RedisStore(redisbench.server().url)

    def exchange(queue: str) -> tuple[list[str], dict[str, int]]:
        answer = store.exchange("w", [], [ClaimRequest(queue, 2)], 2)
        return [one.unit.id for one in answer.claims], answer.loads

    other.push(jobs("a", 1))
    assert exchange("a") == (["a0"], {"a": 0})
    other.push([*jobs("b", 1), *jobs("c", 1)])
    assert exchange("b") == (["b0"], {"a": 0, "b": 0, "c": 1})
    other.push(jobs("d", 1))
    assert exchange("a") == ([], {"a": 0, "b": 0, "c": 1, "d": 1})
    other.close()


def test_who_only_looks_is_told_of_what_another_process_has_just_pushed() -> None:
    clock = Clock()  # it stands still: what is remembered is not out of date
    store, other = RedisStore(redisbench.emptied().url, clock=clock), RedisStore(redisbench.server().url, clock=clock)
    wants = [ClaimRequest("a", 2)]
    store.push(jobs("a", 1))
    store.exchange("w", [], wants, 2)
    other.push([Job("more", "t", "a", b"[[],{}]")])

    answer = store.exchange("w", [], wants, 0)

    assert (answer.more, answer.loads) == (True, {"a": 1})
    store.close()
    other.close()


def test_a_want_that_is_asked_for_twice_has_the_claims_of_both_rounds() -> None:
    clock = Clock()  # it stands still: what is remembered is not out of date
    store, other = RedisStore(redisbench.emptied().url, clock=clock), RedisStore(redisbench.server().url, clock=clock)
    wants = [ClaimRequest("a", 9), ClaimRequest("b", 9)]
    store.push([*jobs("a", 1), *jobs("b", 3)])
    store.exchange("w", [], wants, 0)
    other.push([Job(f"more{n}", "t", "a", b"[[],{}]") for n in range(2)])
    other.exchange("v", [], [ClaimRequest("b", 2)], 2)

    answer = store.exchange("w", [], wants, 4)

    assert [one.unit.id for one in answer.claims] == ["a0", "more0", "more1", "b2"]
    store.close()
    other.close()


# -- queues that cannot be used --------------------------------------------------------------------------------------


def spoil(queue: str, name: str, more: str) -> None:
    """Put a key of another program's in the place of one of Laneway's."""
    key = queue_key(queue, name, more)
    redisbench.server().ask("DEL", key)
    redisbench.server().ask("SADD", key, "garbage")


def test_the_number_of_dead_jobs_is_that_of_the_last_death(store: RedisStore) -> None:
    store.push(jobs("a", 1))
    held = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims

    for refused in ([], ["a0"]):
        dead = [settled_alike(one, Dead(ERROR), 1, 2) for one in held]
        assert store.exchange("w", dead, [], 0).refused == refused

    assert store._exchanges.dead == {"a": 1}


@pytest.mark.parametrize("mends", [True, False])
def test_outcomes_for_a_queue_that_cannot_be_used_are_an_error(store: RedisStore, mends: bool) -> None:
    store.push(jobs("a", 1))
    held = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims
    spoil("a", "RUNNING", "w")

    with mock.patch.object(store._exchanges, "set_aside_foreign_keys", return_value=mends), pytest.raises(StoreCorrupt):
        store.exchange("w", done(held), [], 0)


def test_an_answer_that_is_lost_over_a_key_that_was_mended_is_an_error_and_the_next_one_comes(store: RedisStore) -> None:
    store.push([*jobs("a", 1), *jobs("b", 1)])
    spoil("a", "DUE", "0")

    with pytest.raises(StoreUnavailable, match="queue a failed at a key"):
        store.exchange("w", [], [ClaimRequest("a", 1)], 1)
    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims] == ["a0"]


def test_a_queue_that_was_only_looked_at_and_mended_is_to_be_looked_at_again(store: RedisStore) -> None:
    store.push([*jobs("a", 1), *jobs("b", 1)])
    spoil("a", "DUE", "0")

    answer = store.exchange("w", [], [ClaimRequest("b", 1)], 1)

    assert ([one.unit.id for one in answer.claims], answer.loads["a"]) == (["b0"], 1)


def test_a_queue_that_cannot_be_mended_is_told_once_and_the_others_go_on(
    store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.push([*jobs("a", 1), *jobs("b", 2)])
    spoil("a", "DUE", "0")

    with mock.patch.object(store._exchanges, "set_aside_foreign_keys", return_value=False):
        for id_ in ("b0", "b1"):
            answer = store.exchange("w", [], [ClaimRequest("a", 1), ClaimRequest("b", 1)], 2)
            assert ([one.unit.id for one in answer.claims], "a" in answer.loads) == ([id_], False)

    assert caplog.text.count("can be neither settled nor claimed") == 1


def test_a_server_that_takes_no_writes_is_no_matter_of_one_queue(store: RedisStore) -> None:
    store.push(jobs("a", 1))
    refused = StoreUnavailable("the server takes no writes")
    answers = mock.patch("laneway.store.redis.wire.Asked.hear", return_value=[refused, 1])
    with answers, pytest.raises(StoreUnavailable, match="takes no writes"):
        store.exchange("w", [], [ClaimRequest("a", 1)], 1)


def test_what_this_process_pushed_is_not_overlooked(store: RedisStore) -> None:
    store.push([*jobs("a", 9), *jobs("b", 1)])
    wants = [ClaimRequest("b", 2), ClaimRequest("a", 2)]
    held = store.exchange("w", [], wants, 3).claims
    store.push([Job("more", "t", "b", b"[[],{}]")])

    answer = store.exchange("w", done(held), wants, 2)

    assert [one.unit.id for one in answer.claims] == ["more", "a2"]


def test_places_that_one_queue_leaves_go_to_one_that_was_not_asked(store: RedisStore) -> None:
    store.push(jobs("b", 2))
    store.exchange("w", [], [], 0)  # so it is known how this one stands
    store.push(jobs("a", 1))

    answer = store.exchange("w", [], [ClaimRequest("a", 3), ClaimRequest("b", 3)], 3)

    assert [one.unit.id for one in answer.claims] == ["a0", "b0", "b1"]


def test_claims_come_in_the_order_of_the_wants(store: RedisStore) -> None:
    store.push([*jobs("a", 4), *jobs("b", 3, "lane"), *jobs("c", 2)])
    held = store.exchange("w", [], [ClaimRequest("b", 1), ClaimRequest("a", 1)], 2).claims

    answer = store.exchange(
        "w", done(held), [ClaimRequest("a", 1), ClaimRequest("b", 9), ClaimRequest("c", 1), ClaimRequest("a", 2)], 9
    )

    assert [one.unit.id for one in answer.claims] == ["a1", "b1", "c0", "a2", "a3"]
    assert answer.more


@pytest.mark.parametrize("most", [0, 9])
def test_a_success_that_stands_twice_lets_its_lane_go_on_once(store: RedisStore, most: int) -> None:
    store.push(jobs("a", 4, "lane"))
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims

    answer = store.exchange("w", done(held * 2), [ClaimRequest("a", most)], most)
    claims = answer.claims or store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims

    assert (answer.refused, [one.unit.id for one in claims]) == (["a0"], ["a1"])
    assert RedisInspect(store).counts()["blocked"] == 2


def test_more_successes_than_a_script_hands_over_at_once(store: RedisStore) -> None:
    store.push([*jobs("a", 9000), Job("next", "t", "a", b"[[],{}]", "lane")])
    held = store.exchange("w", [], [ClaimRequest("a", 9000)], 9000).claims

    answer = store.exchange("w", done(held), [ClaimRequest("a", 9)], 9)

    assert (len(held), answer.refused, [one.unit.id for one in answer.claims]) == (9000, [], ["next"])
    assert RedisInspect(store).totals()["processed"] == 9000


def test_a_success_among_others_needs_its_token(store: RedisStore) -> None:
    store.push([*jobs("a", 3), *jobs("b", 3, "lane")])
    wants = [ClaimRequest("a", 3), ClaimRequest("b", 3)]
    held = store.exchange("w", [], wants, 6).claims
    store.give_back("w", keep=[one.token for one in held if one.unit.id not in ("a1", "b0")])
    again = store.exchange("w", [], wants, 6).claims  # the worker has them, but by other tokens

    answer = store.exchange("w", done(held), wants, 6)

    assert ([one.unit.id for one in again], answer.refused, answer.claims) == (["a1", "b0"], ["a1", "b0"], [])
    assert [one.unit.id for one in store.exchange("w", done(again), wants, 6).claims] == ["b1"]


@pytest.mark.parametrize("outcome", [Done(), Dead(ERROR)])
def test_each_of_several_lanes_goes_on(store: RedisStore, outcome: Outcome) -> None:
    store.push([Job(f"{lane}{n}", "t", "a", b"[[],{}]", lane) for n in range(3) for lane in "xyz"])
    first, *others = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims
    settled = [settled_alike(first, Done(), 1, 2), *(settled_alike(one, outcome, 1, 2) for one in others)]

    assert [one.unit.id for one in store.exchange("w", settled, [ClaimRequest("a", 9)], 9).claims] == ["x1", "y1", "z1"]


def test_a_job_without_a_lane_lets_no_lane_go_on(store: RedisStore) -> None:
    store.push([Job(id_, "t", "a", b"[[],{}]", lane) for id_, lane in (("e0", ""), ("e1", ""), ("plain", None), ("x", "x"))])
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims

    assert [one.unit.id for one in held] == ["e0", "plain", "x"]
    assert store.exchange("w", done(held[1:]), [ClaimRequest("a", 9)], 9).claims == []
    assert [one.unit.id for one in store.exchange("w", done(held[:1]), [ClaimRequest("a", 9)], 9).claims] == ["e1"]


def test_the_next_of_a_lane_keeps_its_priority(store: RedisStore) -> None:
    store.push([Job(f"x{n}", "t", "a", b"[[],{}]", "x", priority=2) for n in range(2)])
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims
    store.push([Job("urgent", "t", "a", b"[[],{}]", priority=1)])

    assert [one.unit.id for one in store.exchange("w", done(held), [ClaimRequest("a", 1)], 1).claims] == ["x1"]


def test_the_next_of_a_lane_waits_for_what_has_priority(store: RedisStore) -> None:
    store.push(jobs("a", 3, "lane"))
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims
    store.push([Job("urgent", "t", "a", b"[[],{}]", priority=1)])

    first = store.exchange("w", done(held), [ClaimRequest("a", 1)], 1).claims

    assert [one.unit.id for one in first] == ["urgent"]
    assert [one.unit.id for one in store.exchange("w", done(first), [ClaimRequest("a", 9)], 9).claims] == ["a1"]


def test_the_next_of_a_lane_is_not_lost_in_a_queue_that_was_just_paused(store: RedisStore) -> None:
    other = RedisStore(redisbench.server().url)
    store.push(jobs("a", 3, "lane"))
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims
    RedisInspect(other).pause("a", True)

    assert store.exchange("w", done(held), [ClaimRequest("a", 9)], 9).claims == []

    RedisInspect(store).pause("a", False)
    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims] == ["a1"]
    other.close()


@pytest.mark.parametrize("side", ["ERRORS", "NOTES", "LOST", "MARKS"])
def test_what_stands_beside_a_record_goes_with_it(store: RedisStore, side: str) -> None:
    store.push(jobs("a", 1))
    (held,) = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims
    redisbench.server().ask("HSET", queue_key("a", side), "a0", "cancel w" if side == "MARKS" else "")

    assert store.exchange("w", done([held]), [], 0).refused == []

    assert queue_key("a", side) not in redisbench.server().all_keys()


def test_a_retry_that_was_claimed_is_none_any_more(store: RedisStore) -> None:
    store.push([*jobs("a", 1), *jobs("b", 1, "lane")])
    wants = [ClaimRequest("a", 1), ClaimRequest("b", 1)]
    held = store.exchange("w", [], wants, 2).claims
    store.exchange("w", [settled_alike(one, Retrying(0, ERROR), 1, 2) for one in held], [], 0)

    assert [one.unit.attempt for one in store.exchange("w", [], wants, 2).claims] == [2, 2]

    assert not {queue_key(queue, "RETRY") for queue in "ab"} & redisbench.server().all_keys()


def test_a_worker_that_holds_nothing_is_no_holder(store: RedisStore) -> None:
    store.push(jobs("a", 1))
    held = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims

    store.exchange("w", done(held), [], 0)

    assert queue_key("a", "HOLDERS") not in redisbench.server().all_keys()


def test_a_worker_that_has_given_back_all_is_no_holder(store: RedisStore) -> None:
    store.push(jobs("a", 2))
    held = store.exchange("w", [], [ClaimRequest("a", 2)], 2).claims

    store.give_back("w", keep=[held[0].token])
    assert redisbench.server().ask("SMEMBERS", queue_key("a", "HOLDERS")) == [b"w"]
    store.give_back("w")

    assert queue_key("a", "HOLDERS") not in redisbench.server().all_keys()


def test_a_worker_whose_successes_are_refused_holds_what_it_claims(store: RedisStore) -> None:
    store.push(jobs("a", 2))
    held = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims
    store.recover("w", "it stood still")

    answer = store.exchange("w", done(held), [ClaimRequest("a", 1)], 1)

    assert (answer.refused, [one.unit.id for one in answer.claims]) == (["a0"], ["a0"])
    assert RedisInspect(store).counts()["running"] == 1


def test_a_refused_success_does_not_change_the_result(store: RedisStore) -> None:
    store.push(jobs("a", 1))
    (late,) = store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims
    store.recover("w", "it stood still")
    (held,) = store.exchange("x", [], [ClaimRequest("a", 1)], 1).claims
    store.exchange("x", [settled_alike(held, Done(b"1"), 1, 2, keep=10**8)], [], 0)

    answer = store.exchange("w", [settled_alike(late, Done(b"2"), 1, 2, keep=10**8)], [], 0)

    assert answer.refused == ["a0"]
    assert RedisInspect(store).result("a0").value == b"1"


def test_priorities_that_are_not_in_use_any_more_are_not_looked_at(store: RedisStore) -> None:
    store.push([*jobs("a", 1), Job("urgent", "t", "a", b"[[],{}]", priority=3), Job("late", "t", "a", b"[[],{}]", priority=-3)])

    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 2)], 2).claims] == ["urgent", "a0"]

    assert redisbench.server().ask("HGET", queue_key("a", "META"), "ranks") == bytes([97])


@pytest.mark.parametrize(("number", "wide"), [(5, False), (50, True)])
def test_who_holds_many_has_a_table_and_no_list(store: RedisStore, number: int, wide: bool) -> None:
    store.push(jobs("a", 50))
    store.exchange("w", [], [ClaimRequest("a", number)], number)

    encoding = redisbench.server().ask("OBJECT", "ENCODING", queue_key("a", "RUNNING", "w"))

    assert (encoding == b"hashtable") == wide
    assert redisbench.server().ask("HLEN", queue_key("a", "RUNNING", "w")) == number


def test_those_behind_what_was_claimed_stay_where_they_are(store: RedisStore) -> None:
    store.push(jobs("a", 2, "lane"))
    store.exchange("w", [], [ClaimRequest("a", 1)], 1)  # the next of the lane is met later, and parked
    store.push([Job(f"p{n}", "t", "a", b"[[],{}]") for n in range(6)])

    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 1)], 1).claims] == ["p0"]
    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims] == [f"p{n}" for n in range(1, 6)]


def test_a_lower_priority_waits_while_there_are_more_to_pass_over(store: RedisStore) -> None:
    first, *others = [Job(f"x{n}", "t", "a", b"[[],{}]", "lane", priority=1) for n in range(1500)]
    store.push([first])
    store.exchange("w", [], [ClaimRequest("a", 1)], 1)
    store.push([*others, Job("high", "t", "a", b"[[],{}]", priority=1), Job("low", "t", "a", b"[[],{}]")])

    answer = store.exchange("w", [], [ClaimRequest("a", 1)], 1)

    assert (answer.claims, answer.more) == ([], True)
    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 2)], 2).claims] == ["high", "low"]


def test_all_lanes_that_end_at_once_are_free(store: RedisStore) -> None:
    store.push([Job(f"{lane}0", "t", "a", b"[[],{}]", lane) for lane in "xyz"])
    store.exchange("w", done(store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims), [], 0)
    store.push([Job(f"{lane}1", "t", "a", b"[[],{}]", lane) for lane in "xyz"])

    assert [one.unit.id for one in store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims] == ["x1", "y1", "z1"]


def test_a_lane_goes_on_behind_one_whose_record_is_gone(store: RedisStore) -> None:
    store.push(jobs("a", 3, "lane"))
    held = store.exchange("w", [], [ClaimRequest("a", 9)], 9).claims
    redisbench.server().ask("HDEL", queue_key("a", "JOB"), "a1")

    assert [one.unit.id for one in store.exchange("w", done(held), [ClaimRequest("a", 9)], 9).claims] == ["a2"]
