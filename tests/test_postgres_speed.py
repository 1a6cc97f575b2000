"""What the PostgreSQL store must not spend: round trips, statements, and walks over what is left of old rows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import postgresbench

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Done
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.postgres import PostgresStore, exchange, floors, look_around, turn
from laneway.store.postgres import store as postgres_store
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


def entries_read(server: postgresbench.Server, store: PostgresStore, index: str, column: str = "idx_tup_read") -> int:
    """Return how many entries of an index were read, or how often it was searched: sessions report it when they end."""
    store.wire.close()
    deadline = time.monotonic() + 20
    while server.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'laneway'"):
        assert time.monotonic() < deadline, "a session does not end"
        time.sleep(0.01)
    asked = f"SELECT {column} FROM pg_stat_user_indexes WHERE indexrelname = %s"  # noqa: S608 - a name of ours
    return int(server.ask(asked, index)[0][0])


def test_payloads_for_many_lanes_take_few_round_trips(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read, answers = PostgresConnection.read, []

    def note(line: PostgresConnection) -> list[Rows]:
        answers.append(read(line))
        return answers[-1]

    monkeypatch.setattr(PostgresConnection, "read", note)
    for step in range(3):  # new lanes, then known ones, then running ones
        if step == 2:
            assert len(store.exchange("w", [], [ClaimRequest("c", 100, 1)], 100).claims) == 100
        answers.clear()
        store.push([Job(lane_id("c", f"{n}"), "t", "c", f"{step}".encode(), f"{n}", gather=Gather()) for n in range(100)])
        assert len(answers) < 30


def test_what_an_open_transaction_keeps_from_vacuum_is_not_walked_over_again_and_again(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a walk from the front has taken long, walks begin where the last one found nothing."""
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        store.push(jobs(3000))
        monkeypatch.setattr(floors, "FRONT_TAKES", -1)
        monkeypatch.setattr(floors, "FRONT_SHARE", 10**9)
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
    monkeypatch.setattr(floors, "FLOOR_HOLDS", 0)
    monkeypatch.setattr(floors, "FRONT_SHARE", 10**9)
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
        for step in range(60):
            one_for_each_lane(100 * step)
        before = [entries_read(server, store, index) for index in ("job_holder", "job_line")]
        for step in range(60, 70):
            time.sleep(0.06)  # the time at which no push was open is noted once in 50 ms
            one_for_each_lane(100 * step)
        after = [entries_read(server, store, index) for index in ("job_holder", "job_line")]
    assert all(late - early < 10 * 20 * 12 for late, early in zip(after, before, strict=True)), (before, after)


@pytest.mark.parametrize(("first", "index"), [("plain", "job_due"), ("lanes", "job_due_lane")])
def test_jobs_of_the_other_kind_that_left_are_not_walked_over_by_each_exchange(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, first: str, index: str
) -> None:
    monkeypatch.setattr(floors, "FLOOR_HOLDS", 10**9)
    monkeypatch.setattr(floors, "FRONT_TAKES", 10**9)
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


def leave_dead_entries(store: PostgresStore, lanes: list[str | None]) -> None:
    """Run a job for each of these lanes: beside an open transaction they leave dead entries in all indexes."""
    store.push([Job(f"dead {n} {lane}", "t", "q", BODY, lane) for n, lane in enumerate(lanes)])
    claims = take(store, [], 1000).claims
    while claims:
        claims = take(store, claims, 1000).claims


def test_a_walk_from_the_front_reads_the_dead_entries_there_once(server: postgresbench.Server, store: PostgresStore) -> None:
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        leave_dead_entries(store, [None] * 3000)
        leave_dead_entries(store, [f"{n % 1000}" for n in range(3000)])
        before = [entries_read(server, store, index) for index in ("job_due", "job_due_lane")]
        for first in range(0, 200, 20):
            store.push([Job(f"{n}", "t", "q", BODY, f"{n}") for n in range(first, first + 20)])
            store._exchanges.put_back()
            store._exchanges.floors._last_until = 0.0
            assert len(take(store, [], 10).claims) == 10, "it finds as many as it wants, so it walks once"
        after = [entries_read(server, store, index) for index in ("job_due", "job_due_lane")]
    assert all(late - early < 10 * 1.5 * 3000 for late, early in zip(after, before, strict=True)), (before, after)


