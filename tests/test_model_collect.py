"""Random sequences of all verbs on collectors, on the store and on the model: the same answers, and nothing is lost.

Several workers push, claim, settle lane by lane, give back, die; clocks step forwards and backwards; requests and answers get
lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import STORES, Bench, Clock, often
from laneway.core.job import STATES, Claim, Gather, Job, lane_id, payload_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import UnknownJob
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.inspection import Filter
from laneway.store.sqlite.statements import SQL
from laneway.store.statistics import TOTALS
from model_collect import RULES, Held, Key, Model, Run
from rules import missed_after
from test_model import instant

WORKERS = ("ann", "bob", "cyd")
QUEUES = ("orders", "mail")
LANES = ("a", "b", "c")
KEYS = [(queue, lane) for queue in QUEUES for lane in LANES]
ERROR = ErrorInfo(kind="ValueError", message="no")

#: A lane's end: its outcome, how long after, and which payloads die.
End = tuple[str, int, tuple[str, ...]]

seconds = st.sampled_from([0, 0, 0, 1_000_000, 7_000_000])
numbers = st.integers(0, 30)
words = st.sampled_from(["crash", "timeout"])
lanes = st.sampled_from([KEYS[0], KEYS[0], KEYS[0], *KEYS])
values = st.sampled_from("1234")

push = st.tuples(
    st.just("push"),
    st.lists(
        st.tuples(
            lanes, values, st.sampled_from([None, None, 1.0, 2.0, 3.0]), seconds,  # score, delay
            st.sampled_from([0, 0, 0, 2_000_000]), st.sampled_from([0, 3_000_000]),  # quiet, longest
        ),
        min_size=1, max_size=6,
    ),
)  # fmt: skip
outcomes = st.sampled_from(["done", "done", "retrying", "retrying", "snoozed", "dead", "dead", "cancelled"])
end = st.tuples(outcomes, seconds, st.sampled_from([(), (), ("1",), ("9", "2", "3")]))
exchange = st.tuples(
    st.just("exchange"),
    st.sampled_from(WORKERS),
    st.lists(st.tuples(numbers, st.lists(end, min_size=3, max_size=3)), max_size=3),  # which of its claims, and its lanes' ends
    st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 0, 1, 2])), max_size=2),
    st.integers(0, 4),
    st.sampled_from(["heard", "heard", "heard", "heard", "request lost", "answer lost"]),
)
others = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([1, 500_000, 1_000_000, 10_000_000, -2_000_000])),
    st.tuples(st.just("stale"), st.sampled_from(WORKERS), numbers, end),
    st.tuples(st.just("give_back"), st.sampled_from(WORKERS), st.sets(numbers, max_size=3)),
    st.tuples(st.just("recover"), st.sampled_from(WORKERS), st.dictionaries(numbers, words, max_size=3)),
)
by_hand = st.one_of(
    st.tuples(st.just("act"), st.sampled_from(["cancel", "delete", "kill", "retry", "reschedule"]), lanes, seconds),
    st.tuples(st.just("act_dead"), st.sampled_from(["retry", "retry", "delete", "kill", "reschedule"]), numbers),
    st.tuples(st.just("drop_oldest"), lanes),
    st.tuples(
        st.just("act_all"), st.sampled_from(["cancel", "delete", "kill", "retry", "reschedule"]), seconds,
        st.sampled_from([None, *STATES]), st.sampled_from([None, *QUEUES]), st.sampled_from([None, *LANES]), st.booleans(),
    ),
    st.tuples(st.just("clear"), st.sampled_from(QUEUES)),
)  # fmt: skip
KINDS = (push, push, push, exchange, exchange, exchange, exchange, exchange, others, by_hand)
step = st.integers(0, len(KINDS) - 1).flatmap(lambda kind: KINDS[kind])
steps = st.integers(1, 60).flatmap(lambda length: st.lists(step, min_size=length, max_size=length))


#: Steps among which a rule shows sooner: claims that nobody heard of are given back or recovered by others.
SOONER = {"unheard claims go back": st.lists(st.one_of(push, exchange), min_size=4, max_size=20)}


def outcome_of(name: str, after: int, named: tuple[str, ...]) -> Outcome:
    made: dict[str, Callable[[], Outcome]] = {
        "done": Done,
        "retrying": lambda: Retrying(after, ERROR),
        "snoozed": lambda: Snoozed(after),
        "dead": lambda: Dead(ERROR, payloads=tuple(body.encode() for body in named)),
        "cancelled": Cancelled,
    }
    return made[name]()


class Play:
    """Plays each step on the model and, if there is one, on a store, and compares."""

    def __init__(self, bench: Bench | None, rules: frozenset[str] = RULES) -> None:
        self.bench = bench
        self.model = Model(rules)
        self.known: dict[str, dict[int, Run]] = {worker: {} for worker in WORKERS}  # what it has heard of, by token
        self.claims: dict[int, Claim] = {}  # all claims the store has given, heard or not, by the model's tokens
        self.tokens: dict[int | None, int | None] = {None: None}  # the store's tokens → the model's
        self.highest: dict[str, int] = {}  # of the store's tokens, by queue
        self.old: dict[str, list[Run]] = {worker: [] for worker in WORKERS}  # claims that have ended
        self.loads: list[dict[str, int]] = [{}]  # the depths of queues, at first and after each exchange
        if bench is not None:
            bench.clock.now = self.model.clock
            bench.inspect.counts()  # both have seen this time

    def step(self, name: str, *values: Any) -> None:
        getattr(self, name)(*values)
        self.model.begin()
        self.model.sound()
        self.compare()

    def compare(self) -> None:
        if self.bench is None:
            return
        inspect, model = self.bench.inspect, self.model
        jobs = inspect.jobs(Filter(), 1000, None)
        found = {
            (job.queue, job.lane): (
                job.state, job.attempt, job.worker, self.tokens[job.token], job.mark, instant(job.due_at),
                instant(job.enqueued_at), job.payloads,
            )
            for job in jobs
            if job.payloads is not None
        }  # fmt: skip
        assert found == model.picture()
        for key in model.lanes:
            held = [(p.body.decode(), about(p.score), p.running) for p in inspect.payloads(*key, 100, None)]
            assert held == [(body, about(score), running) for body, score, running in model.payloads(key)]
        buried = {
            job.id: (job.queue, job.lane, about(job.score), instant(job.due_at), job.attempt)
            for job in jobs
            if job.payloads is None
        }
        assert buried == {
            payload_id(*key, body.encode()): (*key, about(corpse.score), corpse.died, corpse.attempt)
            for (key, body), corpse in model.dead.items()
        }
        states = Counter(model.state(lane) for lane in model.lanes.values()) + Counter(dead=len(model.dead))
        assert {state: n for state, n in inspect.counts().items() if n} == dict(states)
        totals = inspect.totals()
        assert {name: totals[name] for name in TOTALS} == {name: model.totals[name] for name in TOTALS}

    def compare_lanes(self) -> None:
        if self.bench is None:
            return
        found = {(lane.queue, lane.lane): lane for lane in self.bench.inspect.lanes(None, "name", 99, None)}
        assert {key: (lane.state, lane.attempts, lane.size, lane.head) for key, lane in found.items()} == {
            key: (self.model.state(lane), lane.attempt, len(lane.waits) + len(lane.runs or {}), lane_id(*key))
            for key, lane in self.model.lanes.items()
        }

    def tick(self, by: int) -> None:
        self.model.clock += by
        if self.bench is not None:
            self.bench.clock.now += by

    def push(self, pushed: list[tuple[Key, str, float | None, int, int, int]]) -> None:
        self.model.begin()
        for key, body, score, delay, quiet, longest in pushed:
            self.model.push(key, body, score, delay, quiet, longest)
        if self.bench is not None:
            jobs = [
                Job(lane_id(*key), "t", key[0], body.encode(), key[1], 0, delay, gather=Gather(score, quiet, longest))
                for key, body, score, delay, quiet, longest in pushed
            ]
            assert self.bench.store.push(jobs) == [None] * len(jobs)

    def exchange(
        self, worker: str, ended: list[tuple[int, list[End]]], wants: list[tuple[str, int, int, int]], limit: int, fate: str
    ) -> None:
        settled: list[tuple[Run, list[End]]] = []
        for number, ends in ended:
            known = [run for run in self.known[worker].values() if run not in [run for run, _ in settled]]
            if known:
                settled.append((known[number % len(known)], ends))
        if fate != "request lost":
            refused, runs = self.both(worker, settled, wants, limit)
            if fate == "heard":
                self.hear(worker, settled, runs)
                return
        # No answer: what the worker never heard of goes back, then it settles again; what is refused was settled before.
        keep = set(self.known[worker])
        back = self.model.give_back(worker, keep)
        if self.bench is not None:
            kept = [self.claims[token].token for token in keep]
            assert sorted(self.bench.store.give_back(worker, kept)) == sorted(lane_id(*key) for key in back)
        refused, runs = self.both(worker, settled, [], 0)
        assert fate == "request lost" or len(refused) == sum(len(run.lanes) for run, _ in settled), "settled twice"
        self.hear(worker, settled, runs)

    def both(
        self, worker: str, settled: list[tuple[Run, list[End]]], wants: list[tuple[str, int, int, int]], limit: int
    ) -> tuple[list[str], list[Run]]:
        model = self.model
        model.begin()
        refused = [
            lane_id(*held.key)
            for run, ends in settled
            for held, end in zip(run.lanes, ends, strict=False)
            if not model.settle(worker, held.key, run.token, *end)
        ]
        if self.bench is None:
            return refused, model.claim(worker, wants, limit)
        given = [
            Settled(self.claims[run.token], tuple(outcome_of(*end) for end in ends[: len(run.lanes)])) for run, ends in settled
        ]
        answer = self.bench.store.exchange(worker, given, [ClaimRequest(*want) for want in wants], limit)
        told = [(claim.queue, str(lane.lane)) for claim in answer.claims for lane in claim.units]
        runs = model.claim(worker, wants, limit, told)
        assert sorted(answer.refused) == sorted(refused)  # the contract promises no order
        self.hear_tokens(answer.claims, runs)
        assert [heard(claim, self.tokens[claim.token] or 0) for claim in answer.claims] == [rounded(run) for run in runs]
        self.check_rest(answer, {want[0] for want in wants}, exact=limit > 0 and not runs)
        return refused, runs

    def hear_tokens(self, given: list[Claim], runs: list[Run]) -> None:
        """A store's tokens are its own, as long as each is new, and greater than those of its queue before."""
        for claim, run in zip(given, runs, strict=True):
            assert claim.token > self.highest.get(claim.queue, 0)
            assert claim.token not in self.tokens
            self.claims[run.token], self.tokens[claim.token], self.highest[claim.queue] = claim, run.token, claim.token

    def check_rest(self, answer: Exchange, wanted: set[str], *, exact: bool) -> None:
        now, waiting = self.model.now, [lane for lane in self.model.lanes.values() if lane.runs is None]
        mine = [lane for lane in waiting if lane.key[0] in wanted]
        assert answer.more == any(lane.due <= now for lane in mine)
        assert answer.next_due == (None if answer.more or not mine else min(lane.due for lane in mine) - now)
        ready = Counter(lane.key[0] for lane in waiting if lane.due <= now)
        self.loads.append(ready)
        # For a worker that gets something, or wants nothing, a store may remember each depth as it once was.
        known = self.loads[-1:] if exact else self.loads
        for queue in {*ready, *answer.loads}:
            assert answer.loads.get(queue, 0) in [loads.get(queue, 0) for loads in known]

    def hear(self, worker: str, settled: list[tuple[Run, list[End]]], runs: list[Run]) -> None:
        for run, _ in settled:
            self.old[worker].append(self.known[worker].pop(run.token))
        self.known[worker] |= {run.token: run for run in runs}

    def stale(self, worker: str, number: int, end: End) -> None:
        """Somebody settles a claim that has ended, or one of another worker."""
        pool = self.old[worker] + [run for other in WORKERS if other != worker for run in self.known[other].values()]
        if pool:
            run = pool[number % len(pool)]
            refused, _ = self.both(worker, [(run, [end] * len(run.lanes))], [], 0)
            assert refused == [lane_id(*held.key) for held in run.lanes]

    def give_back(self, worker: str, keep: set[int]) -> None:
        tokens = list(self.known[worker])
        kept = {tokens[n % len(tokens)] for n in keep} if tokens else set()
        back = self.model.give_back(worker, kept)
        if self.bench is not None:
            told = [self.claims[token].token for token in kept]
            assert sorted(self.bench.store.give_back(worker, told)) == sorted(lane_id(*key) for key in back)
        self.forget(worker, kept)

    def recover(self, worker: str, lost: dict[int, str]) -> None:
        tokens = list(self.known[worker])
        told = {tokens[n % len(tokens)]: word for n, word in lost.items()} if tokens else {}
        back = self.model.give_back(worker, died=True, lost=told)
        if self.bench is not None:
            said = {self.claims[token].token: word for token, word in told.items()}
            assert sorted(self.bench.store.recover(worker, "killed", said)) == sorted(lane_id(*key) for key in back)
        self.forget(worker, set())

    def forget(self, worker: str, kept: set[int]) -> None:
        self.old[worker] += [run for token, run in self.known[worker].items() if token not in kept]
        self.known[worker] = {token: run for token, run in self.known[worker].items() if token in kept}

    def act(self, name: str, key: Key, delay: int) -> None:
        delay = delay if name == "reschedule" else 0
        self.acted(name, lane_id(*key), delay, self.model.act(name, key, delay))

    def act_dead(self, name: str, number: int) -> None:
        dead = sorted(self.model.dead)
        key, body = dead[number % len(dead)] if dead else (KEYS[0], "1")
        self.acted(name, payload_id(*key, body.encode()), 0, self.model.act_dead(name, key, body))

    def acted(self, name: str, id_: str, delay: int, answer: bool | None) -> None:
        if self.bench is None:
            return
        act, more = getattr(self.bench.inspect, name), (delay, 0) if name == "reschedule" else ()
        if answer is None:
            with pytest.raises(UnknownJob):
                act(id_, *more)
        else:
            assert act(id_, *more) is answer

    def drop_oldest(self, key: Key) -> None:
        answer = self.model.drop_oldest(key)
        if self.bench is not None:
            dropped = self.bench.inspect.drop_oldest(*key)
            assert (dropped and (dropped.body.decode(), about(dropped.score))) == (answer and (answer[0], about(answer[1])))

    def act_all(self, name: str, delay: int, state: str | None, queue: str | None, lane: str | None, failing: bool) -> None:
        delay = delay if name == "reschedule" else 0
        answer = self.model.act_all(name, delay, state, queue, lane, failing)
        if self.bench is not None:
            assert self.bench.inspect.act_all(name, Filter(state, queue, lane=lane, failing=failing), delay) == answer

    def clear(self, queue: str) -> None:
        answer = self.model.act_all("delete", 0, "waiting", queue, None, failing=False)
        if self.bench is not None:
            assert self.bench.inspect.clear(queue) == answer

    def end(self) -> None:
        """Workers that live settle what they know; then everything drains in bounded turns, once nobody fails any more."""
        self.compare_lanes()
        done: list[End] = [("done", 0, ())] * len(KEYS)
        for worker in WORKERS:
            self.both(worker, [(run, done[: len(run.lanes)]) for run in self.known[worker].values()], [], 0)
        for _ in range(5 * len(KEYS)):
            self.tick(100_000_000)
            _, runs = self.both("ann", [], [(queue, 3, 2, 2) for queue in QUEUES], 9)
            self.both("ann", [(run, done[: len(run.lanes)]) for run in runs], [], 0)
            self.model.sound()
            if not self.model.lanes:
                break
        # Claims that nobody knows of would stay for ever.
        assert not self.model.lanes, "starved"
        self.compare()


