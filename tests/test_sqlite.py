"""What only the SQLite store has: a file, its lock, its bell, its versions, and what can go wrong with them."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from laneway import App
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import (
    ConfigError,
    SchemaError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from laneway.ids import new_id
from laneway.locks import FairLock, this_frame
from laneway.store import liveness
from laneway.store.contract import ClaimRequest, Occurrence, WorkerInfo
from laneway.store.error_history import LONG
from laneway.store.inspection import Filter
from laneway.store.sqlite import SQLiteInspect, SQLiteStore, database, schema
from laneway.store.sqlite.bell import SQLiteBell
from laneway.store.sqlite.file import DatabaseFile
from laneway.store.sqlite.lock import FileLock
from laneway.store.sqlite.statements import SQL
from settling import settled_alike

WANT = [ClaimRequest("default", 100)]


def job(id_: str | None = None, lane: str | None = None, body: bytes = b"[[1],{}]") -> Job:
    return Job(id_ or new_id(), "app.task", "default", body, lane)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., SQLiteStore]]:
    """Open stores on the same file; they are closed at the end."""
    stores: list[SQLiteStore] = []

    def open_one(**options: float) -> SQLiteStore:
        stores.append(SQLiteStore(path, **options))  # type: ignore[arg-type]
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[..., SQLiteStore]) -> SQLiteStore:
    return opened()


def run_python(code: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


# -- garbage -------------------------------------------------------------------------------------------------


def bury(store: SQLiteStore, claims: list[Claim]) -> None:
    """Let die what is no job, as a worker does."""
    garbage = [claim for claim in claims if claim.garbage]
    store.exchange(
        "w", [settled_alike(claim, Dead(ErrorInfo(kind="garbage", message=claim.garbage))) for claim in garbage], [], 0
    )


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\x00garbage", b"null", b"[]", b"[[],[]]", b"[1,{}]", b"[[],{},{}", b"[" * 100_000, b'{"a":1}', b'[["\xff"],{}]'],
    ids=lambda raw: repr(raw[:12]),
)
def test_garbage_is_claimed_as_such_and_stays_dead_with_its_raw_bytes(store: SQLiteStore, path: Path, garbage: bytes) -> None:
    store.push([job("before"), job("bad"), job("after")])
    sql(path, "update laneway_job set body = ? where id = 'bad'", garbage)

    claims = store.exchange("w", [], WANT, 10).claims
    bury(store, claims)

    assert [(claim.unit.id, bool(claim.garbage)) for claim in claims] == [("before", False), ("bad", True), ("after", False)]
    dead = SQLiteInspect(store).job("bad")
    assert dead is not None
    assert (dead.state, dead.body, dead.args, dead.errors[0].kind) == ("dead", garbage, None, "garbage")
    assert SQLiteInspect(store).totals()["failed"] == 1


@pytest.mark.parametrize("holds", [False, True])
def test_garbage_in_a_lane_does_not_stop_the_lane(store: SQLiteStore, path: Path, holds: bool) -> None:
    store.push([job(f"x{n}", lane="x") for n in range(3)])
    if holds:
        claims = store.exchange("w", [], WANT, 1).claims
        store.exchange("w", [settled_alike(claims[0], Retrying(0, ErrorInfo(kind="E", message="")))], [], 0)
    sql(path, "update laneway_job set body = x'00' where id = 'x0'")

    bury(store, store.exchange("w", [], WANT, 10).claims)

    assert [claim.unit.id for claim in store.exchange("w", [], WANT, 10).claims] == ["x1"]
    assert SQLiteInspect(store).counts() == {"scheduled": 0, "ready": 0, "retrying": 0, "blocked": 1, "running": 1, "dead": 1}


def test_text_that_is_none_harms_only_its_own_job(store: SQLiteStore, path: Path) -> None:
    store.push([job("a"), job("b"), job("c")])
    sql(path, "update laneway_job set task = cast(x'ff41' as text) where id = 'b'")
    sql(path, "update laneway_job set id = cast(x'ff43' as text) where id = 'c'")

    claims = store.exchange("w", [], WANT, 10).claims

    assert [claim.task for claim in claims] == ["app.task", "\ufffdA", "app.task"]
    assert [found.id for found in SQLiteInspect(store).jobs(Filter(), 10, None)] == ["a", "b", "\ufffdC"]
    assert len(store.give_back("w")) == 3


#: Malformed, no UTF-8, another shape, too deep: each is refused in its own way.
UNREADABLE = [
    b"\xff",
    b'[{"kind":"\xff","message":""}]',
    b'{"log":["\xff"]}',
    b"7",
    b'[{"x":' + b"[" * 100_000,
    b'{"x":' + b"[" * 100_000,
]


@pytest.mark.parametrize("garbage", UNREADABLE, ids=lambda raw: repr(raw[:12]))
def test_errors_and_notes_that_cannot_be_read_are_no_reason_to_fail(store: SQLiteStore, path: Path, garbage: bytes) -> None:
    store.push([job("a")])
    sql(path, "update laneway_job set errors = ?, notes = ?", garbage, garbage)

    found = SQLiteInspect(store).job("a")

    assert found is not None
    assert found.errors[0].kind == "garbage"
    assert found.log == ["(the notes of this run cannot be read)"]
    assert SQLiteInspect(store).count(Filter(error="E")) == 0
    claims = store.exchange("w", [], WANT, 10).claims
    assert store.exchange("w", [settled_alike(claims[0], Retrying(0, ErrorInfo(kind="E", message="")))], [], 0).refused == []
    assert SQLiteInspect(store).count(Filter(error="E")) == 1


def test_a_long_traceback_takes_little_room(store: SQLiteStore, path: Path) -> None:
    traceback = "".join(f'  File "app.py", line {n}, in step\n    step({n})\n' for n in range(400))
    short = "x" * LONG
    store.push([job("a")])
    for text in (traceback, short):
        [held] = store.exchange("w", [], WANT, 1).claims
        store.exchange("w", [settled_alike(held, Retrying(0, ErrorInfo("E", "no", text)))], [], 0)

    [(stored,)] = sql(path, "select errors from laneway_job")

    assert isinstance(stored, bytes)
    assert len(stored) < len(short) + len(traceback) / 4
    assert short.encode() in stored  # what is not long stays readable
    found = SQLiteInspect(store).job("a")
    assert found is not None
    assert [error.traceback for error in found.errors] == [traceback, short]


@pytest.mark.parametrize(
    ("packed", "reads"),
    [
        (b"no zlib", "(the stored traceback cannot be read"),
        (zlib.compress(b"a line that was cut")[:12], "a l"),
        (zlib.compress(b"\xff\xfe"), "\ufffd\ufffd"),
        (zlib.compress(b"a bomb" * 1_000_000), "a bomba bomb"),
    ],
    ids=["not packed", "cut off", "no text", "a bomb"],
)
def test_a_traceback_that_cannot_be_unpacked_harms_nobody(store: SQLiteStore, path: Path, packed: bytes, reads: str) -> None:
    errors = [{"kind": "E", "message": "no", "packed": packed}, {"kind": "F", "message": "yes"}]
    store.push([job("a")])
    sql(path, "update laneway_job set errors = ?", msgspec.json.encode(errors))

    found = SQLiteInspect(store).job("a")

    assert found is not None
    assert [(e.kind, e.message) for e in found.errors] == [("E", "no"), ("F", "yes")]
    assert found.errors[0].traceback.startswith(reads)
    assert len(found.errors[0].traceback) <= 1_000_000


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\xff", b"null", b"[]", b"{}", b'{"id":7}', b'{"id":"bad","host":"\xff"}', b'{"id":"bad","runs":[[1]]}',
        b'{"id":"bad","x":' + b"[" * 100_000, b'{"id":"good"}', b'{"id":"bad","since":-9223372036854775808}',
        b'{"id":"bad","since":' + b"9" * 4000 + b',"runs":[[1,' + b"9" * 4000 + b"]]}",
    ],
    ids=lambda raw: repr(raw[:32]),
)  # fmt: skip
def test_a_worker_that_cannot_be_read_harms_nobody(store: SQLiteStore, path: Path, garbage: bytes) -> None:
    store.push([job("a")])
    store.beat([WorkerInfo("good", slots=5), WorkerInfo("bad", slots=5)])
    store.exchange("bad", [], WANT, 1)
    sql(path, "update laneway_worker set info = ? where id = 'bad'", garbage)

    bad, good = SQLiteInspect(store).workers()

    assert (bad.id, bad.started_at, bad.last_beat is not None, [held.id for held in bad.jobs]) == ("bad", None, True, ["a"])
    assert (good.id, good.slots, good.jobs) == ("good", 5, [])
    assert store.dead_workers() == []
    assert store.beat([WorkerInfo("bad", slots=5)])["bad"].known
    assert [worker.slots for worker in SQLiteInspect(store).workers()] == [5, 5]


def test_a_worker_is_judged_by_its_own_row_whatever_id_it_claims_to_have(store: SQLiteStore, path: Path) -> None:
    me = liveness.this_worker()
    store.beat([me, WorkerInfo("bad")])
    another = msgspec.structs.replace(me, started=me.started - 1)
    sql(path, "update laneway_worker set info = ? where id = 'bad'", msgspec.json.encode(another))

    assert store.dead_workers() == ["bad"]


def pay(lane: str, value: int) -> Job:
    return Job(lane_id("orders", lane), "app.sync", "orders", str(value).encode(), lane, gather=Gather())


def test_a_lane_whose_payloads_are_missing_leaves_and_holds_up_nobody(store: SQLiteStore, path: Path) -> None:
    store.push([pay(lane, n) for lane in "abcd" for n in range(2)])
    sql(path, "delete from laneway_payload where lane in (select seq from laneway_job where lane in ('a', 'c'))")

    claims = store.exchange("w", [], [ClaimRequest("orders", 1, lanes=4)], 1).claims

    assert [[lane.lane for lane in held.units] for held in claims] == [["b", "d"]]
    assert claims[0].unit.id == lane_id("orders", "b")
    assert SQLiteInspect(store).counts() == {"scheduled": 0, "ready": 0, "retrying": 0, "blocked": 0, "running": 2, "dead": 0}
    sql(path, "delete from laneway_payload")
    assert store.give_back("w") == [lane_id("orders", "b"), lane_id("orders", "d")]
    answer = store.exchange("w", [], [ClaimRequest("orders", 5)], 5)
    assert (answer.claims, answer.more, sum(SQLiteInspect(store).counts().values())) == ([], False, 0)


@pytest.mark.parametrize("outcome", [Done(), Retrying(0, ErrorInfo("E", "")), Dead(ErrorInfo("E", ""))], ids=lambda o: o.name)
def test_payloads_that_go_missing_during_a_run_harm_nobody(store: SQLiteStore, path: Path, outcome: Outcome) -> None:
    store.push([pay("a", 1), pay("b", 1)])
    claims = store.exchange("w", [], [ClaimRequest("orders", 5)], 5).claims
    sql(path, "delete from laneway_payload where lane = (select seq from laneway_job where lane = 'a')")

    answer = store.exchange("w", [Settled(held, (outcome,)) for held in claims], [ClaimRequest("orders", 5)], 5)

    assert answer.refused == []
    assert [held.unit.lane for held in answer.claims] == (["b"] if isinstance(outcome, Retrying) else [])


def test_a_lanes_name_that_is_no_text_harms_only_itself(store: SQLiteStore, path: Path) -> None:
    store.push([pay("a", 1), pay("b", 1)])
    sql(path, "update laneway_job set lane = cast(x'ff41' as text) where lane = 'a'")

    claims = store.exchange("w", [], [ClaimRequest("orders", 5)], 5).claims

    assert [held.unit.lane for held in claims] == ["\ufffdA", "b"]
    assert [lane.lane for lane in SQLiteInspect(store).lanes(None, "name", 9, None)] == ["b", "\ufffdA"]


@pytest.mark.parametrize(("running", "gathered"), [(1001, 3), (1500, 1200), (3, 1200)])
def test_large_parts_of_a_lane_are_merged_as_small_ones_are(store: SQLiteStore, path: Path, running: int, gathered: int) -> None:
    store.push([pay("a", n) for n in range(running)])
    claims = store.exchange("w", [], [ClaimRequest("orders", 5)], 5).claims
    store.push([pay("a", n) for n in range(running - 2, running - 2 + gathered)])

    store.exchange("w", [Settled(claims[0], (Snoozed(0),))], [], 0)

    [again] = store.exchange("w", [], [ClaimRequest("orders", 5)], 5).claims
    assert [payload.body for payload in again.units[0].payloads] == [str(n).encode() for n in range(running + gathered - 2)]
    store.exchange("w", [Settled(again, (Done(),))], [], 0)
    assert sql(path, "select count(*) from laneway_payload") == [(0,)]


def test_nothing_is_left_of_lanes_that_have_left(store: SQLiteStore, path: Path) -> None:
    inspect = SQLiteInspect(store)
    for act in (inspect.cancel, inspect.delete, inspect.kill):
        store.push([pay("a", n) for n in range(3)])
        act(lane_id("orders", "a"))
    for outcome in (Done(), Cancelled()):
        store.push([pay(f"l{n}", n) for n in range(20)])
        claims = store.exchange("w", [], [ClaimRequest("orders", 20)], 20).claims
        store.exchange("w", [Settled(held, (outcome,)) for held in claims], [], 0)

    assert sql(path, "select count(*) from laneway_payload") == [(0,)]
    assert sql(path, "select count(*) from laneway_job where state < 5") == [(0,)]


def test_books_that_cannot_be_read_are_said_to_be_damaged(store: SQLiteStore, path: Path) -> None:
    store.push([job("a")])
    sql(path, "update laneway_meta set books = x'ff'")

    with pytest.raises(StoreCorrupt, match="books"):
        store.push([job("b")])


# -- a file that does not work -------------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error_and_nothing_is_half_written(store: SQLiteStore) -> None:
    inspect = SQLiteInspect(store)
    store.push([job("first")])
    with store.database.writing as connection:
        pages = connection.execute("pragma page_count").fetchone()[0]
    with store.database.writing as connection:
        connection.execute(f"pragma max_page_count = {pages + 5}")

    with pytest.raises(StoreFull, match="make room on the disk"):
        store.push([job(body=b'[["' + b"x" * 500 + b'"],{}]') for _ in range(1000)])

    assert (inspect.counts()["ready"], inspect.totals()["enqueued"]) == (1, 1)
    claims = store.exchange("w", [], WANT, 10).claims
    assert [claim.unit.id for claim in claims] == ["first"]
    assert store.exchange("w", [settled_alike(claims[0], Done())], [], 0).refused == []
    with store.database.writing as connection:
        connection.execute("pragma max_page_count = 1000000")
    assert store.push([job(), job()]) == [None, None]


def test_a_corrupt_file_is_one_clear_error_and_stays_as_it_was(path: Path) -> None:
    path.write_bytes(b"this is no database, but a letter to my mother" * 100)
    before = path.read_bytes()
    app = App(f"sqlite:///{path}")

    with pytest.raises(StoreCorrupt, match="restore a backup") as caught:
        app.enqueue("app.task", 1)

    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    app.close()


def test_a_page_that_was_damaged_is_one_clear_error(path: Path, opened: Callable[..., SQLiteStore]) -> None:
    store = opened()
    store.push([job() for _ in range(2000)])
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xee" * (size - 8192))

    with pytest.raises(StoreCorrupt, match="damaged"):
        opened().exchange("w", [], WANT, 10)


def test_a_read_only_file_is_one_clear_error(path: Path, opened: Callable[..., SQLiteStore]) -> None:
    store = opened()
    store.push([job("first")])
    store.close()
    shutil.rmtree(path.with_name("jobs.db-sync"))
    path.chmod(0o444)
    for folder in (path.parent, *path.parent.parents[:-2]):
        folder.chmod(folder.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)
    path.parent.chmod(0o555)
    code = """
        import os, sys
        from laneway import App
        from laneway.errors import StoreReadOnly
        App("sqlite://").enqueue("app.task")  # everything is imported while we may still read where Python is
        if os.getuid() == 0:
            os.setuid(65534)  # root may write anywhere
        try:
            App(f"sqlite:///{sys.argv[1]}").enqueue("app.task", 1)
        except StoreReadOnly as error:
            print(error)
    """

    done = run_python(code, str(path))

    path.parent.chmod(0o755)
    assert "write access" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    assert SQLiteInspect(store).counts()["ready"] == 1


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        SQLiteStore(tmp_path / "nowhere" / "jobs.db").push([job()])


def test_a_writer_that_is_frozen_is_named_by_its_pid(path: Path, opened: Callable[..., SQLiteStore]) -> None:
    store = opened(timeout=0.2)
    store.push([job("first")])
    code = """
        import os, signal, sys
        from pathlib import Path
        from laneway.store.sqlite import SQLiteStore
        store = SQLiteStore(Path(sys.argv[1]))
        with store.database.writing:
            print("in", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.send_signal(signal.SIGSTOP)

        with pytest.raises(StoreBusy, match=f"process {writer.pid}") as caught:
            store.push([job()])

        assert caught.value.pid == writer.pid  # type: ignore[attr-defined]
        writer.kill()
    assert store.push([job()]) == [None]


def test_who_only_looks_needs_no_lock(store: SQLiteStore, opened: Callable[..., SQLiteStore]) -> None:
    store.push([job("a")])
    other = opened(timeout=0.1)
    store.beat([WorkerInfo("w")])
    store.push([], Occurrence("nightly", at=7))
    with store.database.writing:
        assert SQLiteInspect(other).counts()["ready"] == 1
        assert [worker.id for worker in SQLiteInspect(other).workers()] == ["w"]
        assert other.schedules().last == {"nightly": 7}


# -- versions ------------------------------------------------------------------------------------------------


def test_a_newer_version_needs_a_newer_laneway(store: SQLiteStore, path: Path, opened: Callable[..., SQLiteStore]) -> None:
    store.push([job()])
    sql(path, "update laneway_meta set version = 99")

    for act in (lambda: opened().push([job()]), lambda: opened().migrate()):
        with pytest.raises(SchemaError, match=r"version 99.*upgrade Laneway"):
            act()
    assert sql(path, "select version from laneway_meta") == [(99,)]


def add_a_table(connection: sqlite3.Connection) -> None:
    connection.execute("create table laneway_new (x)")


def test_an_older_version_waits_for_migrate(
    store: SQLiteStore, path: Path, opened: Callable[..., SQLiteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push([job("a")])
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION - 1, ("add a table", add_a_table))
    newer = opened()

    with pytest.raises(SchemaError, match="migrate"):
        newer.push([job("b")])
    newer.migrate()

    assert newer.push([job("b")]) == [None]
    assert sql(path, "select count(*) from laneway_new") == [(0,)]
    newer.migrate()  # once more does nothing


def test_a_migration_that_fails_changes_nothing(
    store: SQLiteStore, path: Path, opened: Callable[..., SQLiteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("create table laneway_new (x)")
        connection.execute("nonsense")

    store.push([job("a")])
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION - 1, ("fail", half))

    with pytest.raises(StoreError, match="nonsense"):
        opened().migrate()

    assert sql(path, "select version from laneway_meta") == [(schema.VERSION - 1,)]
    assert sql(path, "select count(*) from sqlite_schema where name = 'laneway_new'") == [(0,)]


def test_a_database_of_the_users_own_is_left_alone(path: Path, store: SQLiteStore) -> None:
    sql(path, "create table customers (id integer)")
    store.push([job()])
    assert sql(path, "select count(*) from customers") == [(0,)]


def test_somebody_elses_table_of_our_name_is_not_touched(path: Path, store: SQLiteStore) -> None:
    sql(path, "create table laneway_meta (x integer)")
    with pytest.raises(SchemaError, match="another file"):
        store.push([job()])


def test_durability_is_a_setting(path: Path) -> None:
    for text, level in (("", 1), ("?synchronous=full", 2)):
        app = App(f"sqlite:///{path}{text}")
        with app.store.database.writing as connection:  # type: ignore[attr-defined]
            assert connection.execute("pragma synchronous").fetchone() == (level,)
            assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        app.close()
    with pytest.raises(ConfigError, match="synchronous=off"):
        App(f"sqlite:///{path}?synchronous=off").enqueue("app.task")


# -- many queues ---------------------------------------------------------------------------------------------


def waiting_in(queue: str, id_: str) -> Job:
    return Job(id_, "app.task", queue, b"[[1],{}]")


def test_queues_beyond_the_first_have_rows_of_their_own(
    store: SQLiteStore, path: Path, opened: Callable[..., SQLiteStore]
) -> None:
    names = [f"queue-{n:02}" for n in range(20)]
    store.push([waiting_in(name, f"job-{name}") for name in names])
    assert sql(path, "select name from laneway_queue") == [(name,) for name in names[16:]]

    other, answer = opened(), store.exchange("w", [], [ClaimRequest(name, 1) for name in reversed(names)], 3)
    assert [claim.queue for claim in answer.claims] == names[:16:-1]
    assert answer.loads == {name: int(name not in names[17:]) for name in names}
    other.exchange("v", [], [ClaimRequest(names[16], 1)], 1)
    SQLiteInspect(other).pause(names[15], True)
    settled = [settled_alike(claim, Done()) for claim in answer.claims]
    after = store.exchange("w", settled, [ClaimRequest(name, 9) for name in names[16:]], 9)

    assert (after.claims, after.more) == ([], False)
    assert after.loads == dict.fromkeys(names[:15], 1) | dict.fromkeys(names[16:], 0)  # who may go to sleep knows it exactly
    assert SQLiteInspect(store).counts() == {"scheduled": 0, "ready": 16, "retrying": 0, "blocked": 0, "running": 1, "dead": 0}


def test_more_is_exact_though_loads_are_not(store: SQLiteStore, opened: Callable[..., SQLiteStore]) -> None:
    names, other = [f"queue-{n:02}" for n in range(20)], opened()
    store.push([waiting_in(name, f"{name}-{n}") for name in names for n in range(2)])
    store.exchange("w", [], [ClaimRequest(names[0], 1)], 1)
    other.exchange("v", [], [ClaimRequest(names[19], 9)], 9)

    answer = store.exchange("w", [], [ClaimRequest(names[1], 1), ClaimRequest(names[19], 9)], 1)
    assert answer.more  # of the second queue there is one left
    assert not store.exchange("w", [], [ClaimRequest(names[1], 1), ClaimRequest(names[19], 9)], 1).more
    other.push([waiting_in(names[19], "new")])
    answer = store.exchange("w", [], [ClaimRequest(names[2], 2), ClaimRequest(names[19], 9)], 2)
    assert (len(answer.claims), answer.more) == (2, True)


# -- what has an index ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("walk", "laneway_due"), ("let_out", "laneway_parked"), ("parked", "laneway_parked"), ("parked_before", "laneway_parked"),
        ("prevented_by", "laneway_unique"), ("newly_due", "laneway_due"), ("running", "laneway_running"),
        ("dead_oldest", "laneway_dead"),
    ],
)  # fmt: skip
def test_the_cost_of_a_step_does_not_grow_with_what_waits(store: SQLiteStore, statement: str, index: str) -> None:
    with store.turn() as turn:
        values = dict.fromkeys(re.findall(":([a-z_]+)", SQL[statement]))
        plan = [step for *_, step in turn.execute(f"explain query plan {SQL[statement]}", values)]

    assert any(index in step for step in plan)
    assert not [step for step in plan if step.startswith("SCAN") and "laneway_running" not in step and "laneway_dead" not in step]


def test_equal_jobs_are_refused_by_the_database_itself(store: SQLiteStore, path: Path) -> None:
    store.push([job("a"), job("b")])
    sql(path, "update laneway_job set unique_key = 'k' where id = 'a'")

    with pytest.raises(sqlite3.IntegrityError, match="unique_key"):
        sql(path, "update laneway_job set unique_key = 'k' where id = 'b'")


# -- processes and threads -----------------------------------------------------------------------------------


def _push_unique(path: Path, start: threading.Barrier, done: multiprocessing.Queue[list[str | None]]) -> None:
    store = SQLiteStore(path)
    start.wait()
    answers = [store.push([Job(new_id(), "t", "default", b"[[],{}]", unique=f"k{n}")])[0] for n in range(300)]
    store.close()
    done.put(answers)


def test_two_processes_that_push_equal_jobs_at_once_push_each_once(store: SQLiteStore, path: Path) -> None:
    store.push([])
    context = multiprocessing.get_context("spawn")
    start, done = context.Barrier(2), context.Queue()
    pushers = [context.Process(target=_push_unique, args=(path, start, done)) for _ in range(2)]
    for pusher in pushers:
        pusher.start()
    answers = list(zip(done.get(timeout=60), done.get(timeout=60), strict=True))
    for pusher in pushers:
        pusher.join(10)

    waiting = {found.id for found in SQLiteInspect(store).jobs(Filter(), 1000, None)}
    assert len(waiting) == 300
    assert all(pair.count(None) == 1 and waiting & set(pair) for pair in answers)


def _exchange_all(path: Path, name: str, start: threading.Barrier, done: multiprocessing.Queue[tuple[str, list[str]]]) -> None:
    store = SQLiteStore(path)
    mine: list[str] = []
    claims: list[Claim] = []
    start.wait()
    while True:
        claims = store.exchange(name, [settled_alike(claim, Done()) for claim in claims], WANT, 10).claims
        if not claims:
            break
        mine += [claim.unit.id for claim in claims]
    store.close()
    done.put((name, mine))


def test_two_processes_share_the_work_and_nothing_is_lost_or_doubled(store: SQLiteStore, path: Path) -> None:
    pushed = [job(lane=f"lane-{n}" if n % 3 == 0 else None) for n in range(20_000)]
    store.push(pushed)
    context = multiprocessing.get_context("spawn")
    start, done = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_exchange_all, args=(path, name, start, done)) for name in ("ann", "bob")]
    for worker in workers:
        worker.start()
    shares = dict([done.get(timeout=60), done.get(timeout=60)])
    for worker in workers:
        worker.join(10)

    assert Counter(shares["ann"] + shares["bob"]) == Counter(job.id for job in pushed)
    fewer, more = sorted(len(share) for share in shares.values())
    assert more <= 2 * fewer
    assert sum(SQLiteInspect(store).counts().values()) == 0


