"""Random sequences of all verbs, on the store and on the model: the same answers, and the rules hold.

Several workers push, claim, settle, give back, die; clocks step forwards and backwards; requests and answers get lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import STORES, Bench, Clock, often
from laneway.core.job import STATES, Claim, Job
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, FinishMark, Outcome, Retrying, Snoozed
from laneway.errors import UnknownJob
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.inspection import Filter, JobInfo
from model import RULES, Model
from numbers_for_models import Numbered
from rules import missed_after
from settling import settled_alike

WORKERS = ("ann", "bob", "cyd")
QUEUES = ("default", "mail")
ERROR = ErrorInfo(kind="ValueError", message="no")

seconds = st.sampled_from([0, 0, 0, 1_000_000, 7_000_000])
numbers = st.integers(0, 30)
words = st.sampled_from(["crash", "timeout"])

push = st.tuples(
    st.just("push"),
    st.lists(
        st.tuples(
            numbers, st.sampled_from(QUEUES), st.sampled_from([None, "a", "a", "b"]), st.integers(-1, 2), seconds,
            st.sampled_from([None, None, "k", "l", "e", "e!", "e!"]),  # its key, see unique_of
            st.sampled_from([0, 0, 1_000_000, 3_000_000]),  # expires
        ),
        min_size=1, max_size=5,
    ),
)  # fmt: skip
outcomes = st.sampled_from(["done", "done", "done", "retrying", "snoozed", "dead", "halted", "cancelled"])
exchange = st.tuples(
    st.just("exchange"),
    st.sampled_from(WORKERS),
    st.lists(st.tuples(numbers, outcomes, seconds), max_size=4),  # which of its claims, and how they ended
    st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 4)), max_size=3),
    st.integers(0, 5),
    st.sampled_from(["heard", "heard", "heard", "heard", "request lost", "answer lost"]),
)
go_on = st.tuples(st.just("go_on"), numbers, st.integers(1, 3))
others = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([1, 500_000, 1_000_000, 10_000_000, -2_000_000])),
    st.tuples(st.just("stale"), st.sampled_from(WORKERS), numbers, outcomes),
    st.tuples(st.just("give_back"), st.sampled_from(WORKERS), st.sets(numbers, max_size=3)),
    st.tuples(st.just("recover"), st.sampled_from(WORKERS), st.dictionaries(numbers, words, min_size=1, max_size=3)),
    st.tuples(st.just("recover"), st.sampled_from(WORKERS), st.just({})),
    st.tuples(st.sampled_from(["pause", "resume"]), st.sampled_from(QUEUES)),
    st.tuples(st.just("finish"), numbers),
)
by_hand = st.one_of(
    st.tuples(st.sampled_from(["cancel", "delete", "kill"]), numbers),
    st.tuples(st.just("retry"), numbers),
    st.tuples(st.just("reschedule"), numbers, seconds),
    st.tuples(
        st.just("act_all"), st.sampled_from(["cancel", "delete", "kill", "retry", "reschedule"]), seconds,
        st.sampled_from([None, *STATES]), st.sampled_from([None, *QUEUES]), st.sampled_from([None, "a", "b"]),
    ),
    st.tuples(st.just("clear"), st.sampled_from(QUEUES)),
)  # fmt: skip
# Not one_of: it takes the others as equals and forgets what is named twice, and then hardly a claim is ever settled.
KINDS = (push, push, push, exchange, exchange, exchange, exchange, go_on, others, others, by_hand)
step = st.integers(0, len(KINDS) - 1).flatmap(lambda kind: KINDS[kind])
# Left to itself hypothesis prefers short lists; what is interesting takes dozens of steps.
steps = st.integers(1, 80).flatmap(lambda length: st.lists(step, min_size=length, max_size=length))


#: Steps among which a rule shows sooner: claims that nobody heard of are given back or recovered by others.
SOONER = {"unheard claims go back": st.lists(st.one_of(push, exchange), min_size=4, max_size=20)}


def outcome_of(name: str, after: int) -> Outcome:
    made: dict[str, Callable[[], Outcome]] = {
        "done": Done,
        "retrying": lambda: Retrying(after, ERROR),
        "snoozed": lambda: Snoozed(after),
        "dead": lambda: Dead(ERROR),
        "halted": lambda: Dead(ERROR, halt=True),
        "cancelled": Cancelled,
    }
    return made[name]()


class Play:
    """Plays each step on the model and, if there is one, on a store, and compares."""

    def __init__(self, bench: Bench | None, rules: frozenset[str] = RULES) -> None:
        self.bench = bench
        self.model = Model(rules)
        self.known: dict[str, dict[int, str]] = {worker: {} for worker in WORKERS}  # what it has heard of: token → id
        self.claims: dict[int, Claim] = {}  # all claims the store has given, heard or not
        self.seen: set[str] = set()  # queues that have had jobs
        self.loads: list[dict[str, int]] = [{}]  # the depths of queues, at first and after each exchange
        self.old: dict[str, list[tuple[str, int]]] = {worker: [] for worker in WORKERS}  # claims that have ended
        if bench is not None:
            bench.clock.now = self.model.clock
            bench.inspect.counts()  # both have seen this time

    def step(self, name: str, *values: Any) -> None:
        if name in ("cancel", "delete", "kill", "retry", "reschedule"):
            self.act(name, *values)
        else:
            getattr(self, name)(*values)
        self.model.begin()
        self.model.sound()
        self.compare()

    def compare(self) -> None:
        if self.bench is None:
            return
        page = self.bench.inspect.jobs(Filter(), 1000, None)
        assert {j.id: looks(j) for j in page} == self.model.picture()
        states = Counter(self.model.state(job) for job in self.model.jobs.values())
        assert {state: n for state, n in self.bench.inspect.counts().items() if n} == dict(states)
        totals = self.bench.inspect.totals()
        names = ("enqueued", "processed", "failed", "retried", "dead", "cancelled")
        assert {name: totals[name] for name in names} == {name: self.model.totals[name] for name in names}

    def tick(self, by: int) -> None:
        self.model.tick(by)
        if self.bench is not None:
            self.bench.clock.now += by

    def push(self, jobs: list[tuple[int, str, str | None, int, int, str | None, int]]) -> None:
        made = [
            (f"j{n}", queue, lane, 0 if lane else priority, delay, *unique_of(queue, key, expires))
            for n, queue, lane, priority, delay, key, expires in jobs
        ]
        answers = [self.model.push(*job) for job in made]
        self.seen |= {job[1] for job, answer in zip(made, answers, strict=True) if answer is None}
        if self.bench is not None:
            pushed = [
                Job(id_, "t", queue, b"[[],{}]", lane, priority, delay, unique=key, expires=expires, until_end=until_end)
                for id_, queue, lane, priority, delay, key, expires, until_end in made
            ]
            assert self.bench.store.push(pushed) == answers

    def exchange(
        self, worker: str, ended: list[tuple[int, str, int]], wants: list[tuple[str, int]], limit: int, fate: str
    ) -> None:
        settled: list[tuple[str, int, str, int]] = []
        for number, outcome, after in ended:
            known = [token for token in self.known[worker] if token not in {token for _, token, _, _ in settled}]
            if known:
                token = known[number % len(known)]
                settled.append((self.known[worker][token], token, outcome, after))
        if fate != "request lost":
            refused, claims = self.both(worker, settled, wants, limit)
            if fate == "heard":
                self.hear(worker, settled, claims)
                return
        # No answer: what the worker never heard of goes back, then it settles again; what is refused was settled before.
        keep = set(self.known[worker])
        answer = self.model.give_back(worker, keep)
        if self.bench is not None:
            assert sorted(self.bench.store.give_back(worker, keep)) == answer
        refused, claims = self.both(worker, settled, [], 0)
        assert fate == "request lost" or len(refused) == len(settled), "settled twice"
        self.hear(worker, settled, claims)

    def go_on(self, number: int, most: int) -> None:
        """One run ended well, and something of the same queue is wanted: so a lane is worked off."""
        known = [(who, token, id_) for who in WORKERS for token, id_ in self.known[who].items() if id_ in self.model.jobs]
        if known:
            worker, token, id_ = known[number % len(known)]
            settled = [(id_, token, "done", 0)]
            _, claims = self.both(worker, settled, [(self.model.jobs[id_].queue, most)], most)
            self.hear(worker, settled, claims)

    def both(
        self, worker: str, settled: list[tuple[str, int, str, int]], wants: list[tuple[str, int]], limit: int
    ) -> tuple[list[str], list[tuple[str, int, int, str]]]:
        self.model.begin()
        refused = [id_ for id_, token, outcome, after in settled if not self.model.settle(worker, id_, token, outcome, after)]
        claims = self.model.claim(worker, wants, limit)
        if self.bench is not None:
            given = [settled_alike(self.claims[token], outcome_of(outcome, after)) for _, token, outcome, after in settled]
            answer = self.bench.store.exchange(worker, given, [ClaimRequest(*want) for want in wants], limit)
            assert sorted(answer.refused) == sorted(refused)  # the contract promises no order
            assert [(c.unit.id, c.token, c.unit.attempt, c.lost) for c in answer.claims] == claims
            self.claims |= {claim.token: claim for claim in answer.claims}
            self.check_rest(answer, wants, exact=limit > 0 and not claims)
        return refused, claims

    def check_rest(self, answer: Exchange, wants: list[tuple[str, int]], *, exact: bool) -> None:
        wanted = {queue for queue, _ in wants} - self.model.paused
        jobs = [j for j in self.model.jobs.values() if j.queue in wanted and j.where == "waiting"]
        ready = Counter(j.queue for j in self.model.jobs.values() if j.where == "waiting" and j.due <= self.model.now)
        assert answer.more == any(j.due <= self.model.now for j in jobs)
        assert answer.next_due == (None if answer.more or not jobs else min(j.due for j in jobs) - self.model.now)
        self.loads.append({queue: n for queue, n in ready.items() if queue not in self.model.paused})
        # For a worker that gets something, or wants nothing, a store may remember each depth as it once was.
        known = self.loads[-1:] if exact else self.loads
        for queue in {*ready, *answer.loads}:
            assert answer.loads.get(queue, 0) in [loads.get(queue, 0) for loads in known]

    def hear(self, worker: str, settled: list[tuple[str, int, str, int]], claims: list[tuple[str, int, int, str]]) -> None:
        for id_, token, _, _ in settled:
            del self.known[worker][token]
            self.old[worker].append((id_, token))
        for id_, token, _, _ in claims:
            self.known[worker][token] = id_

    def stale(self, worker: str, number: int, outcome: str) -> None:
        """Somebody settles a claim that has ended, or one of another worker."""
        pool = self.old[worker] + [(id_, t) for other in WORKERS if other != worker for t, id_ in self.known[other].items()]
        if pool:
            id_, token = pool[number % len(pool)]
            refused, _ = self.both(worker, [(id_, token, outcome, 0)], [], 0)
            assert refused == [id_]

    def finish(self, number: int) -> None:
        """Finish a run in a transaction of a user's: one that is known, or one that has ended."""
        if self.bench is not None and not self.bench.store.capabilities.transactions:
            return
        known = [(id_, token) for worker in WORKERS for token, id_ in self.known[worker].items()]
        pool = known or [claim for worker in WORKERS for claim in self.old[worker]]
        if pool:
            id_, token = pool[number % len(pool)]
            answer = self.model.finish(id_, token)
            if self.bench is not None:
                assert finish_by_hand(self.bench.store, id_, token) == answer

    def give_back(self, worker: str, keep: set[int]) -> None:
        tokens = list(self.known[worker])
        kept = {tokens[n % len(tokens)] for n in keep} if tokens else set()
        answer = self.model.give_back(worker, kept)
        if self.bench is not None:
            assert sorted(self.bench.store.give_back(worker, kept)) == answer
        self.forget(worker, kept)

    def recover(self, worker: str, lost: dict[int, str]) -> None:
        tokens = list(self.known[worker])
        told = {tokens[n % len(tokens)]: word for n, word in lost.items()} if tokens else {}
        answer = self.model.give_back(worker, died=True, lost=told)
        if self.bench is not None:
            assert sorted(self.bench.store.recover(worker, "killed", told)) == answer
        self.forget(worker, set())

    def forget(self, worker: str, kept: set[int]) -> None:
        self.old[worker] += [(id_, token) for token, id_ in self.known[worker].items() if token not in kept]
        self.known[worker] = {token: known for token, known in self.known[worker].items() if token in kept}

    def choose(self, name: str, number: int) -> str:
        """Mostly somebody for whom the action means something."""
        jobs = self.model.jobs.values()
        fit = [j.id for j in jobs if name != "retry" or j.where == "dead" or j.failed]
        heads = [j.id for j in jobs if j.where == "waiting" and self.model.holds(j)]
        if heads and name != "retry" and number % 2:
            fit = heads
        return fit[number % len(fit)] if fit and number < 28 else f"j{number}"

    def act(self, name: str, number: int, delay: int = 0) -> None:
        id_ = self.choose(name, number)
        answer = self.model.act(name, id_, delay)
        if self.bench is None:
            return
        act, more = getattr(self.bench.inspect, name), (delay, 0) if name == "reschedule" else ()
        if answer is None:
            with pytest.raises(UnknownJob):
                act(id_, *more)
        else:
            assert act(id_, *more) is answer

    def act_all(self, name: str, delay: int, state: str | None, queue: str | None, lane: str | None) -> None:
        answer = self.model.act_all(name, delay, state=state, queue=queue, lane=lane)
        if self.bench is not None:
            assert self.bench.inspect.act_all(name, Filter(state, queue, lane=lane), delay) == answer

    def clear(self, queue: str) -> None:
        answer = self.model.act_all("delete", 0, state="waiting", queue=queue, lane=None)
        if self.bench is not None:
            assert self.bench.inspect.clear(queue) == answer

    def pause(self, queue: str) -> None:
        self.switch(queue, paused=True)

    def resume(self, queue: str) -> None:
        self.switch(queue, paused=False)

    def switch(self, queue: str, *, paused: bool) -> None:
        if not paused and queue not in self.seen | self.model.paused:
            return  # nobody knows it
        (self.model.paused.add if paused else self.model.paused.discard)(queue)
        if self.bench is not None:
            self.bench.inspect.pause(queue, paused)

    def end(self) -> None:
        """Workers that live settle what they know; then everything drains in bounded turns, once nobody fails any more."""
        for worker in WORKERS:
            everything = [(id_, token, "done", 0) for token, id_ in self.known[worker].items()]
            self.both(worker, everything, [], 0)
        for queue in sorted(self.model.paused):
            self.switch(queue, paused=False)
        self.act_all("retry", 0, "dead", None, None)  # those that halt their lanes too
        for _ in range(3 * len(self.model.jobs) + 3):
            self.tick(100_000_000)
            _, claims = self.both("ann", [], [(queue, 3) for queue in QUEUES], 9)
            self.both("ann", [(id_, token, "done", 0) for id_, token, _, _ in claims], [], 0)
            self.model.sound()
        # Claims that nobody knows of would stay for ever.
        assert all(job.where == "dead" for job in self.model.jobs.values()), "starved"
        self.compare()


