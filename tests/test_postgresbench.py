"""The servers that other tests use: PostgreSQL is killed and keeps what was committed, and PgBouncer stands in front of it."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator

import psutil
import pytest

import postgresbench

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway import App
from laneway.store.contract import ClaimRequest


@pytest.fixture(scope="module")
def server() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or fail
    own = postgresbench.Server("max_connections=10")
    yield own
    own.remove()


def test_no_process_is_root_and_options_hold(server: postgresbench.Server) -> None:
    assert len(server.processes()) > 1
    assert all(one.uids().effective for one in server.processes())
    assert server.ask("SHOW max_connections") == [("10",)]
    assert server.ask("SHOW synchronous_commit") == [("on",)]


def test_a_killed_server_starts_again_with_what_was_committed(server: postgresbench.Server) -> None:
    server.ask("CREATE TABLE kept AS SELECT generate_series(1, 1000)")
    with psycopg.connect(server.url) as client:
        client.execute("INSERT INTO kept VALUES (0)")
        everyone = server.processes()
        server.stop(kill=True)
        assert [one for one in everyone if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    server.start()
    assert server.ask("SELECT count(*) FROM kept") == [(1000,)]


def test_a_frozen_server_answers_nobody(server: postgresbench.Server) -> None:
    with contextlib.closing(psycopg.connect(server.url)) as client:
        with server.frozen():
            client.pgconn.send_query(b"SELECT 1")
            assert select.select([client], [], [], 0.2)[0] == []
        assert select.select([client], [], [], 10)[0] == [client]


def test_an_emptied_server_has_no_schema_and_no_prepared_transaction() -> None:
    server = postgresbench.emptied()
    server.ask("CREATE SCHEMA laneway CREATE TABLE jobs (id int)")
    with psycopg.connect(server.url, autocommit=True) as client:
        client.execute("BEGIN")
        client.execute("LOCK TABLE laneway.jobs")
        client.execute("PREPARE TRANSACTION 'what''s forgotten'")
    assert postgresbench.emptied() is server
    assert server.ask("SELECT to_regnamespace('laneway')") == [(None,)]


def test_a_cleared_schema_keeps_the_tables_and_the_rows_that_it_is_told_to_keep(server: postgresbench.Server) -> None:
    server.clear()  # there is none yet
    server.ask("CREATE SCHEMA laneway CREATE TABLE meta (version int) CREATE TABLE jobs (id serial PRIMARY KEY)")
    server.ask("CREATE TABLE laneway.bodies (job int REFERENCES laneway.jobs)")
    server.ask("INSERT INTO laneway.meta VALUES (7)")
    for _ in range(2):
        assert server.ask("INSERT INTO laneway.jobs DEFAULT VALUES RETURNING id") == [(1,)]
        server.ask("INSERT INTO laneway.bodies VALUES (1)")
        server.clear("meta")
        counts = "SELECT (SELECT count(*) FROM laneway.jobs), (SELECT count(*) FROM laneway.bodies), version FROM laneway.meta"
        assert server.ask(counts) == [(0, 0, 7)]


def test_a_renewed_server_has_a_new_store_whatever_was_done_to_the_last_one() -> None:
    server = postgresbench.renewed()
    made = "SELECT min(xmin::text::bigint) FROM pg_class WHERE relnamespace = to_regnamespace('laneway')"
    [first] = server.ask(made)
    app = App(server.url)
    rows = "SELECT to_jsonb(meta), (SELECT count(*) FROM laneway.job) FROM laneway.meta"
    fresh = server.ask(rows)
    app.enqueue("t")
    app.store.exchange("w", [], [ClaimRequest("default", 1)], 1)
    postgresbench.renewed()
    assert server.ask(rows) == fresh
    assert not any((*app.inspect.counts().values(), *app.stats.totals().values()))
    assert server.ask(made) == [first], "the tables are the same"
    app.close()

    for change in (
        "CREATE OR REPLACE FUNCTION laneway.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT 7::bigint'",
        "ALTER TABLE laneway.job ADD COLUMN odd int",
        "DROP SCHEMA laneway CASCADE",
    ):
        [before] = server.ask(made)
        server.ask(change)
        postgresbench.renewed()
        assert server.ask(made) > [before], change


def test_a_pooler_lends_one_backend_to_many_clients(server: postgresbench.Server) -> None:
    pooler = postgresbench.Pooler(server, "default_pool_size=1")
    connections = [psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) for _ in range(3)]
    backends = [connection.execute("SELECT pg_backend_pid()").fetchall() for connection in connections]
    assert backends[1:] == backends[:-1]
    pooler.stop(kill=True)
    with pytest.raises(psycopg.OperationalError):
        connections[0].execute("SELECT 1")
    pooler.start()
    assert pooler.ask("SELECT 1") == [(1,)]
    for connection in connections:
        connection.close()
    pooler.remove()
