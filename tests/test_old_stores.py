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
from laneway.core.instant import as_datetime
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Dead, Done, ErrorInfo
from laneway.errors import SchemaError, WrongQueue
from laneway.store.contract import ClaimRequest, Occurrence, WorkerInfo
from laneway.store.inspection import Filter, JobInfo
from settling import settled_alike

SECOND = 1_000_000
QUEUE = "orders"
STORES = ["sqlite", "redis", "postgres", "postgres-1"]
WAITING = ["first", "plain", "key", "ends", "fresh-lane", "last"]


@pytest.fixture(params=STORES)
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


# -- lanes of a collector, and records ---------------------------------------------------------------------------------


@pytest.fixture(params=STORES)
def lanes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Lanes of a collector, and records of finished jobs.

    Worker `w` runs `marked`, which is to be cancelled while `stay` gathers, and the first two of the five payloads of `part`.
    Lane `crashed` waits since its worker crashed, `retrying` since its second error. Job `stopped` was cancelled while it ran.
    """
    made = old_store(request.param, "old_lanes.json", tmp_path, Clock(1_001 * SECOND))
    yield made
    made.store.close()


def stands(bench: Bench, id_: str) -> JobInfo:
    """A job or record that must be there."""
    found = bench.inspect.job(id_)
    assert found is not None
    return found


def lane(bench: Bench, name: str) -> JobInfo:
    return stands(bench, lane_id(QUEUE, name))


def holding(bench: Bench, name: str) -> list[tuple[object, bool]]:
    """A lane's payloads, each with whether it runs."""
    return [(payload.value, payload.running) for payload in bench.inspect.payloads(QUEUE, name, 9, None)]


def runs(bench: Bench, *, together: int = 1, payloads: int = 0) -> list[Claim]:
    """What a new worker can claim of the lanes."""
    return bench.store.exchange("v", [], [ClaimRequest(QUEUE, 9, together, payloads)], 9).claims


def given(claims: list[Claim]) -> list[dict[str, list[object]]]:
    """The payloads that each run has, by lane."""
    read = msgspec.json.decode
    return [{str(unit.lane): [read(payload.body) for payload in unit.payloads] for unit in claim.units} for claim in claims]


def finish(bench: Bench, claims: list[Claim]) -> None:
    assert bench.store.exchange("v", [settled_alike(claim, Done(), 1, 2) for claim in claims], [], 0).refused == []


def payload(name: str, value: object, score: float) -> Job:
    return Job(lane_id(QUEUE, name), "app.sync", QUEUE, msgspec.json.encode(value), name, gather=Gather(score))


def test_lanes_are_listed_as_they_were(lanes: Bench) -> None:
    look = lanes.inspect
    listed = {found.lane: (found.state, found.size, found.attempts) for found in look.lanes(QUEUE, "name", 9, None)}
    assert listed == {
        "later": ("scheduled", 1, 0), "retrying": ("retrying", 2, 2), "crashed": ("ready", 2, 0), "marked": ("running", 2, 0),
        "part": ("running", 5, 0),
    }  # fmt: skip
    assert look.counts() == {"scheduled": 1, "ready": 1, "retrying": 1, "blocked": 0, "running": 2, "dead": 0}
    assert {state: len(look.jobs(Filter(state=state, queue=QUEUE), 9, None)) for state in ("scheduled", "running")} == {
        "scheduled": 1, "running": 2,
    }  # fmt: skip
    assert [(queue.name, queue.collects) for queue in look.queues()] == [("default", False), (QUEUE, True)]
    names = ("enqueued", "processed", "failed", "retried", "cancelled", "recovered", "dead")
    assert [look.totals()[name] for name in names] == [14, 1, 4, 4, 1, 1, 0]

    assert lane(lanes, "later").due_at == as_datetime(4_600 * SECOND)
    assert lane(lanes, "retrying").due_at == as_datetime(1_060 * SECOND)
    assert [(error.message, error.attempt) for error in lane(lanes, "retrying").errors] == [("no", 1), ("never", 2)]
    assert [(error.kind, error.worker) for error in lane(lanes, "crashed").errors] == [("worker lost", "v")]
    assert (lane(lanes, "marked").mark, lane(lanes, "marked").worker) == ("cancel", "w")
    assert (lane(lanes, "part").mark, lane(lanes, "part").worker) == (None, "w")
    assert holding(lanes, "marked") == [("drop", True), ("stay", False)]
    assert holding(lanes, "part") == [(1, True), (2, True), (3, False), (4, False), (5, False)]
    assert holding(lanes, "retrying") == [("early", False), ("late", False)]


