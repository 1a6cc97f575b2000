"""Copies: a store with jobs in every state is moved into another, and looks and works there as it did before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import redisbench
from conftest import PATIENCE, SOAK, Bench, Clock, postgres, sqlite_file
from laneway.core.buckets import Report
from laneway.core.error_groups import fault_of
from laneway.core.job import Claim, Gather, Job, lane_id, payload_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Snoozed
from laneway.errors import ConfigError, StoreError, StoreMoved, StoreUnavailable
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, Occurrence, Store, WorkerInfo
from laneway.store.inspection import Filter
from laneway.store.moving import Side, copy_store, reopen_store, side_of
from laneway.store.transfer import Portion, transfer_of
from settling import settled_alike

ERROR = ErrorInfo(kind="ValueError", message="no", traceback="Traceback: " + "line\n" * 300)
SECOND = 1_000_000
HOUR = 3600 * SECOND


def redis_number(database: int, clock: Clock) -> Bench:
    from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - its driver may be missing

    url = redisbench.server().url.removesuffix("/0") + f"/{database}"
    store = RedisStore(url, clock=clock, dead_after=0.2, timeout=PATIENCE, enqueue_timeout=PATIENCE)
    return Bench(store, RedisInspect(store), clock, step="change")


def a_store(kind: str, role: str, folder: Path, clock: Clock) -> Bench:
    if kind == "redis":
        return redis_number(1 if role == "source" else 2, clock)
    if kind != "sqlite":
        raise ValueError(f"a store that this does not make: {kind}")
    (folder / role).mkdir()
    return sqlite_file(folder / role, clock)


PAIRS = [
    ("sqlite", "redis"), ("redis", "sqlite"), ("sqlite", "sqlite"), ("redis", "redis"), ("sqlite", "postgres"),
    ("postgres", "sqlite"), ("redis", "postgres"), ("postgres", "redis"),
]  # fmt: skip


#: Each store once as the source and once as the target: a copy knows the other side by what is handed over alone. All pairs show
#: that the same is there afterwards, and run in the same order; the rest is tried on all of them with make soak.
SOME = PAIRS if SOAK else [("sqlite", "redis"), ("redis", "postgres"), ("postgres", "sqlite")]
some_pairs = pytest.mark.parametrize("pair", SOME, ids="-to-".join, indirect=True)


class Pair:
    """A store to copy, and one to copy it into."""

    def __init__(self, source: Bench, target: Bench, clock: Clock) -> None:
        self.source = source
        self.target = target
        self.clock = clock
        self.sides = (
            Side(source.store, transfer_of(source.store), "sqlite:////old.db"),
            Side(target.store, transfer_of(target.store), "redis://new/0"),
        )

    def copy(self, **more: Any) -> Any:
        return copy_store(*self.sides, **more)


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    source, target = request.param
    if "redis" in request.param:
        redisbench.emptied()
    benches = [postgres(tmp_path, Clock())] if "postgres" in request.param else []  # its clock is the server's
    clock = benches[0].clock if benches else Clock()
    one, other = (
        benches[0] if kind == "postgres" else a_store(kind, role, tmp_path, clock)
        for kind, role in ((source, "source"), (target, "target"))
    )
    made = Pair(one, other, clock)
    yield made
    made.source.store.close()
    made.target.store.close()


def job(id_: str, lane: str | None = None, queue: str = "default", **more: Any) -> Job:
    return Job(id_, f"app.{id_[0]}", queue, b'[["%b"],{}]' % id_.encode(), lane, **more)


def pay(lane: str, body: bytes, score: float | None = None, headers: str = "", delay: int = 0) -> Job:
    gather = Gather(score, 0, 0, headers)
    return Job(lane_id("orders", lane), "app.sync", "orders", body, lane, 0, delay, gather=gather)


def claim(
    store: Store, limit: int = 100, queues: Sequence[str] = ("default", "mail", "orders"), worker: str = "w"
) -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, limit) for queue in queues], limit).claims


def settle(store: Store, claims: Sequence[Claim], outcome: Outcome, keep: int = 0) -> list[str]:
    settled = [settled_alike(one, outcome, 5 * SECOND, 7 * SECOND, keep) for one in claims]
    return store.exchange("w", settled, [], 0).refused


def fill(bench: Bench) -> None:
    """Put jobs in every state into a store."""
    store, inspect, clock = bench.store, bench.inspect, bench.clock
    # Lane x: a holder that retries, others behind it. Lane h: halted by a death.
    store.push([job("x1", "x"), job("h1", "h"), job("d1"), job("l1", "y"), job("r1"), job("c1")])
    held = {one.unit.id: one for one in claim(store)}
    store.note([("r1", held["r1"].token, b'{"progress":[1.0,2.0],"log":["half"]}')])
    settle(store, [held["x1"]], Retrying(300 * SECOND, ERROR))
    settle(store, [held["h1"]], Dead(ERROR, halt=True))
    settle(store, [held["d1"]], Dead(ERROR))
    settle(store, [held["r1"]], Done(b"[42]"), keep=HOUR)
    settle(store, [held["c1"]], Cancelled("enough"), keep=HOUR)
    clock.advance(1)
    store.recover("w", "it was killed", {held["l1"].token: "crash"})  # l1 holds lane y, and waits
    store.push([job("x2", "x"), job("x3", "x"), job("h2", "h"), job("y2", "y"), job("x4", "x", priority=5)])
    [again] = [one for one in claim(store, worker="v") if one.unit.id == "l1"]
    assert again.lost == "crash"
    store.give_back("v")
    # Waiting: due, later, with priorities, unique keys and an end. In the order of arrival.
    clock.advance(1)
    store.push([
        job("p1"), job("p2", queue="mail"), job("e1", expires=60 * SECOND), job("u1", unique="key"),
        job("t1", delay=500 * SECOND), job("q1", priority=7), job("q2", priority=-3), job("z1", "z"), job("z2", "z"),
        job("z3", "z", delay=SECOND), job("p3"),
    ])  # fmt: skip
    inspect.pause("mail", True, by="ada")
    inspect.pause("later", True, ("later",), by="")
    # A collector: payloads with scores and headers, a lane that failed, a dead payload.
    store.push([pay("a", b"1", 5.0), pay("a", b"2", -1.5, '{"trace":"t"}'), pay("a", b"3"), pay("b", b"1"), pay("f", b"9")])
    lanes = {one.unit.lane: one for one in claim(store, queues=("orders",))}
    settle(store, [lanes["f"]], Retrying(100 * SECOND, ERROR))
    settle(store, [lanes["b"]], Dead(ERROR))
    store.push([pay("b", b"22", delay=50 * SECOND)])
    store.give_back("w")
    # Schedules, statistics.
    inspect.set_schedule("hourly", b'{"task":"app.p"}')
    inspect.pause_schedule("nightly", True, by="bob")
    store.push([job("s1")], Occurrence("declared", clock.now))
    store.record(Report(worker="w", number=1, faults=(fault_of(ERROR, "d1", "app.d", "default"),), counters={"crashed": 2}))
    clock.advance(1)


def view(bench: Bench) -> dict[str, Any]:
    """Return all that the inspection side shows of a store, except what a copy may change."""
    inspect, store = bench.inspect, bench.store
    jobs: dict[str, Any] = {}
    for state in (None, "done", "cancelled"):
        for info in inspect.jobs(Filter(state=state), 1000, None):
            jobs[info.id] = {**info.as_dict(), "token": None, "errors": info.errors}
    lanes = [
        (
            lane.queue,
            lane.lane,
            [(one.body, one.score, one.running) for one in inspect.payloads(lane.queue, lane.lane, 1000, None)],
        )
        for lane in inspect.lanes("orders", "name", 1000, None)
    ]
    schedules = store.schedules()
    return {
        "jobs": jobs, "lanes": lanes, "queues": inspect.queues(), "schedules": (schedules.last, schedules.paused, schedules.kept),
        "results": {id_: inspect.result(id_) for id_ in ("r1", "c1")}, "totals": inspect.totals(), "errors": inspect.errors(100),
        "before": {id_: inspect.parked_before(id_) for id_ in ("x3", "x4", "h2")},
    }  # fmt: skip


def drained(bench: Bench) -> list[tuple[str, str | None, Any]]:
    """Run all that a store has, one claim at a time; return what ran, in order."""
    bench.inspect.pause("mail", False)
    bench.inspect.act_all("retry", Filter(state="dead"))
    ran: list[tuple[str, str | None, Any]] = []
    for _ in range(200):
        claims = claim(bench.store, limit=1)
        if not claims:
            bench.clock.advance(60)
        for one in claims:
            unit = one.unit
            ran.append(
                (
                    unit.id,
                    unit.lane,
                    [(p.body, round(p.score, 3), p.headers) for p in unit.payloads] if unit.payloads else unit.body,
                )
            )
        settle(bench.store, claims, Done(None))
    assert not any(bench.inspect.counts().values())
    return ran


def by_lane(ran: Sequence[tuple[str, str | None, Any]]) -> dict[str | None, list[Any]]:
    lanes: dict[str | None, list[Any]] = {}
    for id_, lane, what in ran:
        lanes.setdefault(lane, []).append((id_, what))
    return lanes


class TestWhatIsCopied:
    def test_the_target_shows_what_the_source_showed(self, pair: Pair) -> None:
        fill(pair.source)
        before = view(pair.source)
        assert {info["state"] for info in before["jobs"].values()} == {
            "ready", "scheduled", "retrying", "blocked", "dead", "done", "cancelled",
        }  # fmt: skip

        copied = pair.copy()

        after = view(pair.target)
        for part, expected in before.items():
            assert after[part] == expected, part
        assert copied.source == copied.target
        assert view(pair.source) == before  # it is read only

    def test_what_ran_in_an_order_still_does(self, pair: Pair, tmp_path: Path) -> None:
        fill(pair.source)
        (tmp_path / "twin").mkdir()
        twin = sqlite_file(tmp_path / "twin", Clock())  # the same, and never copied
        fill(twin)

        pair.copy()
        pair.target.store.push([job("x9", "x"), job("z9", "z")])
        twin.store.push([job("x9", "x"), job("z9", "z")])

        assert by_lane(drained(pair.target)) == by_lane(drained(twin))

    def test_the_books_of_the_target_are_right(self, pair: Pair) -> None:
        fill(pair.source)
        pair.copy()
        inspect = pair.target.inspect

        for state in ("ready", "scheduled", "retrying", "blocked", "dead"):
            assert inspect.counts()[state] == inspect.count(
                Filter(state=state, task=None, failing=False, ids=tuple(view(pair.target)["jobs"]))
            )

    @some_pairs
    def test_a_key_stays_unique_and_an_id_is_not_taken_twice(self, pair: Pair) -> None:
        fill(pair.source)
        pair.copy()

        assert pair.target.store.push([job("u2", unique="key"), job("p1")]) == ["u1", "p1"]

    def test_a_key_until_the_end_lasts_and_a_dead_job_takes_it_again(self, pair: Pair) -> None:
        store, target = pair.source.store, pair.target.store
        store.push([job("again", unique="k", until_end=True), job("dead", unique="d", until_end=True)])
        again, dead = claim(store)
        settle(store, [dead], Dead(ERROR))
        settle(store, [again], Snoozed(0))

        pair.copy()

        held = claim(target)
        assert target.push([job("new", unique="k")]) == ["again"]
        settle(target, held, Done())
        assert target.push([job("new", unique="k")]) == [None]
        assert pair.target.inspect.retry("dead")
        assert target.push([job("other", unique="d")]) == ["dead"]

    @some_pairs
    def test_an_occurrence_that_has_fired_does_not_fire_again(self, pair: Pair) -> None:
        fill(pair.source)
        fired = pair.source.store.schedules().last["declared"]
        pair.copy()

        assert pair.target.store.push([job("s2")], Occurrence("declared", fired)) == [""]
        assert pair.target.store.push([job("s3")], Occurrence("declared", fired + 1)) == [None]

    @some_pairs
    def test_a_lane_that_is_halted_goes_on_when_its_head_is_replayed(self, pair: Pair) -> None:
        fill(pair.source)
        pair.copy()
        assert "h2" not in [one.unit.id for one in claim(pair.target.store)]
        pair.target.store.give_back("w")

        pair.target.inspect.retry("h1")

        ids = [one.unit.id for one in claim(pair.target.store)]
        assert "h1" in ids
        assert "h2" not in ids

    def test_payloads_of_two_queues_that_were_numbered_alike_are_told_apart(self, pair: Pair) -> None:
        for queue in ("one", "two"):  # where queues count by themselves both payloads get the same number
            pair.source.store.push([Job(lane_id(queue, "a"), "app.sync", queue, b"1", "a", gather=Gather(7.0))])
        pair.copy()

        dropped = pair.target.inspect.drop_oldest("one", "a")

        assert dropped is not None
        assert [len(pair.target.inspect.payloads(queue, "a", 9, None)) for queue in ("one", "two")] == [0, 1]

    @some_pairs
    def test_a_dead_payload_goes_back_to_its_lane_though_another_job_had_its_number(self, pair: Pair) -> None:
        store = pair.source.store
        one, other = (Job(lane_id("two", "a"), "app.sync", "two", body, "a", gather=Gather(7.0)) for body in (b"1", b"2"))
        store.push([job(f"j{n}", queue="one") for n in range(4)])  # where queues count by themselves both have these numbers
        store.push([one])
        settle(store, claim(store, queues=("two",)), Dead(ERROR))
        store.push([other])
        pair.copy()

        assert pair.target.inspect.retry(payload_id("two", "a", b"1"))

        [held] = claim(pair.target.store, queues=("two",))
        assert {payload.body for payload in held.unit.payloads} == {b"1", b"2"}


class TestClosed:
    @some_pairs
    def test_what_would_change_the_source_is_refused_and_names_the_new_address(self, pair: Pair) -> None:
        store, inspect = pair.source.store, pair.source.inspect
        fill(pair.source)
        pair.copy()
        refused: list[Callable[[], object]] = [
            lambda: store.push([job("n1")]), lambda: store.push([job("n1"), job("n2")]),
            lambda: store.push([job(new_id())]), lambda: store.push([job(new_id()), job(new_id())]),
            lambda: store.push([job("n1", queue="new")]), lambda: store.push([pay("a", b"7")]),
            lambda: store.push([job("n1")], Occurrence("hourly", 1 << 50, b'{"task":"app.p"}')), lambda: claim(store),
            lambda: store.exchange("w", [], [ClaimRequest("orders", 1, 2, 3)], 1),
            lambda: inspect.retry("d1"), lambda: inspect.cancel("p1"), lambda: inspect.delete("p1"),
            lambda: inspect.clear("default"), lambda: inspect.act_all("kill", Filter(state="ready")),
            lambda: inspect.pause("mail", False), lambda: inspect.drop_oldest("orders", "a"),
            lambda: inspect.set_schedule("hourly", b"{}"), lambda: inspect.drop_schedule("hourly"),
            lambda: inspect.pause_schedule("nightly", False),
        ]  # fmt: skip

        for act in refused:
            with pytest.raises(StoreMoved, match="redis://new/0") as caught:
                act()
            assert caught.value.address == "redis://new/0"
            assert caught.value.written is False

    @some_pairs
    def test_outcomes_of_runs_are_taken_and_no_claims_come_with_them(self, pair: Pair) -> None:
        store = pair.source.store
        store.push([job("a1", "a"), job("a2", "a"), job("b1"), job("c1"), job("b2", queue="mail")])
        held = claim(store, queues=("default",), limit=3)
        assert [one.unit.id for one in held] == ["a1", "b1", "c1"]
        pair.sides[0].transfer.close(moved())

        for one, outcome in ((held[0], Done(None)), (held[2], Snoozed(0))):
            answer = store.exchange("w", [settled_alike(one, outcome)], [ClaimRequest("default", 5), ClaimRequest("mail", 5)], 10)
            assert (answer.refused, answer.claims) == ([], [])
        assert store.give_back("w") == ["b1"]
        store.beat([WorkerInfo("w")])
        store.record(Report(worker="w", number=5))
        pair.copy()
        assert [one.unit.id for one in claim(pair.target.store)] == ["a2", "b1", "c1", "b2"]

    @some_pairs
    def test_the_target_takes_nothing_before_the_copy_has_ended(self, pair: Pair) -> None:
        fill(pair.source)
        with pytest.raises(KeyboardInterrupt):
            pair.copy(tell=interrupt_after(3))

        for queue in ("default", "fresh"):
            with pytest.raises(StoreUnavailable, match="being filled"):
                pair.target.store.push([job("n1", queue=queue)])
        with pytest.raises(StoreUnavailable, match="being filled"):
            claim(pair.target.store)

    @some_pairs
    def test_a_source_that_is_reopened_goes_on(self, pair: Pair) -> None:
        fill(pair.source)
        before = view(pair.source)
        with pytest.raises(KeyboardInterrupt):
            pair.copy(tell=interrupt_after(3))

        move = reopen_store(pair.sides[0])

        assert move is not None
        assert not move.finished
        assert reopen_store(pair.sides[0]) is None
        assert view(pair.source) == before
        assert pair.source.store.push([job("n1")]) == [None]
        with pytest.raises(StoreError, match="part of another copy"):
            pair.copy()

    @some_pairs
    def test_a_copy_that_was_finished_is_known_as_such(self, pair: Pair) -> None:
        fill(pair.source)
        pair.copy()
        pair.target.store.push([job("n1")])

        again = pair.copy()

        assert again.copied == 0
        assert pair.target.store.push([job("n2")]) == [None]
        move = reopen_store(pair.sides[0])
        assert move is not None
        assert move.finished

    @some_pairs
    def test_a_target_with_jobs_is_refused_and_both_stay_as_they_were(self, pair: Pair) -> None:
        fill(pair.source)
        pair.target.store.push([job("mine")])

        with pytest.raises(StoreError, match="is not empty: it has 1 jobs"):
            pair.copy()

        assert pair.source.store.push([job("n1")]) == [None]
        assert pair.target.store.push([job("n2")]) == [None]

    @some_pairs
    def test_a_store_is_not_copied_into_itself(self, pair: Pair) -> None:
        fill(pair.source)
        twice = Side(pair.source.store, pair.sides[0].transfer, "elsewhere")

        with pytest.raises((ConfigError, StoreError)):
            copy_store(pair.sides[0], twice)

        assert pair.source.store.push([job("n1")]) == [None]

    @some_pairs
    def test_a_target_can_be_moved_on(self, pair: Pair) -> None:
        fill(pair.source)
        pair.copy()
        before = view(pair.target)
        reopen_store(pair.sides[0])
        pair.source.inspect.act_all("delete", Filter())
        pair.source.inspect.act_all("delete", Filter(state="done"))

        if not any(pair.source.inspect.counts().values()):
            copy_store(pair.sides[1], pair.sides[0])

        assert view(pair.source)["jobs"] == before["jobs"]

    def test_a_store_in_memory_is_refused(self) -> None:
        from laneway.store.sqlite import SQLiteStore  # noqa: PLC0415 - it is opened here

        with pytest.raises(ConfigError, match="in the memory of one process"):
            side_of(SQLiteStore(), "sqlite://")


class TestWaiting:
    @some_pairs
    def test_it_waits_until_nothing_runs(self, pair: Pair) -> None:
        store = pair.source.store
        store.push([job("a1"), job("a2")])
        store.beat([WorkerInfo("w")])
        held = claim(store, limit=1)
        said: list[tuple[str, int]] = []

        def tell(word: str, number: int) -> None:
            said.append((word, number))
            if word == "running":
                settle(store, held, Done(None))

        pair.copy(tell=tell, timeout=30)

        assert said[0] == ("running", 1)
        assert [one.unit.id for one in claim(pair.target.store)] == ["a2"]

    @some_pairs
    def test_after_its_timeout_the_source_stays_closed_and_the_copy_can_go_on(self, pair: Pair) -> None:
        store = pair.source.store
        store.push([job("a1")])
        store.beat([WorkerInfo("w")])
        held = claim(store)

        with pytest.raises(StoreError, match=r"1 jobs of .* still run"):
            pair.copy(timeout=0)

        with pytest.raises(StoreMoved):
            store.push([job("a2")])
        settle(store, held, Retrying(0, ERROR))
        pair.copy(timeout=0)
        assert [one.unit.id for one in claim(pair.target.store)] == ["a1"]

    @some_pairs
    def test_jobs_of_a_dead_worker_are_not_waited_for(self, pair: Pair) -> None:
        store = pair.source.store
        store.push([job("a1")])
        store.beat([WorkerInfo("w")])
        claim(store)

        pair.copy(timeout=30)  # nobody beats

        [again] = claim(pair.target.store)
        assert again.unit.id == "a1"


class TestKilled:
    @some_pairs
    def test_it_goes_on_where_it_was_after_each_portion(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        """Killed before or after each step of the target, again and again, it copies everything once."""
        smaller_portions(monkeypatch)
        fill(pair.source)
        before = view(pair.source)
        kills = 0
        while True:
            try:
                with monkeypatch.context() as patch:
                    interrupt_take(patch, pair.sides[1].transfer, after=kills // 2 % 3, done=bool(kills % 2))
                    pair.copy()
                break
            except KeyboardInterrupt:
                kills += 1

        assert kills > 10
        after = view(pair.target)
        for part, expected in before.items():
            assert after[part] == expected, part

    @some_pairs
    @pytest.mark.parametrize("verb", ["begin", "close", "finish"])
    @pytest.mark.parametrize("done", [False, True])
    def test_it_goes_on_after_being_killed_at_another_step(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch, verb: str, done: bool
    ) -> None:
        fill(pair.source)
        before = view(pair.source)
        for side in pair.sides:
            with monkeypatch.context() as patch:
                interrupt(patch, side.transfer, verb, done=done)
                try:
                    pair.copy()
                except KeyboardInterrupt:
                    continue

        pair.copy()

        assert view(pair.target)["jobs"] == before["jobs"]
        assert pair.target.store.push([job("n1")]) == [None]
        with pytest.raises(StoreMoved):
            pair.source.store.push([job("n1")])

    @some_pairs
    def test_two_copiers_at_once_do_not_copy_twice(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        smaller_portions(monkeypatch)
        fill(pair.source)
        before = view(pair.source)
        transfer = pair.sides[1].transfer
        take = transfer.take

        def both(portion: Portion) -> None:
            take(portion)
            if portion.jobs:
                take(portion)

        monkeypatch.setattr(transfer, "take", both)
        with pytest.raises(StoreError, match="another process copies"):
            pair.copy()
        monkeypatch.undo()
        smaller_portions(monkeypatch)
        pair.copy()

        assert view(pair.target)["jobs"] == before["jobs"]


def moved() -> Any:
    from laneway.store.transfer import Move  # noqa: PLC0415 - used here only

    return Move("c", "redis://new/0")


def interrupt_after(number: int) -> Callable[[str, int], None]:
    calls = itertools.count(1)

    def tell(word: str, _: int) -> None:
        if word == "copied" and next(calls) >= number:
            raise KeyboardInterrupt

    return tell


def interrupt(patch: pytest.MonkeyPatch, transfer: object, verb: str, *, done: bool) -> None:
    """Let a verb be interrupted once, before it begins or when it is done."""
    real = getattr(transfer, verb)

    def interrupted(*args: Any) -> object:
        if done:
            real(*args)
        raise KeyboardInterrupt

    patch.setattr(transfer, verb, interrupted)


def interrupt_take(patch: pytest.MonkeyPatch, transfer: object, *, after: int, done: bool) -> None:
    real, calls = transfer.take, itertools.count()  # type: ignore[attr-defined]

    def take(portion: Portion) -> None:
        ends = next(calls) == after
        if not ends or done:
            real(portion)
        if ends:
            raise KeyboardInterrupt

    patch.setattr(transfer, "take", take)


def smaller_portions(patch: pytest.MonkeyPatch) -> None:
    for module in ("laneway.store.sql.transfer", "laneway.store.redis.transfer"):
        patch.setattr(f"{module}.PORTION", 2)


def test_what_was_taken_of_outboxes_is_not_taken_again(pair: Pair) -> None:
    pair.source.store.relay("box", [(7, job("a")), (9, pay("lane", b"1"))])

    pair.copy()

    to = pair.target.store
    assert to.relay("box", [(7, job("a2")), (8, job("b")), (9, pay("lane", b"1"))]) == ["", None, ""]
    assert to.taken("box") == 9
