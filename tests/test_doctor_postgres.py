"""What is examined of a PostgreSQL server, on real ones; only what a test cannot make a server do is judged by its words."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import postgresbench
from laneway import App
from laneway.core.job import Job
from laneway.ids import new_id
from laneway.store.findings import Finding
from laneway.testing import wait_until
from workbench import until

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.store.postgres import PostgresInspect, PostgresStore, checks

SOUND = ("fsync=on", "full_page_writes=on", "max_connections=20", "max_locks_per_transaction=10", "max_prepared_transactions=5")
NAMES = (
    "layout", "version", "replication", "durability", "isolation", "rights", "connections", "locks", "horizon", "vacuum",
    "tables", "ledger", "latency", "notifications",
)  # fmt: skip


@pytest.fixture(scope="module")
def own() -> Iterator[postgresbench.Server]:
    """A server as it should be."""
    if postgresbench.why_not():
        pytest.fail(postgresbench.why_not())
    server = postgresbench.Server(*SOUND)
    store = PostgresStore(server.url)
    store.migrate()
    store.close()
    yield server
    server.remove()


Change = Callable[[str, str], None]


@pytest.fixture
def change(own: postgresbench.Server) -> Iterator[Change]:
    """Changes a setting of the server until the test ends."""
    changed: list[str] = []

    def show(name: str) -> str:
        return str(own.ask(f"show {name}")[0][0])

    def to(name: str, value: str) -> None:
        changed.append(name)
        own.ask(f"alter system set {name} = '{value}'")
        own.reload()
        until(lambda: show(name) == value, f"{name} is {value}")

    before = {name: show(name) for name in ("fsync", "full_page_writes", "autovacuum", "synchronous_standby_names")}
    yield to
    own.ask("alter system reset all")
    own.reload()
    until(lambda: all(show(name) == before[name] for name in changed), "the settings of before")


def found(url: str, *, deep: bool = False, listen: str | None = None) -> dict[str, Finding]:
    """Examine a server; return its findings by what they are about."""
    store = PostgresStore(url, listen=listen)
    try:
        findings = PostgresInspect(store).examine(deep)
    finally:
        store.close()
    assert len({finding.what for finding in findings}) == len(findings)
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in findings)
    return {finding.what: finding for finding in findings}


@contextlib.contextmanager
def session(server: postgresbench.Server, *statements: str) -> Iterator[psycopg.Connection]:
    """A transaction of another program."""
    with contextlib.closing(psycopg.connect(server.url, application_name="report")) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


def test_a_server_as_it_should_be(own: postgresbench.Server) -> None:
    assert {name: finding.level for name, finding in found(own.url).items()} == dict.fromkeys(NAMES, "ok")
    assert found(own.url, deep=True)["integrity"].level == "ok"


def test_versions_that_are_too_old() -> None:
    assert (checks.check_version(120_005).level, checks.check_version(120_005).found[:20]) == ("problem", "it is PostgreSQL 12.")
    assert str(checks.check_version(130_000)) == "PostgreSQL 13.0"


@pytest.mark.parametrize("name", ["fsync", "full_page_writes"])
def test_a_server_that_a_crash_can_damage(own: postgresbench.Server, change: Change, name: str) -> None:
    change(name, "off")
    durability = found(own.url)["durability"]
    assert (durability.level, durability.found.startswith(f"{name} off: ")) == ("problem", True)


@pytest.mark.parametrize(
    ("setting", "what", "level", "said"),
    [
        ("synchronous_commit = off", "durability", "warning", "enqueued in its last fraction of a second are lost"),
        ("default_transaction_isolation = serializable", "isolation", "note", "of this user is serializable"),
        ("default_transaction_read_only = on", "replication", "problem", "read-only for this user"),
    ],
)
def test_what_a_role_is_given(own: postgresbench.Server, setting: str, what: str, level: str, said: str) -> None:
    own.ask("create role clerk login superuser")
    try:
        own.ask(f"alter role clerk set {setting}")
        finding = found(own.url.replace("postgres@", "clerk@"))[what]
    finally:
        own.ask("drop role clerk")
    assert (finding.level, said in finding.found) == (level, True)


def test_rights_that_are_missing(own: postgresbench.Server) -> None:
    url = own.url.replace("postgres@", "clerk@")
    own.ask("create role clerk login")
    try:
        own.ask("grant usage on schema laneway to clerk")
        own.ask("grant select, insert, update, delete on all tables in schema laneway to clerk")
        own.ask("grant usage, select, update on all sequences in schema laneway to clerk")
        own.ask("grant execute on all functions in schema laneway to clerk")
        assert (found(url)["rights"].level, found(url)["replication"].level) == ("note", "ok")
        own.ask("grant pg_read_all_stats to clerk")
        assert found(url)["rights"].level == "ok"

        own.ask("revoke delete, update on laneway.job from clerk")
        own.ask("revoke update on sequence laneway.clock from clerk")
        own.ask("revoke execute on function laneway.now_us() from clerk")
        rights = found(url)["rights"]
        assert rights.level == "problem"
        assert "lacks rights on clock (update), job (update, delete), now_us (execute): " in rights.found
    finally:
        own.ask("drop owned by clerk")
        own.ask("drop role clerk")


def test_connections_near_their_limit(own: postgresbench.Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(15):
            stack.enter_context(contextlib.closing(psycopg.connect(own.url)))
        connections = found(own.url)["connections"]
    assert (connections.level, " of 17 connections are in use" in connections.found) == ("warning", True)


def test_a_table_of_locks_that_is_nearly_full(own: postgresbench.Server) -> None:
    with session(own, "select pg_advisory_lock(n) from generate_series(1, 200) n"):
        assert found(own.url)["locks"].level == "warning"


# -- what holds vacuum up ----------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every open transaction be a long one."""
    monkeypatch.setattr(checks, "OPEN_LONG", -1.0)