@pytest.mark.parametrize("most", [1, 2], ids=["the short branch", "the general one"])
def test_jobs_of_one_lane_that_were_enqueued_together_are_not_walked_over_when_they_have_left(
    server: postgresbench.Server, store: PostgresStore, most: int
) -> None:
    """They have one place, so where the lane's live jobs begin cannot be told by place alone."""
    lanes = [f"hot {n}" for n in range(most)]
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        for lane in lanes:
            store.push(jobs(300, lane))
        time.sleep(0.06)  # the time at which no push was open is noted once in 50 ms
        before = [entries_read(server, store, index) for index in ("job_line", "job_parked", "job_holder")]
        claims = take(store, [], most).claims
        for step in range(300):
            assert [claim.unit.id for claim in claims] == [f"{lane}{step}" for lane in lanes]
            claims = take(store, claims, most).claims
        after = [entries_read(server, store, index) for index in ("job_line", "job_parked", "job_holder")]
    assert all(late - early < 300 * most * 12 for late, early in zip(after, before, strict=True)), (before, after)


def test_who_looks_for_dead_workers_does_not_read_the_dead_entries_of_all_claims_again_and_again(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "NOTHING_BEFORE", 0)
    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        leave_dead_entries(store, [None] * 3000)
        before = entries_read(server, store, "job_running")
        for _ in range(20):
            assert store.dead_workers() == []
        assert entries_read(server, store, "job_running") - before < 3 * 3000


def test_who_looks_for_dead_workers_finds_those_that_hold_early_claims_and_never_sent_a_beat(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "NOTHING_BEFORE", 0)
    store.push(jobs(2))
    take(store, [], 1)
    monkeypatch.setattr(store._observer, "dead_after", 1e-6)  # it counts a third of that for each look
    assert [store.dead_workers() for _ in range(9)][-1] == ["w"]
    store.exchange("later", [], [ClaimRequest("q", 1)], 1)
    assert sorted([store.dead_workers() for _ in range(9)][-1]) == ["later", "w"]


class Beside:
    """A queue whose front is full of entries that vacuum cannot remove, and a worker that walks past them only now and then."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(floors, "NOTHING_BEFORE", 0)
        monkeypatch.setattr(turn, "NOTHING_BEFORE", 0)
        self.store, self.patch = store, monkeypatch
        store.push(jobs(30))
        self.early = store.exchange("dead", [], [ClaimRequest("q", 30)], 30).claims
        store.push([Job(f"late{n}", "t", "q", BODY) for n in range(3)])
        claims = take(store, [], 10).claims
        assert take(store, claims, 10).claims == []
        time.sleep(0.01)
        assert take(store, [], 10).claims == []  # nothing is due before now, as far as this process knows
        self.walk_slowly()

    def walk_slowly(self) -> None:
        """Let each walk from the front be one that met many dead entries, and the next one not be allowed for a minute."""
        self.patch.setattr(floors, "FRONT_TAKES", -(10**6))
        self.patch.setattr(floors, "FRONT_SHARE", 10**9)
        self.patch.setattr(floors, "FRONT_LATEST", 60.0)

    def put_back(self) -> None:
        """Give jobs back to the front, as another process does."""
        other = PostgresStore(self.store.wire.url)
        other.give_back("dead")
        other.close()


def test_jobs_that_a_slow_walk_from_the_front_has_left_are_found_by_the_next_exchanges(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Beside(store, monkeypatch)
    beside.put_back()
    claims: list[Claim] = []
    for more in (True, True, False):
        answer = take(store, claims, 10)
        assert (len(answer.claims), answer.more) == (10, more)
        claims = answer.claims


def test_a_ring_lets_walks_begin_at_the_front_sooner(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "RUNG_SHARE", 0)
    monkeypatch.setattr(PostgresStore, "_put_back", lambda *_: None)  # a process that is killed behind its commit
    beside = Beside(store, monkeypatch)
    take(store, [], 10)  # a slow walk from the front
    beside.put_back()
    answer = take(store, [], 10)
    assert (answer.claims, answer.more) == ([], False)
    assert answer.next_due is not None, "it asks again when it may walk from the front"
    assert answer.next_due > 10_000_000
    assert store.wait(5), "what was given back has rung"
    assert len(take(store, [], 10).claims) == 10


def test_a_worker_of_a_collector_too_does_not_ask_again_and_again_for_what_its_walks_pass_over(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a collector's queue each exchange is a turn."""
    beside = Beside(store, monkeypatch)
    store.push([Job(lane_id("c", "a"), "t", "c", b"1", "a", gather=Gather())])
    take(store, [], 0)  # hears that the lane is due
    wants = [ClaimRequest("c", 1), ClaimRequest("q", 10)]
    assert len(store.exchange("w", [], wants, 10).claims) == 1
    beside.put_back()
    answer = store.exchange("w", [], wants, 10)
    assert (answer.claims, answer.more) == ([], False)
    assert answer.next_due is not None