def about(score: float | None) -> float | None:
    """A score without what keeps it from a tie: how a store does that is its own affair."""
    return None if score is None else round(score, 3)


def rounded(run: Run) -> Run:
    lanes = (held._replace(payloads=tuple((body, round(score, 3)) for body, score in held.payloads)) for held in run.lanes)
    return run._replace(lanes=tuple(lanes))


def heard(claim: Claim, token: int) -> Run:
    """A claim as the model hears of it."""
    lanes = tuple(
        Held(
            (claim.queue, str(lane.lane)), tuple((payload.body.decode(), round(payload.score, 3)) for payload in lane.payloads),
            lane.attempt, lane.enqueued, lane.due,
        )
        for lane in claim.units
    )  # fmt: skip
    return Run(token, lanes, claim.lost)


def play(moves: list[Any], bench: Bench | None, rules: frozenset[str] = RULES) -> None:
    game = Play(bench, rules)
    for move in moves:
        game.step(*move)
    game.end()


@pytest.mark.model
@pytest.mark.parametrize("name", STORES)
def test_the_store_answers_as_the_model_does(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    examples = often(40, 6_000) if name.endswith("memory") else often(6 if name == "postgres" else 10, 600)

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
def test_without_a_rule_the_ledger_does_not_balance(rule: str) -> None:
    rest = RULES - {rule}
    missed_after("model_collect", rule, SOONER.get(rule, steps), lambda moves, ruled: play(moves, None, RULES if ruled else rest))


@pytest.mark.model
@pytest.mark.parametrize(
    ("rule", "statement", "words", "without"),
    [
        ("the larger score counts", "payload_merge", "excluded.score > old.score then excluded.score else old.score",
         "true then old.score"),
        ("the earlier arrival counts", "payload_merge", "excluded.arrival < old.arrival then excluded.arrival else old.arrival",
         "true then old.arrival"),
        ("the first to arrive dies", "payloads_first", "order by arrival", "order by score, arrival"),
    ],
)  # fmt: skip
def test_a_store_without_a_rule_is_found_out(
    rule: str, statement: str, words: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_it_is = SQL[statement]
    broken = as_it_is.replace(words, without)
    assert broken != as_it_is

    def on_store(moves: list[Any], ruled: bool) -> None:
        monkeypatch.setitem(SQL, statement, as_it_is if ruled else broken)
        bench = STORES["sqlite-memory"](Path(), Clock())
        try:
            play(moves, bench)
        finally:
            bench.store.close()

    missed_after("model_collect", rule, steps, on_store)