WRITES = "insert into laneway.counter values ('other', 1) on conflict (name) do nothing"


@pytest.mark.usefixtures("soon")
def test_an_idle_transaction_holds_vacuum_up(own: postgresbench.Server) -> None:
    with session(own, WRITES) as connection:
        horizon = found(own.url)["horizon"]
        pid = connection.info.backend_pid
    assert (horizon.level, horizon.advice) == ("warning", f"End it: select pg_terminate_backend({pid})")
    assert f"session {pid} of postgres (report) is idle in a transaction for 0 s" in horizon.found


@pytest.mark.usefixtures("soon")
def test_only_a_transaction_that_may_see_our_rows_holds_vacuum_up(own: postgresbench.Server) -> None:
    with session(own, "select 1"):  # at READ COMMITTED it has seen what it wanted
        wait_until(lambda: found(own.url)["horizon"].level == "ok")  # a vacuum by itself may be at work
    with session(own, "set transaction isolation level repeatable read", "select 1"):
        assert found(own.url)["horizon"].level == "warning"
    own.ask("create database elsewhere")
    elsewhere = own.url.removesuffix("/postgres") + "/elsewhere"
    with contextlib.closing(psycopg.connect(elsewhere, autocommit=False)) as connection:
        connection.execute("create table t ()")
        wait_until(lambda: found(own.url)["horizon"].level == "ok")
    own.ask("drop database elsewhere with (force)")


def test_a_short_transaction_is_no_finding(own: postgresbench.Server) -> None:
    with session(own, WRITES):
        assert found(own.url)["horizon"].level == "ok"


@pytest.mark.usefixtures("soon")
def test_a_prepared_transaction_that_was_forgotten(own: postgresbench.Server) -> None:
    with session(own, WRITES, "prepare transaction 'forgotten'"):
        pass
    horizon = found(own.url)["horizon"]
    own.ask("rollback prepared 'forgotten'")
    assert (horizon.level, "by postgres ('forgotten')" in horizon.found) == ("warning", True)
    assert horizon.advice == "Commit it or roll it back: rollback prepared 'forgotten'"
    wait_until(lambda: found(own.url)["horizon"].level == "ok")


def test_a_replication_slot_that_nobody_reads(own: postgresbench.Server) -> None:
    own.ask("select pg_create_physical_replication_slot('old', true)")
    slots = found(own.url)["slots"]
    own.ask("select pg_drop_replication_slot('old')")
    assert (slots.level, slots.advice.endswith("pg_drop_replication_slot('old')")) == ("warning", True)
    assert "slots" not in found(own.url)


def test_autovacuum_that_is_off(own: postgresbench.Server, change: Change) -> None:
    own.ask("alter table laneway.job set (autovacuum_enabled = false)")
    vacuum = found(own.url)["vacuum"]
    own.ask("alter table laneway.job reset (autovacuum_enabled)")
    assert (vacuum.level, vacuum.found.startswith("autovacuum of job is off")) == ("warning", True)
    assert found(own.url)["vacuum"].level == "ok"
    change("autovacuum", "off")
    assert found(own.url)["vacuum"].found.startswith("autovacuum is off")


@pytest.fixture
def untidied(own: postgresbench.Server) -> Iterator[None]:
    """A table that the server does not vacuum by itself: else it may do so between two statements of a test."""
    own.ask("alter table laneway.counter set (autovacuum_enabled = false)")
    yield
    own.ask("alter table laneway.counter reset (autovacuum_enabled)")