def unique_of(queue: str, key: str | None, expires: int) -> tuple[str | None, int, bool]:
    """The key, the expiry, and whether the key lasts until the end.

    Keys that may do so are the queue's own: on Redis a replay looks no further.
    """
    return f"{queue}:e" if key in ("e", "e!") else key, expires, key == "e!"


def finish_by_hand(store: Any, id_: str, token: int) -> bool:
    """Do what the user's transaction does, in one of the store."""
    mark = msgspec.json.encode(FinishMark(1, 2))
    token = store.token(token) if isinstance(store, Numbered) else token
    with store.turn() as turn:
        return bool(turn.change("finish_claim", id=id_, token=token, finish=mark))


def looks(job: JobInfo) -> tuple[object, ...]:
    """A job as the model pictures it."""
    place, due = (instant(moment) for moment in (job.place_at, job.due_at))
    expires = None if job.expires_at is None else instant(job.expires_at)
    return (
        job.queue, job.lane, job.state, job.attempt, job.worker, job.token, job.mark, place, due, job.holds, job.unique, expires,
    )  # fmt: skip


def instant(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def play(moves: list[Any], bench: Bench | None, rules: frozenset[str] = RULES) -> None:
    game = Play(bench, rules)
    for move in moves:
        game.step(*move)
    game.end()


@pytest.mark.model
@pytest.mark.timeout(often(300, 3 * 3600))
@pytest.mark.parametrize("name", STORES)
def test_the_store_answers_as_the_model_does(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    # In memory a step costs least: most examples run there.
    examples = often(
        {"sqlite-memory": 60, "postgres": 10}.get(name, 15), 20_000 if name in ("sqlite-memory", "postgres") else 1_200
    )

    @settings(max_examples=examples)
    @given(steps)
    def run(moves: list[Any]) -> None:
        folder: Path = tmp_path_factory.mktemp("model")
        bench = STORES[name](folder, Clock())
        try:
            play(moves, bench)
        finally:
            bench.store.close()

    run()


@pytest.mark.model
@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_a_rule_the_invariants_break(rule: str) -> None:
    missed_after(
        "model", rule, SOONER.get(rule, steps), lambda moves, ruled: play(moves, None, RULES if ruled else RULES - {rule})
    )