def test_threads_push_together(store: SQLiteStore) -> None:
    def push() -> None:
        for _ in range(200):
            store.push([job()])

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert SQLiteInspect(store).counts()["ready"] == 1600


def test_a_process_killed_in_the_middle_of_a_write_leaves_no_trace(store: SQLiteStore, path: Path) -> None:
    store.push([job("a")])
    code = """
        import os, sys
        from pathlib import Path
        from laneway.core.job import Job
        from laneway.store.sqlite import SQLiteStore
        from laneway.store.sqlite.statements import SQL
        store = SQLiteStore(Path(sys.argv[1]))
        with store.turn() as turn:
            turn.execute(SQL["remove"], (1,))
            os.kill(os.getpid(), 9)
    """
    assert run_python(code, str(path)).returncode == -9

    assert store.push([job("b")]) == [None]
    assert [claim.unit.id for claim in store.exchange("w", [], WANT, 10).claims] == ["a", "b"]


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked child and return what it returned, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:  # noqa: BLE001 - the child must tell and end, whatever it is
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def push_impatiently(store: SQLiteStore) -> list[str | None]:
    store.database.file.timeout = 0.1
    return store.push([job()])


def test_a_forked_child_uses_connections_of_its_own(store: SQLiteStore) -> None:
    store.push([job("parent")])
    store.wait(0)

    assert in_child(lambda: store.push([job("child")])) == "[None]"
    with store.database.writing:  # a child forked while we write does not keep the lock when we let go
        assert "StoreBusy" in in_child(lambda: push_impatiently(store))

    assert store.push([job("again")]) == [None]
    assert [claim.unit.id for claim in store.exchange("w", [], WANT, 10).claims] == ["parent", "child", "again"]


