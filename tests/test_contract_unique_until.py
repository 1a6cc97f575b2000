"""A unique key that lasts until the end of its job: `Job.until_end`."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Clock, old_store
from laneway.core.job import Job
from laneway.core.outcome import Cancelled, Dead, Done, Outcome, Retrying, Snoozed
from laneway.store.contract import Store
from laneway.store.inspection import Filter, Inspect
from test_contract import ERROR, SECOND, claim, ids, job, settle, stands, states


def end(id_: str, *, lane: str | None = None, expires: float = 0, queue: str = "default") -> Job:
    return job(id_, unique="k", until_end=True, lane=lane, expires=expires, queue=queue)


def test_a_job_that_runs_prevents_an_equal_one(store: Store, inspect: Inspect) -> None:
    store.push([end("a"), job("x", unique="l", lane="x", until_end=True)])
    claim(store)

    assert store.push([end("b"), job("y", unique="l", lane="x"), end("c", queue="mail")]) == ["a", "x", "a"]

    assert stands(inspect, "a").unique
    assert states(inspect) == {"running": 2}


@pytest.mark.parametrize("outcome", [Done(), Cancelled(), Dead(ERROR), Dead(ERROR, halt=True)], ids=lambda made: made.name)
@pytest.mark.parametrize("lane", [None, "x"])
def test_it_ends_with_the_job(store: Store, inspect: Inspect, outcome: Outcome, lane: str | None) -> None:
    store.push([end("a", lane=lane), job("other", unique="o", until_end=True)])
    held = claim(store, 1)

    settle(store, held, outcome)

    assert store.push([end("b"), job(unique="o")]) == [None, "other"]
    assert stands(inspect, "b").unique


def test_of_many_that_are_settled_at_once_each_ends_its_own(store: Store) -> None:
    store.push([job(f"a{n}", unique=f"k{n}", until_end=n % 2 == 0) for n in range(20)])
    held = claim(store, 20)
    assert store.push([job(f"b{n}", unique=f"k{n}") for n in range(20)]) == [None if n % 2 else f"a{n}" for n in range(20)]

    settle(store, held[:10], Done())

    assert store.push([job(f"c{n}", unique=f"k{n}") for n in range(0, 20, 2)]) == [None] * 5 + [f"a{n}" for n in range(10, 20, 2)]


@pytest.mark.parametrize("outcome", [Retrying(5 * SECOND, ERROR), Snoozed(5 * SECOND), Snoozed(0)], ids=lambda made: made.name)
def test_a_job_that_will_run_again_keeps_it(store: Store, clock: Clock, outcome: Outcome) -> None:
    store.push([end("a")])
    settle(store, claim(store), outcome)
    assert store.push([end("b")]) == ["a"]

    clock.advance(6)
    held = claim(store)

    assert (ids(held), store.push([end("b")])) == (["a"], ["a"])
    settle(store, held, Done())
    assert store.push([end("b")]) == [None]


@pytest.mark.parametrize("how", ["given back", "recovered"])
def test_a_claim_that_comes_back_keeps_it(store: Store, how: str) -> None:
    store.push([end("a", lane="x")])
    held = claim(store)
    if how == "given back":
        store.give_back("w")
    else:
        store.recover("w", "killed by signal 9")

    assert store.push([end("b")]) == ["a"]

    assert settle(store, held, Done()).refused == ["a"]  # a late answer of the run that was lost
    assert store.push([end("b")]) == ["a"]


@pytest.mark.parametrize("running", [False, True], ids=["waiting", "running"])
@pytest.mark.parametrize("action", ["cancel", "delete", "kill"])
def test_a_job_that_is_ended_by_hand_stands_in_nobodys_way(store: Store, inspect: Inspect, action: str, running: bool) -> None:
    store.push([end("a")])
    held = claim(store) if running else []

    assert getattr(inspect, action)("a")
    if running:
        assert store.push([end("b")]) == ["a"]  # until its run is over
        settle(store, held, Cancelled())

    assert store.push([end("b")]) == [None]


def test_one_that_expires_stands_in_nobodys_way(store: Store, clock: Clock) -> None:
    store.push([end("a", expires=1)])
    clock.advance(2)
    assert claim(store) == []

    assert store.push([end("b")]) == [None]


@pytest.mark.parametrize("halt", [False, True])
def test_a_dead_job_that_is_retried_takes_its_key_again(store: Store, inspect: Inspect, halt: bool) -> None:
    store.push([end("a", lane="x")])
    settle(store, claim(store), Dead(ERROR, halt=halt))
    assert not stands(inspect, "a").unique

    assert inspect.retry("a")

    assert stands(inspect, "a").unique
    assert store.push([end("b")]) == ["a"]
    settle(store, claim(store), Done())
    assert store.push([end("b")]) == [None]


@pytest.mark.parametrize("ending", [Done(), Dead(ERROR)], ids=lambda made: made.name)
def test_it_runs_without_if_another_job_has_the_key_meanwhile(store: Store, inspect: Inspect, ending: Outcome) -> None:
    store.push([end("a")])
    settle(store, claim(store), Dead(ERROR))
    store.push([job("b", unique="k", until_end=True, delay=60)])

    assert inspect.retry("a")

    assert [stands(inspect, id_).unique for id_ in "ab"] == [False, True]
    held = claim(store)
    assert ids(held) == ["a"]
    settle(store, held, ending)
    assert store.push([end("c")]) == ["b"]  # b keeps what is its own


@pytest.mark.parametrize("ending", ["cancel", "kill"])
def test_of_many_that_are_retried_one_takes_the_key(store: Store, inspect: Inspect, ending: str) -> None:
    for name in "abc":
        store.push([end(name)])
        settle(store, claim(store), Dead(ERROR))

    assert inspect.act_all("retry", Filter(state="dead"), 0) == 3

    assert [stands(inspect, id_).unique for id_ in "abc"] == [True, False, False]
    assert getattr(inspect, ending)("b")
    assert store.push([end("d")]) == ["a"]
    assert getattr(inspect, ending)("a")
    assert store.push([end("d")]) == [None]


def test_both_kinds_prevent_each_other(store: Store) -> None:
    store.push([job("claim", unique="k")])
    assert store.push([end("a")]) == ["claim"]
    claim(store)

    assert store.push([end("a")]) == [None]
    claim(store)
    assert store.push([job("again", unique="k")]) == ["a"]


def test_an_id_that_is_used_again_has_nothing_of_the_old_job(store: Store) -> None:
    store.push([end("a")])
    settle(store, claim(store), Done())

    store.push([job("a", unique="k")])
    claim(store)

    assert store.push([job("b", unique="k")]) == [None]


@pytest.mark.parametrize("name", ["sqlite", "redis", "postgres"])
def test_a_store_of_before_has_them_too(name: str, tmp_path: Path) -> None:
    bench = old_store(name, "old_jobs.json", tmp_path, Clock(1_001 * SECOND))
    made = job("a", unique="new", until_end=True, queue="new")
    try:
        bench.store.push([made])
        held = claim(bench.store, queues=["new"])
        assert bench.store.push([job("b", unique="new")]) == ["a"]
        settle(bench.store, held, Done())
        assert bench.store.push([job("b", unique="new")]) == [None]
    finally:
        bench.store.close()
