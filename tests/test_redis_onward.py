"""A lane that is worked off goes a short way on Redis. It must leave everything as the long way does.

Two databases of one server get the same jobs at the same time. In one every success goes the short way, which falls back where
it does not fit; in the other all goes the long way. Claims and keys must be the same after each step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redisbench
from conftest import Clock
from laneway.job import Claim, Job
from laneway.outcome import Done, Settled
from laneway.store.contract import Exchange, Want
from laneway.worker import Worker

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

import redis

from laneway import App
from laneway.store.redis import RedisInspect, RedisStore
from laneway.store.redis.exchange import ends_in_lane
from laneway.store.redis.keys import queue_key

#: What comes between two steps: mostly plain jobs of the lane.
ODD: dict[str, dict[str, Any]] = {
    "plain": {}, "other lane": {"lane": "b"}, "no lane": {"lane": None}, "late": {"delay": 3_000_000},
    "expires": {"expires": 2_000_000}, "unique": {"unique": "k"}, "urgent": {"lane": None, "priority": 1},
}  # fmt: skip
events = st.lists(
    st.sampled_from(["plain"] * 6 + [*ODD, "tick", "pause", "resume", "garbage", "note", "lose", *["settle"] * 6]),
    min_size=1, max_size=40,
)  # fmt: skip


class Side:
    """One of the two databases."""

    def __init__(self, number: int, *, short: bool) -> None:
        url = f"{redisbench.server().url.rpartition('/')[0]}/{number}"
        self.short = short
        self.clock = Clock()
        self.client: Any = redis.Redis.from_url(url)
        self.client.flushdb()
        self.store = RedisStore(url, clock=self.clock)
        self.held: list[Claim] = []

    def step(self, event: str, number: int) -> object:
        if event in ODD:
            return self.store.push([Job(f"j{number}", "t", "default", b"[[],{}]", **{"lane": "a", **ODD[event]})])
        if event == "tick":
            self.clock.advance(1)
        elif event in ("pause", "resume"):
            self.pause(event == "pause")
        elif event == "garbage":  # the next of the lane is none any more
            parked = self.client.zrange(queue_key("default", "PARKED") + "a", 0, 0)
            if parked:
                self.client.hset(queue_key("default", "JOB"), parked[0][8:], b"\x81" + b"d" * 17 + b"\xff\xff?")
        elif event == "note":
            self.store.note([(one.job.id, one.token, b'{"log":[]}') for one in self.held[:1]])
        elif event == "lose":  # somebody else has it, and we do not know
            self.store.give_back("w")
            self.store.exchange("x", [], [Want("default", 9)], 9)
        else:
            return self.settle()
        return None

    def pause(self, paused: bool) -> None:
        if self.store.queues.read():
            RedisInspect(self.store).pause("default", paused)

    def settle(self) -> object:
        """End the first of what is held, and claim: who is met behind its lane's holder is parked."""
        settled = [Settled(one, Done(), 1, 2) for one in self.held[:1]]
        answer = self.exchange(settled, [Want("default", 9)])
        self.held = self.held[1:] + answer.claims
        claims = [(claim.job, claim.token, claim.attempt, claim.due, claim.place) for claim in answer.claims]
        return answer.refused, claims, answer.more, answer.next_due

    def exchange(self, settled: list[Settled], wants: list[Want]) -> Exchange:
        if self.short and settled and ends_in_lane(settled[0]):
            return self.store._exchanges._go_on("w", settled, wants, 9)()
        return self.store.exchange("w", settled, wants, 9)

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


@settings(max_examples=100, deadline=None)
@given(events)
def test_the_short_way_leaves_what_the_long_way_leaves(moves: list[str]) -> None:
    short, long = Side(0, short=True), Side(1, short=False)
    try:
        for number, event in enumerate([*["plain"] * 4, "settle", *moves, *["settle"] * 5]):
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