def test_memory_does_not_go_along_with_a_fork() -> None:
    store = SQLiteStore()
    store.push([job()])

    assert "use a file" in in_child(lambda: store.push([job()]))
    store.close()


# -- a file that is not there any more -----------------------------------------------------------------------


def away(path: Path, how: str) -> None:
    """Take a store's file away, or put another in its place."""
    if how == "replaced":
        other = SQLiteStore(path.with_name("other.db"))
        other.push([job("restored")])
        other.close()
    for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    if how == "all deleted":
        shutil.rmtree(path.with_name("jobs.db-sync"))
    if how == "replaced":
        path.with_name("other.db").rename(path)
    time.sleep(0.005)  # programs look once a millisecond


@pytest.mark.parametrize("how", ["deleted", "all deleted", "replaced"])
def test_programs_meet_again_in_the_file_that_is_there_now(
    store: SQLiteStore, opened: Callable[..., SQLiteStore], path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = opened()
    store.push([job("old")])
    assert worker.exchange("w", [], WANT, 1).claims
    SQLiteInspect(store).counts()
    away(path, how)

    assert store.push([job("new")]) == [None]

    claims = worker.exchange("w", [], WANT, 10).claims
    assert [claim.unit.id for claim in claims] == (["restored", "new"] if how == "replaced" else ["new"])
    assert SQLiteInspect(store).counts()["running"] == len(claims)
    assert worker.exchange("w", [settled_alike(claim, Done()) for claim in claims], [], 0).refused == []
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 2  # each program once
    assert ("was replaced" if how == "replaced" else "was deleted") in told[0]
    assert "was replaced" in told[1]  # by the one that the first program has made, or by the other
    assert sql(path, "pragma integrity_check") == [("ok",)]


@pytest.mark.parametrize("how", ["deleted", "all deleted", "replaced"])
def test_a_worker_that_waits_notices_that_its_file_is_gone(
    store: SQLiteStore, opened: Callable[..., SQLiteStore], path: Path, how: str
) -> None:
    worker = opened()
    worker.exchange("w", [], WANT, 1)
    while worker.wait(0):
        pass
    woken = threading.Event()

    def wait() -> None:
        if worker.wait(30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    away(path, how)

    thread.join(10)
    assert woken.is_set()
    store.push([job("new")])
    assert "new" in [claim.unit.id for claim in worker.exchange("w", [], WANT, 10).claims]
    while worker.wait(0):
        pass
    store.push([job("newer")])
    assert worker.wait(0.2)  # by the bell, which has a name in the new folder: without it, looking takes longer


def test_a_beat_and_a_look_notice_a_file_that_was_replaced(
    store: SQLiteStore, opened: Callable[..., SQLiteStore], path: Path
) -> None:
    store.push([job("old")])
    assert SQLiteInspect(store).counts()["ready"] == 1
    away(path, "replaced")

    store.beat([WorkerInfo("w")])

    assert [one.id for one in SQLiteInspect(store).workers()] == ["w"]
    assert [one.id for one in SQLiteInspect(opened()).workers()] == ["w"]


# -- a stranger holds the file ------------------------------------------------------------------------------


@pytest.mark.parametrize("opened_before", [True, False], ids=["opened", "new"])
@pytest.mark.parametrize("lock", ["immediate", "exclusive"])
def test_an_enqueue_waits_no_longer_than_it_may_for_a_stranger(
    path: Path, opened_before: bool, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SQLiteStore(path)
    first.push([job()])
    first.close()
    slept: list[float] = []
    connect = DatabaseFile.connect

    def watched(self: DatabaseFile, timeout: float) -> sqlite3.Connection:
        assert timeout == 0, "SQLite itself would wait as long again in each statement"
        return connect(self, timeout)

    monkeypatch.setattr(DatabaseFile, "connect", watched)
    store = SQLiteStore(path, enqueue_timeout=0.5)
    if opened_before:
        store.push([job()])
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute(f"begin {lock}")
    begun = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: begun + sum(slept), sleep=slept.append)
    with monkeypatch.context() as while_it_waits:
        while_it_waits.setattr(database, "time", clock)
        with pytest.raises(StoreBusy, match=r"for more than 0\.5 s"):
            store.push([job()])

    stranger.execute("rollback")
    assert sum(slept) == pytest.approx(0.5, abs=0.01)
    assert store.push([job()]) == [None]
    stranger.close()
    store.close()


# -- lock and bell -------------------------------------------------------------------------------------------


def test_threads_get_the_lock_in_the_order_of_asking() -> None:
    lock = FairLock()
    first = lock.acquire(1, this_frame())
    assert first
    order: list[int] = []

    def take(number: int) -> None:
        place = lock.acquire(10, this_frame())
        assert place
        order.append(number)
        lock.release(place)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(5)]
    for number, thread in enumerate(threads):
        thread.start()
        while len(lock._waiters) <= number + 1:
            time.sleep(0.001)
    lock.release(first)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_who_waited_too_long_leaves_the_line() -> None:
    lock = FairLock()
    first = lock.acquire(1, this_frame())
    assert first
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: lock.acquire(0.01, this_frame())).result() is None
        lock.release(first)
        assert other.submit(lambda: lock.acquire(0.01, this_frame())).result() is not None


