"""Plain jobs, and a lane that is worked off, go a short way on Redis. It must leave everything as the long way does.

Two databases of one server get the same jobs at the same time. In one every success goes the short way, which falls back where
it does not fit; in the other all goes the long way. Claims and keys must be the same after each step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import redisbench
from conftest import Clock, often
from laneway.job import Claim, Job
from laneway.outcome import Done, ErrorInfo, Outcome, Retrying, Settled
from laneway.store.contract import Exchange, Want
from laneway.worker import Worker

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

import redis

from laneway import App
from laneway.store.redis import RedisInspect, RedisStore, rounds
from laneway.store.redis.ends import sort_out
from laneway.store.redis.keys import queue_key

#: What comes between two steps: mostly jobs that have nothing special about them, but perhaps their lane.
ODD: dict[str, dict[str, Any]] = {
    "usual": {}, "other lane": {"lane": "b"}, "no lane": {"lane": None}, "late": {"delay": 3_000_000},
    "expires": {"expires": 2_000_000}, "unique": {"unique": "k"}, "urgent": {"lane": None, "priority": 1},
}  # fmt: skip
OTHERS = ["tick", "pause", "resume", "garbage", "note", "lose", "fail"]
STEPS = ["settle", "settle three", "settle all", "settle only"]
#: Something is held and something waits; something odd happens; a step is made.
phrases = st.tuples(
    st.lists(st.sampled_from(["usual", "settle"]), max_size=4), st.sampled_from(["usual", *ODD, *OTHERS]), st.sampled_from(STEPS)
)
events = st.lists(phrases, min_size=1, max_size=12).map(
    lambda said: [word for before, odd, step in said for word in (*before, odd, step)]
)


_DONE = Done()


class Side:
    """One of the two databases."""

    def __init__(self, number: int, *, short: bool, lane: str | None) -> None:
        url = f"{redisbench.server().url.rpartition('/')[0]}/{number}"
        self.short = short
        self.lane = lane
        self.clock = Clock()
        self.client: Any = redis.Redis.from_url(url)
        self.client.flushdb()
        self.store = RedisStore(url, clock=self.clock)
        self.held: list[Claim] = []

    def step(self, event: str, number: int) -> object:
        if event in ODD:
            return self.store.push([Job(f"j{number}", "t", "default", b"[[],{}]", **{"lane": self.lane, **ODD[event]})])
        if event == "tick":
            self.clock.advance(1)
        elif event in ("pause", "resume"):
            self.pause(event == "pause")
        elif event == "garbage":  # the next is none any more
            key = "DUE0" if self.lane is None else f"PARKED{self.lane}"
            waiting = self.client.zrange(queue_key("default", key.rstrip("0a"), key[-1]), 0, 0)
            if waiting:
                self.client.hset(queue_key("default", "JOB"), waiting[0][8:], b"\x81" + b"d" * 17 + b"\xff\xff?")
        elif event == "note":
            self.store.note([(one.unit.id, one.token, b'{"log":[]}') for one in self.held[:1]])
        elif event == "lose":  # somebody else has it, and we do not know
            self.store.give_back("w")
            self.store.exchange("x", [], [Want("default", 9)], 9)
        elif event == "fail":
            return self.settle(1, 1, Retrying(1_000_000, ErrorInfo("e", "m")))
        else:
            return self.settle(*{"settle": (1, 9), "settle three": (3, 2), "settle all": (9, 9), "settle only": (2, 0)}[event])
        return None

    def pause(self, paused: bool) -> None:
        if self.store.queues.read():
            RedisInspect(self.store).pause("default", paused)

    def settle(self, number: int, most: int, outcome: Outcome = _DONE) -> object:
        """End the first of what is held, and claim: who is met behind its lane's holder is parked."""
        settled = [Settled.alike(one, outcome, 1, 2) for one in self.held[:number]]
        answer = self.exchange(settled, [Want("default", most)] if most else [], most)
        self.held = self.held[number:] + answer.claims
        claims = [(claim.unit, claim.token, claim.unit.attempt, claim.unit.due, claim.unit.place) for claim in answer.claims]
        return answer.refused, claims, answer.more, answer.next_due

    def exchange(self, settled: list[Settled], wants: list[Want], limit: int) -> Exchange:
        ends = sort_out(settled)
        if self.short and (settled or limit):
            shares = {} if settled and ends.by_queue["default"].goes_on() else {"default": limit}
            self.store._exchanges._missed = 0.0  # a miss is no reason to go the long way
            hear = self.store._exchanges.short("w", ends, shares, wants, limit)
            if hear is not None:
                return hear()
        with mock.patch.object(rounds.Rounds, "_command", rounds.Rounds._full_command):
            return self.store.exchange("w", settled, wants, limit)

    def keys(self) -> dict[bytes, object]:
        """All that is there; the long way counts sequence numbers and rings where the short one need not."""
        return {key: self.read(key) for key in self.client.keys("*") if not key.endswith(b"bell")}

    def read(self, key: bytes) -> object:
        match self.client.type(key):
            case b"hash":
                return {name: value for name, value in self.client.hgetall(key).items() if not (name == b"seq" and value == b"0")}
            case b"zset":
                return self.client.zrange(key, 0, -1, withscores=True)
            case b"list":
                return self.client.lrange(key, 0, -1)
            case b"set":
                return self.client.smembers(key)
            case _:
                return self.client.get(key)

    def close(self) -> None:
        self.store.close()
        self.client.flushdb()
        self.client.close()