def test_lanes_that_wait_are_claimed_when_they_are_due_and_one_that_crashed_runs_alone(lanes: Bench) -> None:
    lanes.store.push([payload("new", "n", 1)])

    crashed, new = runs(lanes, together=9)

    assert given([crashed, new]) == [{"crashed": ["x", "y"]}, {"new": ["n"]}]
    assert [(claim.lost, claim.unit.attempt) for claim in (crashed, new)] == [("crash", 1), ("", 1)]
    finish(lanes, [crashed, new])
    assert runs(lanes) == []
    lanes.clock.advance(60)
    [retrying] = runs(lanes)
    assert (given([retrying]), retrying.lost, retrying.unit.attempt) == ([{"retrying": ["early", "late"]}], "", 3)
    finish(lanes, [retrying])
    lanes.clock.advance(3_600)
    [later] = runs(lanes)
    assert (given([later]), later.unit.attempt) == ([{"later": ["paid"]}], 1)
    finish(lanes, [later])

    assert {found.lane for found in lanes.inspect.lanes(QUEUE, "name", 9, None)} == {"marked", "part"}
    assert lanes.inspect.totals()["processed"] == 1 + 2 + 1 + 2 + 1


def test_what_runs_is_kept_and_still_told_of_its_mark(lanes: Bench) -> None:
    reply = lanes.store.beat([WorkerInfo("w", host="h", pid=1)])["w"]

    assert (reply.known, reply.marks) == (True, {lane_id(QUEUE, "marked"): "cancel"})
    lanes.store.push([payload("part", 6, 6), payload("part", 3, 7)])
    assert [found for found in given(runs(lanes)) if "crashed" not in found] == []
    assert holding(lanes, "part") == [(1, True), (2, True), (4, False), (5, False), (6, False), (3, False)]
    token = lane(lanes, "part").token
    assert token is not None
    assert lanes.store.give_back("w", keep=[token]) == [lane_id(QUEUE, "marked")]
    assert given(runs(lanes)) == [{"marked": ["stay"]}]
    assert lane(lanes, "part").state == "running"


def test_what_ran_in_part_goes_on_with_all_of_it_and_a_marked_run_is_dropped(lanes: Bench) -> None:
    assert sorted(lanes.store.recover("w", "killed")) == [lane_id(QUEUE, "marked"), lane_id(QUEUE, "part")]

    claims = {str(claim.unit.lane): claim for claim in runs(lanes, payloads=2)}

    assert given([claims["marked"], claims["part"]]) == [{"marked": ["stay"]}, {"part": [1, 2]}]
    assert [payload.headers for payload in claims["part"].unit.payloads] == ['{"trace":"1"}', '{"trace":"2"}']
    finish(lanes, [claims["marked"], claims["crashed"]])
    assert lanes.inspect.totals()["cancelled"] == 2
    error = ErrorInfo(kind="E", message="bad")
    lanes.store.exchange("v", [settled_alike(claims["part"], Dead(error), 1, 2)], [], 0)
    rest = runs(lanes)
    assert given(rest) == [{"part": [2, 3, 4, 5]}]  # 1 came before 2: it died
    finish(lanes, rest)
    assert lanes.inspect.counts() == {"scheduled": 1, "ready": 0, "retrying": 1, "blocked": 0, "running": 0, "dead": 1}


def test_lanes_can_be_acted_upon(lanes: Bench) -> None:
    look = lanes.inspect
    assert look.retry(lane_id(QUEUE, "retrying"))
    assert look.reschedule(lane_id(QUEUE, "later"), 0, 0)
    assert look.cancel(lane_id(QUEUE, "crashed"))
    assert look.delete(lane_id(QUEUE, "part"))

    assert sorted(given(runs(lanes)), key=str) == [{"later": ["paid"]}, {"retrying": ["early", "late"]}]

    assert look.job(lane_id(QUEUE, "crashed")) is None
    assert lane(lanes, "part").mark == "delete"


