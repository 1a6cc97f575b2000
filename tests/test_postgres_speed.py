"""What the PostgreSQL store must not spend: round trips, statements, and walks over what is left of old rows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import postgresbench

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Done
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.postgres import PostgresStore, exchange
from laneway.store.postgres.connection import PostgresConnection, Rows
from settling import settled_alike

BODY = b'[["x"],{}]'


@pytest.fixture(scope="module")
def server() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or fail
    own = postgresbench.Server("autovacuum=off")
    yield own
    own.remove()


@pytest.fixture
def store(server: postgresbench.Server) -> Iterator[PostgresStore]:
    server.drop()
    made = PostgresStore(server.url, timeout=60, enqueue_timeout=60)
    made.open()
    yield made
    made.close()


def jobs(number: int, lane: str | None = None, first: int = 0) -> list[Job]:
    return [Job(f"{lane}{first + n}", "t", "q", BODY, lane) for n in range(number)]


def take(store: PostgresStore, claims: list[Claim], most: int) -> Exchange:
    """Settle claims, and claim others."""
    return store.exchange("w", [settled_alike(claim, Done()) for claim in claims], [ClaimRequest("q", most)], most)


def entries_read(server: postgresbench.Server, store: PostgresStore, index: str) -> int:
    """Return how many entries of an index were read: sessions report it when they end."""
    store.wire.close()
    deadline = time.monotonic() + 20
    while server.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'laneway'"):
        assert time.monotonic() < deadline, "a session does not end"
        time.sleep(0.01)
    return int(server.ask("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = %s", index)[0][0])


def test_payloads_for_many_lanes_take_few_round_trips(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read, answers = PostgresConnection.read, []

    def note(line: PostgresConnection) -> list[Rows]:
        answers.append(read(line))
        return answers[-1]

    monkeypatch.setattr(PostgresConnection, "read", note)
    for turn in range(3):  # new lanes, then known ones, then running ones
        if turn == 2:
            assert len(store.exchange("w", [], [ClaimRequest("c", 100, 1)], 100).claims) == 100
        answers.clear()
        store.push([Job(lane_id("c", f"{n}"), "t", "c", f"{turn}".encode(), f"{n}", gather=Gather()) for n in range(100)])
        assert len(answers) < 30


def test_what_an_open_transaction_keeps_from_vacuum_is_not_walked_over_again_and_again(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a walk from the front has taken long, walks begin where the last one found nothing."""
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        store.push(jobs(3000))
        monkeypatch.setattr(exchange, "FRONT_TAKES", -1)
        monkeypatch.setattr(exchange, "FRONT_SHARE", 10**9)
        claims = take(store, [], 1000).claims
        while claims:
            claims = take(store, claims, 1000).claims
        before = entries_read(server, store, "job_due")
        for n in range(20):
            store.push(jobs(1, first=4000 + n))
            claims = take(store, claims, 5).claims
            assert [claim.unit.id for claim in claims] == [f"None{4000 + n}"]
        assert entries_read(server, store, "job_due") - before < 30_000


def test_the_next_walk_from_the_front_waits_if_one_has_met_many_dead_entries(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of dead entries may stand for few blocks of the table: what counts is the entries."""
    monkeypatch.setattr(exchange, "FLOOR_HOLDS", 0)
    monkeypatch.setattr(exchange, "FRONT_SHARE", 10**9)
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        store.push(jobs(3000))
        claims = take(store, [], 1000).claims
        while claims:
            claims = take(store, claims, 1000).claims
        before = entries_read(server, store, "job_due")
        for n in range(40):
            store.push(jobs(1, first=4000 + n))
            claims = take(store, claims, 5).claims
        assert entries_read(server, store, "job_due") - before < 30_000


def test_jobs_that_left_a_lane_beside_an_open_transaction_are_not_walked_over_again_and_again(
    server: postgresbench.Server, store: PostgresStore
) -> None:
    """A lane that is empty for a moment has no holder that knows where its live jobs begin: the client remembers it."""

    def one_for_each_lane(first: int) -> None:
        store.push([Job(f"{first + n}", "t", "q", BODY, f"{n}") for n in range(20)])
        claims = take(store, [], 20).claims
        assert [claim.unit.id for claim in claims] == [f"{first + n}" for n in range(20)]
        take(store, claims, 0)

    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        for turn in range(60):
            one_for_each_lane(100 * turn)
        before = [entries_read(server, store, index) for index in ("job_holder", "job_line")]
        for turn in range(60, 70):
            time.sleep(0.06)  # the time at which no push was open is noted once in 50 ms
            one_for_each_lane(100 * turn)
        after = [entries_read(server, store, index) for index in ("job_holder", "job_line")]
    assert all(late - early < 10 * 20 * 5 for late, early in zip(after, before, strict=True)), (before, after)


@pytest.mark.parametrize(("first", "index"), [("plain", "job_due"), ("lanes", "job_due_lane")])
def test_jobs_of_the_other_kind_that_left_are_not_walked_over_by_each_exchange(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, first: str, index: str
) -> None:
    monkeypatch.setattr(exchange, "FLOOR_HOLDS", 10**9)
    monkeypatch.setattr(exchange, "FRONT_TAKES", 10**9)
    kinds: dict[str, list[str | None]] = {"plain": [None] * 1500, "lanes": [f"{n % 300}" for n in range(1500)]}
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        for kind, lanes in sorted(kinds.items(), key=lambda item: item[0] != first):
            store.push([Job(f"{kind}{n}", "t", "q", BODY, lane) for n, lane in enumerate(lanes)])
            if kind == first:
                claims = take(store, [], 100).claims
                while claims:
                    claims = take(store, claims, 100).claims
        before = entries_read(server, store, index)
        for _ in range(40):
            claims = take(store, claims, 10).claims
            assert len(claims) == 10
        assert entries_read(server, store, index) - before < 40 * 500
