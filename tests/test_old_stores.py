"""A store that the last released version wrote, with jobs in every state, works with this one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import postgresbench
from conftest import Bench, Clock, old_store, sqlite_file
from laneway.core.job import Job
from laneway.core.outcome import Done
from laneway.errors import SchemaError
from laneway.store.contract import ClaimRequest, Occurrence
from laneway.store.inspection import Filter
from settling import settled_alike

SECOND = 1_000_000
WAITING = ["first", "plain", "key", "ends", "fresh-lane", "last"]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Rows and keys, byte for byte.

    Worker `w` runs `crashed` (which took worker `x` along), `runs-in-lane`, and `marked`, which is to be cancelled. Lane h is
    halted by a dead job. Queue `other` is paused.
    """
    made = old_store(request.param, "old_jobs.json", tmp_path, Clock(1_001 * SECOND))
    yield made
    made.store.close()


def claims(bench: Bench) -> list[str]:
    return [id_ for held in bench.store.exchange("v", [], [ClaimRequest("default", 99)], 99).claims for id_ in held.ids]


def test_it_shows_what_it_had(old: Bench) -> None:
    look = old.inspect
    assert look.counts() == {"scheduled": 1, "ready": 8, "retrying": 1, "blocked": 3, "running": 3, "dead": 2}
    assert look.totals()["enqueued"] == 19
    assert look.result("done").value == b"7"
    states = {
        id_: job.state for id_ in (*WAITING, "later", "retrying", "behind-retry", "marked", "halts") if (job := look.job(id_))
    }
    assert states == {
        **dict.fromkeys(WAITING, "ready"), "later": "scheduled", "retrying": "retrying", "behind-retry": "blocked",
        "marked": "running", "halts": "dead",
    }  # fmt: skip
    retrying = look.job("retrying")
    assert retrying is not None
    assert [error.message for error in retrying.errors] == ["no"]
    assert [(queue.name, queue.paused) for queue in look.queues()] == [("default", False), ("other", True)]
    assert old.store.schedules().paused == {"nightly": "ada"}


def test_what_waits_is_claimed_in_its_order(old: Bench) -> None:
    assert claims(old) == WAITING
    assert claims(old) == []
    assert old.store.push([Job("new", "app.task", "default", b"[[],{}]", unique="k")]) == [None]  # the other has started


def test_what_waits_too_long_leaves(old: Bench) -> None:
    old.clock.advance(20_000)
    assert set(claims(old)) == {*WAITING, "retrying", "later"} - {"ends"}
    assert old.inspect.totals()["cancelled"] == 1


def test_an_equal_job_still_stands_for_a_new_one(old: Bench) -> None:
    assert old.store.push([Job("new", "app.task", "default", b"[[],{}]", unique="k")]) == ["key"]


def test_what_ran_goes_on_in_order_and_all_of_it_comes_to_an_end(old: Bench) -> None:
    store, look = old.store, old.inspect

    assert sorted(store.recover("w", "killed")) == ["crashed", "marked", "runs-in-lane"]
    assert look.retry("halts")
    assert look.retry("dead")
    look.pause("other", False)
    ran: list[str] = []
    for _ in range(50):
        held = store.exchange("v", [], [ClaimRequest("default", 3), ClaimRequest("other", 1)], 4).claims
        ran += [claim.unit.id for claim in held]
        assert {claim.lost for claim in held if claim.unit.id == "crashed"} <= {"crash"}
        assert store.exchange("v", [settled_alike(claim, Done(), 1, 2) for claim in held], [], 0).refused == []
        old.clock.advance(200)

    assert look.counts() == dict.fromkeys(look.counts(), 0)
    assert "marked" not in ran
    assert len(ran) == len(set(ran)) == 17
    for lane in (
        ("halts", "behind-halt"),
        ("retrying", "behind-retry"),
        ("runs-in-lane", "behind-run"),
        ("fresh-lane", "fresh-behind"),
    ):
        assert sorted(lane, key=ran.index) == list(lane)
    assert (look.totals()["processed"], look.totals()["cancelled"]) == (18, 1)