def test_their_queue_takes_no_jobs(lanes: Bench) -> None:
    with pytest.raises(WrongQueue):
        lanes.store.push([Job("plain", "app.task", QUEUE, b"[[],{}]")])


def test_records_of_jobs_that_were_done_or_cancelled_are_kept_as_long_as_they_were_to_be(lanes: Bench) -> None:
    look = lanes.inspect
    stopped, done = stands(lanes, "stopped"), stands(lanes, "done")
    assert (stopped.state, stopped.attempt, stopped.worker, stopped.args) == ("cancelled", 1, "w", ["stopped"])
    assert ([error.message for error in stopped.errors], stopped.progress, stopped.log) == (["no"], (1.0, 2.0), ["half"])
    assert (stopped.started_at, stopped.finished_at) == (as_datetime(5), as_datetime(7))
    assert (done.state, done.attempt, [error.message for error in done.errors]) == ("done", 2, ["no"])
    assert (look.result("stopped").state, look.result("stopped").value) == ("cancelled", None)
    assert (look.result("done").state, look.result("done").value) == ("done", b"7")
    assert [job.id for job in look.jobs(Filter(state="cancelled"), 9, None)] == ["stopped"]
    assert [job.id for job in look.jobs(Filter(state="done"), 9, None)] == ["done"]

    lanes.clock.advance(999_998)
    assert (stands(lanes, "stopped").state, stands(lanes, "done").state) == ("cancelled", "done")
    lanes.clock.advance(2)
    lanes.store.push([Job("new", "app.task", "default", b"[[],{}]")])
    assert (look.job("stopped"), look.job("done")) == (None, None)


def test_a_record_of_a_cancelled_job_can_be_deleted(lanes: Bench) -> None:
    assert lanes.inspect.delete("stopped")

    assert lanes.inspect.job("stopped") is None
    assert lanes.store.push([Job("stopped", "app.task", "default", b"[[],{}]")]) == [None]


@pytest.mark.parametrize("lanes", ["postgres-1"], indirect=True)
def test_tables_of_postgres_are_changed_from_the_first_version_on(lanes: Bench) -> None:
    server = postgresbench.server()

    assert server.ask("select relation = 'laneway.origin'::regclass from laneway.origin") == [(True,)]  # counted in this cluster
    assert server.ask("select is_called from laneway.special") == [(True,)]  # a queue is a collector's
    kinds = "select indisunique from pg_index where indexrelid = 'laneway.job_seq'::regclass"
    assert server.ask(kinds) == [(False,)]
    left = "select count(*) from pg_proc where pronamespace = 'laneway'::regnamespace and (proname like '%\\_v1' or prosrc = '')"
    assert server.ask(left) == [(0,)]
    assert lanes.inspect.counts()["running"] == 2


#: The columns, indexes, constraints, sequences and functions of PostgreSQL's tables.
SHAPE = """
    select 'column', c.relname || '.' || a.attname,
        concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attnum, pg_get_expr(d.adbin, d.adrelid))
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'laneway'::regnamespace and c.relkind = 'r' and a.attnum > 0
    union all select 'table', relname, concat_ws(' ', relkind, relpersistence, reloptions)
        from pg_class where relnamespace = 'laneway'::regnamespace
    union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'laneway'
    union all select 'constraint', conname, pg_get_constraintdef(oid)
        from pg_constraint where connamespace = 'laneway'::regnamespace
    union all select 'function', oid::regprocedure::text, pg_get_functiondef(oid)
        from pg_proc where pronamespace = 'laneway'::regnamespace and proname <> 'now_us'
    order by 1, 2, 3
"""


@pytest.mark.parametrize("lanes", ["postgres", "postgres-1"], indirect=True)
def test_tables_of_postgres_that_were_brought_forward_are_those_of_a_new_store(lanes: Bench) -> None:
    server = postgresbench.server()
    brought = server.ask(SHAPE)
    lanes.store.close()
    server.drop()

    lanes.store.migrate()

    assert server.ask(SHAPE) == brought
    assert {"books", "origin", "special"} <= {name for kind, name, _ in brought if kind == "table"}