@pytest.mark.usefixtures("untidied")
def test_dead_rows_that_stay(own: postgresbench.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    own.ask("vacuum laneway.counter")
    own.ask("insert into laneway.counter select n, n from generate_series(1, 3000) n")
    own.ask("delete from laneway.counter")
    until(lambda: "table counter: 3,000 dead rows, 0 live ones" in found(own.url)["tables"].found, "statistics of the table")
    monkeypatch.setattr(checks, "DEAD_ROWS", 3000)
    tables = found(own.url)["tables"]
    assert (tables.level, "; it was last vacuumed " in tables.found) == ("note", True)
    monkeypatch.setattr(checks, "MANY_DEAD_ROWS", 3000)
    assert found(own.url)["tables"].level == "warning"
    own.ask("vacuum laneway.counter")
    until(lambda: found(own.url)["tables"].level == "ok", "statistics of the table")


def test_a_ledger_that_nobody_adds_up(own: postgresbench.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(PostgresStore(own.url)) as store:
        for _ in range(3):
            store.push([Job(new_id(), "app.task", "default", b"[[],{}]")])
        monkeypatch.setattr(checks, "LEDGER_LONG", 3)
        assert found(own.url)["ledger"].level == "warning"
        with store.turn() as turn:
            turn.fold()
        assert str(found(own.url)["ledger"]) == "0 steps are not added up yet"


# -- standbys ----------------------------------------------------------------------------------------------------


class Standby(postgresbench.Server):
    """A copy of a server, which follows it."""

    def __init__(self, primary: postgresbench.Server) -> None:
        postgresbench._Program.__init__(self, "postgres")
        self._options = (
            f"primary_conninfo='host=127.0.0.1 port={primary.port} user={postgresbench.USER}'",
            "hot_standby_feedback=on",
        )
        self._line = None
        self.data = Path(self.folder, "data")
        folder = (postgresbench.programs() / "postgres").resolve().parent
        command = [shutil.which("pg_basebackup") or folder / "pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast"]
        command += ["-h", "127.0.0.1", "-p", str(primary.port), "-U", postgresbench.USER]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, **postgresbench._person())
        assert done.returncode == 0, done.stderr
        self.start()


def test_a_standby_is_a_problem_and_its_primary_is_not(own: postgresbench.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    standby = Standby(own)
    try:
        with contextlib.closing(App(standby.url)) as app:
            findings = {finding.what: finding for finding in app.inspect.examine()}
        assert (findings["replication"].level, findings["replication"].found[:16]) == ("problem", "it is a standby:")
        assert "notifications" not in findings

        until(lambda: found(own.url)["replication"].found == "a primary; standbys: 1", "a standby that follows")
        monkeypatch.setattr(checks, "MANY_TRANSACTIONS", 0)
        with contextlib.closing(psycopg.connect(standby.url)) as reader:
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from laneway.job")

            def held() -> bool:
                own.ask("select pg_current_xact_id()")
                return 'a query on standby "walreceiver" (hot_standby_feedback)' in found(own.url)["horizon"].found

            until(held, "the standby's feedback")
    finally:
        standby.remove()


def test_commits_that_wait_for_a_standby_that_is_not_there(own: postgresbench.Server, change: Change) -> None:
    change("synchronous_standby_names", "nobody")
    assert found(own.url)["replication"].found.startswith("commits wait for a synchronous standby, and none is connected")


# -- poolers -----------------------------------------------------------------------------------------------------


def test_behind_a_pooler_nobody_is_woken_unless_its_listener_goes_past_it(own: postgresbench.Server) -> None:
    pooler = postgresbench.Pooler(own)
    try:
        behind = found(pooler.url)["notifications"]
        assert (behind.level, "pooler in transaction mode" in behind.found) == ("note", True)
        assert found(pooler.url, listen=own.url)["notifications"].level == "ok"
        wrong = found(pooler.url, listen=pooler.url)["notifications"]
        assert (wrong.level, "address of listen=" in wrong.found) == ("warning", True)
        nowhere = found(own.url, listen="postgresql://127.0.0.1:1/postgres")["notifications"]
        assert nowhere.level == "warning"
        with contextlib.closing(App(f"{pooler.url}?prepare=off&listen={quote(own.url, safe='')}")) as app:
            assert {finding.what: finding.level for finding in app.inspect.examine()}["notifications"] == "ok"
    finally:
        pooler.remove()


# -- all of it ---------------------------------------------------------------------------------------------------


def test_a_lane_that_two_jobs_hold_is_found_by_a_deep_look(own: postgresbench.Server) -> None:
    with contextlib.closing(PostgresStore(own.url)) as store:
        store.push([Job(new_id(), "app.task", "default", b"[[],{}]", lane="a") for _ in range(2)])
    own.ask("update laneway.job set holds = 1 where lane = 'a'")
    integrity = found(own.url, deep=True)["integrity"]
    own.ask("delete from laneway.job")
    assert (integrity.level, integrity.found[:55]) == ("problem", "two jobs hold the same lane: a of queue default. Anothe")


def test_an_examination_writes_nothing(own: postgresbench.Server) -> None:
    tables = [name for (name,) in own.ask("select tablename from pg_tables where schemaname = 'laneway' order by 1")]

    def everything() -> list[Any]:
        return [own.ask(f"select xmin, t.* from laneway.{table} t order by ctid") for table in tables]  # noqa: S608 - our names

    before = everything()
    found(own.url, deep=True)
    assert everything() == before


def test_the_server_examines_itself_for_an_app(own: postgresbench.Server) -> None:
    with contextlib.closing(App(own.url)) as app:
        findings = {finding.what: finding.level for finding in app.inspect.examine()}
    assert set(NAMES) < set(findings)
    assert findings["clock"] == "ok"