def test_schedules_can_be_kept_in_it(old: Bench) -> None:
    old.inspect.set_schedule("hourly", b"{}")
    at = old.clock() + SECOND
    assert old.store.schedules().kept == {"hourly": b"{}"}
    assert old.store.push([Job("new", "app.task", "default", b"[[],{}]")], Occurrence("hourly", at, b"{}")) == [None]
    assert old.store.schedules().last["hourly"] == at
    assert old.store.schedules().paused == {"nightly": "ada"}
    assert not old.inspect.drop_schedule("nightly")
    assert old.inspect.drop_schedule("hourly")


def test_queues_beyond_the_first_get_rows_of_their_own(tmp_path: Path) -> None:
    clock = Clock(1_001 * SECOND)
    old_store("sqlite", "old_jobs.json", tmp_path, clock, migrate=False).store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        [(raw,)] = connection.execute("select books from laneway_meta").fetchall()
        books = msgspec.json.decode(raw)
        books["queues"] += [[f"q{n}", n == 18, 0, [0, int(n == 19), 0, 0, 0, 0]] for n in range(20)]
        connection.execute("update laneway_meta set books = ?", (msgspec.json.encode(books),))
        connection.execute(
            "insert into laneway_job (seq, id, queue, task, rank, place, due, state, enqueued, body) "
            "values (999, 'far', 'q19', 't', 0, 1, 1, 0, 1, cast('[[],{}]' as blob))"
        )
    made = sqlite_file(tmp_path, clock)
    with pytest.raises(SchemaError, match="laneway migrate"):
        made.inspect.queues()

    made.store.migrate()

    queues = {queue.name: queue for queue in made.inspect.queues()}
    assert len(queues) == 22
    assert queues["q18"].paused
    assert queues["q19"].counts["ready"] == 1
    assert [
        claim.unit.id for claim in made.store.exchange("v", [], [ClaimRequest("q18", 1), ClaimRequest("q19", 1)], 9).claims
    ] == ["far"]
    assert made.inspect.counts()["dead"] == 2
    made.store.close()


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
def test_a_program_of_the_last_version_that_still_runs_finds_none_of_its_functions(old: Bench) -> None:
    from laneway.store.postgres.statements import VERSION  # noqa: PLC0415 - psycopg may be missing

    server = postgresbench.server()
    with pytest.raises(Exception, match=r"function laneway\.totals_v3\(\) does not exist"):
        server.ask("select * from laneway.totals_v3()")
    for function in ("enqueue", "finish"):
        with pytest.raises(Exception, match=f"the functions of Laneway have version {VERSION}, and this program wants 3"):
            server.ask(f"select laneway.{function}(%s)", '{"version": 3, "jobs": []}')
    assert old.inspect.totals()["enqueued"] == 19


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_results_of_before_show_their_state_and_value_and_nothing_else(kind: str, tmp_path: Path) -> None:
    made = old_store(kind, "old_results.json", tmp_path, Clock(1_001 * SECOND))
    store, look = made.store, made.inspect

    assert (look.result("kept").state, look.result("kept").value) == ("done", b"42")
    assert look.job("kept") is None
    assert look.jobs(Filter(state="done"), 9, None) == []
    assert look.counts() == {"scheduled": 0, "ready": 2, "retrying": 0, "blocked": 1, "running": 0, "dead": 1}
    assert store.schedules().paused == {"nightly": "ada"}

    [held] = store.exchange("v", [], [ClaimRequest("default", 9)], 9).claims
    store.exchange("v", [settled_alike(held, Done(b"7"), 1, 2, keep=60 * SECOND)], [], 0)
    assert [(job.id, job.attempt) for job in look.jobs(Filter(state="done"), 9, None)] == [("retried", 2)]
    assert [claim.unit.id for claim in store.exchange("v", [], [ClaimRequest("default", 9)], 9).claims] == ["behind"]
    [lane] = store.exchange("v", [], [ClaimRequest("orders", 9)], 9).claims
    assert [payload.body for payload in lane.unit.payloads] == [b'{"n":1}']
    made.store.close()