def test_who_has_just_written_stands_behind_who_waits(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path), FileLock(tmp_path)
    assert first.acquire(time.monotonic() + 1)
    order: list[str] = []

    def wait() -> None:
        assert second.acquire(time.monotonic() + 10)
        order.append("second")
        second.release()

    thread = threading.Thread(target=wait)
    thread.start()
    while not _is_locked(tmp_path / "turn"):
        time.sleep(0.001)
    first.release()
    assert first.acquire(time.monotonic() + 10)  # at once: but the other one is next
    order.append("first")
    first.release()
    thread.join()

    assert order == ["second", "first"]
    first.close()
    second.close()


def _is_locked(path: Path) -> bool:
    return f":{path.stat().st_ino} " in Path("/proc/locks").read_text(encoding="ascii") if path.exists() else False


def bells(path: Path) -> list[str]:
    return [name for name in os.listdir(path.with_name("jobs.db-sync")) if name.endswith(".bell")]


def test_a_store_that_only_enqueues_does_not_listen(store: SQLiteStore, path: Path) -> None:
    store.push([job()])
    assert bells(path) == []
    store.exchange("w", [], WANT, 1)
    assert len(bells(path)) == 1
    store.close()
    assert bells(path) == []


def test_the_bell_of_the_dead_is_removed(store: SQLiteStore, path: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from laneway.store.sqlite import SQLiteStore
        store = SQLiteStore(Path(sys.argv[1]))
        store.push([])
        store.bell.listen()
        os.kill(os.getpid(), 9)
    """
    run_python(code, str(path))
    assert len(bells(path)) == 1

    store.push([job()])

    assert bells(path) == []


@pytest.mark.parametrize("how", ["bell", "a long path", "polling", "another process"])
def test_a_push_wakes_who_waits(tmp_path: Path, how: str) -> None:
    folder = tmp_path / ("deep" * 30 if how == "a long path" else "here")
    folder.mkdir()
    path = folder / "jobs.db"
    waiter, pusher = SQLiteStore(path), SQLiteStore(path)
    waiter.bell._deaf = how == "polling"
    waiter.exchange("w", [], WANT, 1)
    while waiter.wait(0.01):
        pass
    woken = threading.Event()

    def wait() -> None:
        if waiter.wait(30):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()

    if how == "another process":
        run_python("import sys; from laneway import App; App(f'sqlite:///{sys.argv[1]}').enqueue('t')", str(path))
    else:
        pusher.push([job()])

    thread.join(10)
    assert woken.is_set()
    assert (waiter.bell._ear is None) == (how == "polling")
    waiter.close()
    pusher.close()


def test_a_full_bell_does_not_hold_up_who_rings(store: SQLiteStore, opened: Callable[..., SQLiteStore]) -> None:
    listener = opened()
    listener.exchange("w", [], WANT, 0)
    for _ in range(2000):
        store.bell.ring()
    assert listener.wait(1)


def test_a_wait_costs_nothing_and_an_idle_exchange_writes_nothing(store: SQLiteStore, path: Path) -> None:
    store.push([job("a")])
    store.exchange("w", [], WANT, 1)
    other = sqlite3.connect(path)
    before = other.execute("pragma data_version").fetchone()

    for _ in range(3):
        assert store.exchange("w", [], WANT, 1).claims == []

    assert other.execute("pragma data_version").fetchone() == before
    other.close()


def test_stores_that_take_turns_at_a_file_see_what_the_other_has_counted(
    store: SQLiteStore, opened: Callable[..., SQLiteStore]
) -> None:
    other = opened()
    for one in (store, other, store, other):
        one.push([job()])

    assert SQLiteInspect(store).counts()["ready"] == 4


def test_threads_that_ring_at_once_open_one_socket(tmp_path: Path) -> None:
    bell = SQLiteBell(tmp_path, lambda: False)
    start, found = threading.Barrier(8), list[object]()

    def open_it() -> None:
        start.wait()
        found.append(bell._open_mouth())

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bell.close()

    assert len(set(found)) == 1