@pytest.mark.model
@settings(max_examples=often(20, 1_000), deadline=None)
@given(st.sampled_from([None, "a"]), events)
@example(None, ["usual", "pause", "settle", "resume"])
@example(None, ["usual", "urgent", "settle three"])
@example(None, ["usual", "note", "settle all"])
def test_the_short_way_leaves_what_the_long_way_leaves(lane: str | None, moves: list[str]) -> None:
    short, long = Side(0, short=True, lane=lane), Side(1, short=False, lane=lane)
    try:
        for number, event in enumerate([*["usual"] * 4, "settle", *moves, *["settle"] * 5]):
            assert short.step(event, number) == long.step(event, number)
            assert short.keys() == long.keys()
    finally:
        short.close()
        long.close()


@pytest.fixture
def app() -> Iterator[App]:
    made = App(redisbench.emptied().url)
    yield made
    made.close()


def test_plain_jobs_go_the_short_way(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    long: list[int] = []
    send = rounds.Rounds.send

    def counted(call: rounds.Rounds) -> None:
        long.append(1)
        send(call)

    monkeypatch.setattr(rounds.Rounds, "send", counted)

    @app.task(name="note")
    def note(number: int) -> None:
        ran.append(number)

    note.enqueue_many([(number,) for number in range(2000)])

    Worker(app, slots=4).run(burst=True)

    assert sorted(ran) == list(range(2000))
    assert 1000 <= int(redisbench.server().ask("HGET", queue_key("default", "META"), "runs")) <= 1500  # others are forgotten
    assert len(long) < 100  # to begin with, to end with, and now and then; of 500 exchanges or more


def test_a_lane_is_worked_off_the_short_way(app: App) -> None:
    ran: list[int] = []

    @app.task(name="note", lane=lambda number: "all")
    def note(number: int) -> None:
        ran.append(number)

    note.enqueue_many([(number,) for number in range(300)])
    redisbench.server().ask("CONFIG", "RESETSTAT")

    Worker(app, slots=4).run(burst=True)

    assert ran == list(range(300))
    # The long way takes a job from the index of those that are due; the short one from its lane.
    taken = redisbench.server().ask("INFO", "commandstats").decode()
    by_rank = [line for line in taken.splitlines() if line.startswith("cmdstat_zremrangebyrank:")]
    assert not by_rank or int(by_rank[0].partition("calls=")[2].partition(",")[0]) < 150


@pytest.fixture
def store() -> Iterator[RedisStore]:
    made = RedisStore(redisbench.emptied().url)
    yield made
    made.close()


def jobs(queue: str, number: int, lane: str | None = None) -> list[Job]:
    return [Job(f"{queue}{n}", "t", queue, b"[[],{}]", lane) for n in range(number)]


def test_where_one_queue_is_not_plain_the_others_go_the_short_way(store: RedisStore) -> None:
    store.push([*jobs("a", 4), *jobs("b", 3, "lane"), *jobs("c", 2)])
    held = store.exchange("w", [], [Want("a", 2)], 2).claims
    ends = sort_out([Settled.alike(one, Done(), 1, 2) for one in held])
    wants = [Want(queue, 9) for queue in "abc"]

    hear = store._exchanges.short("w", ends, {"a": 2, "b": 3, "c": 1}, wants, 9)

    assert hear is not None
    answer = hear()
    assert [one.unit.id for one in answer.claims] == ["a2", "a3", "c0"]
    assert answer.refused == []
    assert answer.more
    assert [one.unit.id for one in store.exchange("w", [], wants, 9).claims] == ["b0", "c1"]  # the long way


def test_what_is_not_held_any_more_is_refused_on_the_short_way_too(store: RedisStore) -> None:
    store.push([*jobs("a", 2), *jobs("b", 2)])
    held = store.exchange("w", [], [Want("a", 2), Want("b", 2)], 4).claims
    store.give_back("w", keep=[one.token for one in held if one.unit.id != "b1"])

    hear = store._exchanges.short("w", sort_out([Settled.alike(one, Done(), 1, 2) for one in held]), {}, [], 0)

    assert hear is not None
    assert hear().refused == ["b1"]
    assert [one.unit.id for one in store.exchange("w", [], [Want("a", 2), Want("b", 2)], 4).claims] == ["b1"]


@pytest.mark.parametrize(("number", "wide"), [(5, False), (50, True)])
def test_who_holds_many_has_a_table_and_no_list(store: RedisStore, number: int, wide: bool) -> None:
    store.push(jobs("a", 50))
    store.exchange("w", [], [Want("a", number)], number)

    encoding = redisbench.server().ask("OBJECT", "ENCODING", queue_key("a", "RUNNING", "w"))

    assert (encoding == b"hashtable") == wide
    assert redisbench.server().ask("HLEN", queue_key("a", "RUNNING", "w")) == number