def test_a_floor_is_not_raised_by_the_answer_to_an_exchange_that_was_sent_before_it_was_lowered(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "NOTHING_BEFORE", 0)
    store.push(jobs(1, "a"))
    [head] = take(store, [], 5).claims
    store.push(jobs(1, "a", first=1))
    assert take(store, [], 5).claims == []  # it is parked
    time.sleep(0.01)
    take(store, [], 5)
    monkeypatch.setattr(store._exchanges.floors, "front_at", time.monotonic() + 60)  # as after a slow walk from the front
    settles = store.begin("w", [settled_alike(head, Done())], [], 0)
    claims = store.begin("w", [], [ClaimRequest("q", 5)], 5)
    assert settles is not None
    assert claims is not None
    settles()
    found = claims().claims or take(store, [], 5).claims
    assert [claim.unit.id for claim in found] == ["a1"]


def test_a_lane_that_goes_on_does_not_send_where_thousands_of_others_begin(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    call = exchange.PostgresExchanges._call

    def note(self: exchange.PostgresExchanges, worker: str, epoch: int, *asked: Any) -> object:
        statement = call(self, worker, epoch, *asked)
        sent.append(sum(len(value) for value in statement[1] if isinstance(value, str)))
        return statement

    with psycopg.connect(server.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        for step in range(8):  # dead entries of a thousand lanes
            store.push([Job(f"{step}-{n}", "t", "q", BODY, f"lane {n}") for n in range(200)])
            claims = take(store, [], 200).claims
            while claims:
                claims = take(store, claims, 200).claims
        monkeypatch.setattr(exchange.PostgresExchanges, "_call", note)
        store.push([Job(f"a{n}", "t", "q", BODY, f"lane {n}") for n in range(200)])
        claims = take(store, [], 200).claims
        while claims:
            claims = take(store, claims, 200).claims
        assert max(sent) > 4000, "where their live jobs begin is sent along"
        store.push(jobs(10, "hot"))
        claims = take(store, [], 5).claims
        monkeypatch.setattr(exchange, "LINES_TAKE", 0)
        sent.clear()
        for _ in range(9):
            [claim] = take(store, claims, 5).claims
            claims = [claim]
        assert max(sent) < 1000


@pytest.mark.parametrize("why", ["the moment is over", "a job of this process", "a job is due", "the store rings", "put back"])
def test_a_lane_that_goes_on_looks_for_other_jobs_now_and_then(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Jobs of another process are found a moment later; there is no such moment for what this process has asked of the store."""
    monkeypatch.setattr(look_around, "EVERY", 0 if why == "the moment is over" else 60_000_000)
    other = PostgresStore(server.url)
    store.push(jobs(9, lane="a"))
    if why == "a job is due":
        store.push([Job("later", "t", "q", BODY, delay=300_000)])
    claims = take(store, [], 1).claims
    for _ in range(3):  # the second one learns that nothing else is due
        claims = take(store, claims, 5).claims
    other.push(jobs(1))
    if why == "a job of this process":
        store.schedules()
    elif why == "the store rings":
        store._exchanges.rung()
    elif why == "put back":
        store._exchanges.put_back()
    elif why == "a job is due":
        answer = take(store, claims, 5)
        assert [claim.unit.id for claim in answer.claims] == ["a4"]
        assert 0 < (answer.next_due or 0) <= 300_000
        claims = answer.claims
        time.sleep((answer.next_due or 0) / 1_000_000)  # the time that the job was told to wait

    answer = take(store, claims, 5)
    other.close()

    found = {claim.unit.id for claim in answer.claims}
    assert found == ({"a5", "None0", "later"} if why == "a job is due" else {"a4", "None0"})


@pytest.mark.parametrize("wanted", [["q"], ["other", "q"]])
def test_a_lane_that_goes_on_does_not_search_for_other_jobs_each_time(
    server: postgresbench.Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, wanted: list[str]
) -> None:
    monkeypatch.setattr(look_around, "EVERY", 60_000_000)
    wants = [ClaimRequest(queue, 5) for queue in wanted]
    store.push([*jobs(100, lane="a"), Job("other", "t", "other", BODY)])
    claims = store.exchange("w", [], [ClaimRequest("q", 1)], 1).claims

    def hop(number: int) -> int:
        """Hand the lane on so often; return how many searches of indexes that took."""
        nonlocal claims
        before = sum(entries_read(server, store, index, "idx_scan") for index in ("job_due", "job_due_lane", "job_later"))
        for _ in range(number):
            claims = store.exchange(
                "w", [settled_alike(claim, Done()) for claim in claims if claim.queue == "q"], wants, 9
            ).claims
            assert claims
        return sum(entries_read(server, store, index, "idx_scan") for index in ("job_due", "job_due_lane", "job_later")) - before

    hop(3)
    assert hop(40) < 30
    assert [claim.unit.id for claim in claims] == ["a43"]


def test_a_lane_that_goes_on_looks_into_queues_that_were_not_asked_before(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_around, "EVERY", 60_000_000)
    store.push([*jobs(9, lane="a"), Job("other", "t", "other", BODY)])
    claims = take(store, [], 1).claims
    for _ in range(3):
        claims = take(store, claims, 5).claims

    answer = store.exchange("w", [settled_alike(claims[0], Done())], [ClaimRequest("q", 5), ClaimRequest("other", 5)], 9)

    assert {claim.unit.id for claim in answer.claims} == {"a4", "other"}


def test_jobs_that_another_process_gives_back_let_walks_begin_at_the_front(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "RUNG_SHARE", 0)
    beside = Beside(store, monkeypatch)
    take(store, [], 10)  # a slow walk from the front
    beside.put_back()
    answer = take(store, [], 10)  # without a ring
    assert (answer.claims, answer.next_due) == ([], 0)
    assert len(take(store, [], 10).claims) == 10


def test_new_payloads_do_not_send_all_processes_to_the_front(server: postgresbench.Server, store: PostgresStore) -> None:
    told = "select pg_sequence_last_value('laneway.back')"
    store.push([Job(lane_id("c", "a"), "t", "c", b"1", "a", gather=Gather())])
    assert server.ask(told) == [(None,)]
    store.push(jobs(1))
    assert len(take(store, [], 1).claims) == 1
    server.ask("update laneway.job set due = due - 2000000")
    store.give_back("w")
    assert server.ask(told) == [(1,)]
