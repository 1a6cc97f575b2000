"""A dump of a PostgreSQL store is restored, also into another cluster, whose transactions have other ids."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

import pytest

import postgresbench
from laneway import App, Worker
from laneway.core.job import Claim
from laneway.core.outcome import Done
from laneway.store.contract import ClaimRequest
from laneway.store.statistics import DAY
from settling import settled_alike
from test_postgres_migrate import Database, tool

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.store.postgres import PostgresInspect, PostgresStore, schema

FOLD = f"select laneway.fold_v{schema.VERSION}(10000000, 1000)"
IS_ORIGINAL = f"select laneway.is_original_v{schema.VERSION}()"
RECOUNT = f"select laneway.recount_v{schema.VERSION}()"
LEFT = "select count(*) from laneway.ledger"
MAIL = '{"task": "mail", "args": [9]}'


class Shop:
    """A program that uses a store."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url + "?timeout=30", enqueue_timeout=30)
        self.store = cast("PostgresStore", app.store)
        self.store._folded = float("inf")  # the tests say when
        self.ran: list[Any] = []

        @app.task(name="mail")
        def mail(number: int) -> None:
            self.ran.append(number)

        @app.task(name="ship", lane="order")
        def ship(order: int, step: int) -> None:
            self.ran.append((order, step))

        @app.task(name="once", unique=True)
        def once(number: int) -> None:
            self.ran.append(("once", number))

        @app.collector(name="save")
        def save(lanes: dict[str, list[int]]) -> None:
            self.ran.append(lanes)

        self.mail, self.ship, self.once, self.save = mail, ship, once, save

    def claim(self, number: int) -> list[Claim]:
        return self.store.exchange("w", [], [ClaimRequest("default", number)], number).claims

    def settle(self, claims: list[Claim]) -> None:
        assert self.store.exchange("w", [settled_alike(one, Done(), 1, 2) for one in claims], [], 0).refused == []

    def figures(self) -> dict[str, Any]:
        """All that is counted."""
        look = PostgresInspect(self.store)
        arrived = look.figures(DAY, 2, "total").buckets.values()
        return {
            "counts": {state: number for state, number in look.counts().items() if number},
            "totals": {name: number for name, number in look.totals().items() if number},
            "runs": [run.id for run in look.recent(100)],
            "arrived": sum(one.enqueued for bucket in arrived for one in bucket.series.values()),
        }

    def queues(self) -> list[str]:
        return [queue.name for queue in self.app.inspect.queues()]

    def close(self) -> None:
        self.app.close()


def fill(database: Database) -> dict[str, Any]:
    """Write a store, and return its figures.

    A part of the steps is added up. One was in progress when they were. Two more are in the inbox, and in no figure.
    """
    with closing(Shop(database.url)) as shop:
        for number in range(4):
            shop.mail.enqueue(number)
            shop.ship.enqueue(1, number)
        shop.settle(shop.claim(2))
        shop.claim(1)
        database.ask(FOLD)
        with psycopg.connect(database.url) as late, shop.app.transaction(late):
            shop.mail.enqueue(4)
            with closing(Shop(database.url)) as other:
                other.mail.enqueue(5)
                other.settle(other.claim(1))
            database.ask(FOLD)
            database.ask(FOLD)
        shop.mail.enqueue(6)
        shop.settle(shop.claim(1))
        found = shop.figures()
        assert found["totals"] == {"enqueued": 11, "processed": 4}
        assert len(database.ask("select * from laneway.ledger, laneway.books where not pg_visible_in_snapshot(xid, snap)")) > 2
        with psycopg.connect(database.url) as connection, shop.app.transaction(connection):
            shop.once.enqueue(7)
            shop.save.enqueue("a", 8)
    return found


def plus(figures: dict[str, Any], number: int) -> dict[str, Any]:
    """The figures with more jobs that are ready."""
    counts, totals = figures["counts"], figures["totals"]
    return {
        **figures,
        "counts": {**counts, "ready": counts.get("ready", 0) + number},
        "totals": {**totals, "enqueued": totals["enqueued"] + number},
        "arrived": figures["arrived"] + number,
    }


def counted(database: Database) -> dict[str, int]:
    """The jobs by state, one by one."""
    names = ("scheduled", "ready", "retrying", "blocked", "running", "dead")
    return {names[cast("int", s)]: cast("int", n) for s, n in database.ask("select state, count(*) from laneway.job group by 1")}


@pytest.fixture(scope="module")
def high() -> Iterator[postgresbench.Server]:
    """A server whose transactions have ids of seven times four billion and more."""
    server = postgresbench.Server()
    server.stop()
    command: list[Any] = [tool("pg_resetwal"), "-e", "7", "-D", server.data]
    subprocess.run(command, check=True, capture_output=True, timeout=60, **postgresbench._person())
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["lower", "higher", "the same"])
def moved(request: pytest.FixtureRequest, high: postgresbench.Server) -> Iterator[tuple[Database, Database]]:
    """Two databases: of clusters with lower or higher ids in the second, and of one."""
    usual = postgresbench.server()
    servers = {"lower": (high, usual), "higher": (usual, high), "the same": (usual, usual)}[request.param]
    made = Database("source", servers[0]), Database("target", servers[1])
    yield made
    for one in made:
        one.remove()


@pytest.fixture(scope="module")
def dumped(high: postgresbench.Server) -> str:
    """A store of a cluster with higher ids."""
    source = Database("source", high)
    fill(source)
    text = source.dump()
    source.remove()
    return text


@pytest.fixture
def target(dumped: str) -> Iterator[Database]:
    """A database with that store; nobody has opened it."""
    made = Database("target")
    made.psql(dumped)
    yield made
    made.remove()


def test_a_restored_store_is_as_it_was_and_goes_on(moved: tuple[Database, Database]) -> None:
    source, target = moved
    before = fill(source)
    target.psql(source.dump())
    with psycopg.connect(target.url) as early:  # before a program of ours has seen it
        for queue in ("early", "default"):
            with early.transaction():
                early.execute("select laneway.enqueue(%s)", (f'{{"task": "mail", "queue": "{queue}", "args": [9]}}',))

    with closing(Shop(target.url)) as shop:
        assert target.ask(IS_ORIGINAL) == [(False,)]
        now = plus(before, 4)
        assert shop.figures() == now
        assert target.ask(IS_ORIGINAL) == [(True,)]
        for _ in range(3):
            target.ask(FOLD)
            assert shop.figures() == now
        assert target.ask(LEFT) == [(0,)]
        assert "early" in shop.queues()

        [running] = shop.app.inspect.jobs(state="running")
        shop.store.recover("w", "killed")
        with psycopg.connect(target.url) as connection, shop.app.transaction(connection):
            shop.once.enqueue(7)  # it is there already
            shop.once.enqueue(10)
            shop.save.enqueue("a", 11)
            shop.ship.enqueue(1, 4)
            shop.mail.using(queue="new").enqueue(12)
        assert shop.app.inspect.counts()["running"] == 0
        target.ask(FOLD)
        assert "new" in shop.queues()
        Worker(shop.app, 2, queues=["default", "save", "early", "new"]).run(burst=True)

        steps = [step for one in shop.ran if isinstance(one, tuple) and one[0] == 1 for step in one[1:]]
        assert steps == [n for n in range(5) if (1, n) in shop.ran]
        assert sorted(one[1] for one in shop.ran if isinstance(one, tuple) and one[0] == "once") == [7, 10]
        assert [one for one in shop.ran if isinstance(one, dict)] == [{"a": [8, 11]}]
        assert running.id in [run.id for run in shop.app.stats.recent(100)]
        for _ in range(2):
            target.ask(FOLD)
            assert shop.figures()["counts"] == counted(target) == {}
        assert shop.app.stats.totals()["processed"] == 4 + len(shop.ran) + 1  # the two payloads ran at once


def test_programs_that_open_it_at_once_count_it_once(target: Database) -> None:
    shops = [Shop(target.url) for _ in range(6)]
    with ThreadPoolExecutor(len(shops)) as pool:
        list(pool.map(lambda shop: shop.mail.enqueue(9), shops))
    assert target.ask(IS_ORIGINAL) == [(True,)]
    for _ in range(2):
        found = shops[0].figures()
        assert found["counts"] == counted(target)
        assert found["totals"] == {"enqueued": 13 + len(shops), "processed": 4}
        target.ask(FOLD)
    for shop in shops:
        shop.close()


def test_transactions_that_are_open_while_it_is_counted_count_when_they_commit(target: Database) -> None:
    enqueue = f"select laneway.enqueue('{MAIL}')".encode()
    with psycopg.connect(target.url) as late, psycopg.connect(target.url) as prepared:
        late.execute(enqueue)
        prepared.tpc_begin("prepared")
        prepared.execute(enqueue)
        prepared.tpc_prepare()
        with closing(Shop(target.url)) as shop:
            before = shop.figures()
            assert (before["counts"], before["totals"]["enqueued"]) == (counted(target), 13)
            target.ask(FOLD)
            late.commit()
            prepared.tpc_commit()
            for _ in range(3):
                assert shop.figures() == plus(before, 2)
                target.ask(FOLD)


def test_a_long_migration_counts_it_while_others_go_on(target: Database) -> None:
    with psycopg.connect(target.url) as migration:
        migration.execute("select pg_current_xact_id()")
        for _ in range(2):
            target.ask(f"select laneway.enqueue('{MAIL}')")
        assert migration.execute(RECOUNT.encode()).fetchall() == [(True,)]
        target.ask(f"select laneway.enqueue('{MAIL}')")
    with closing(Shop(target.url)) as shop:
        for _ in range(3):
            found = shop.figures()
            assert (found["counts"], found["totals"], found["arrived"]) == (counted(target), {"enqueued": 16, "processed": 4}, 16)
            assert len(found["runs"]) == 4
            target.ask(FOLD)
        assert target.ask(LEFT) == [(0,)]


def test_a_program_that_is_open_meanwhile_counts_it_too(target: Database, dumped: str) -> None:
    with closing(Shop(target.url)) as shop:
        before = shop.figures()
        target.psql("drop schema laneway cascade;" + dumped)
        shop.mail.enqueue(9)
        shop.store._folded = 0.0

        shop.claim(0)  # an exchange adds the ledger up, now and then

        assert target.ask(IS_ORIGINAL) == [(True,)]
        assert shop.figures() == plus(before, 1)


def test_a_user_who_may_only_read_sees_what_is_there_and_the_doctor_tells(target: Database) -> None:
    target.ask("delete from laneway.inbox")  # what is there joins the jobs when somebody looks
    with closing(App(f"{target.url}?options=-c%20default_transaction_read_only%3Don")) as app:
        app.inspect.counts()
        [found] = [finding for finding in app.inspect.examine() if finding.what == "ledger"]
    assert (found.level, "came out of a dump" in found.found, found.advice) == ("warning", True, "Run laneway migrate")
    PostgresStore(target.url).migrate()
    with closing(App(target.url)) as app:
        assert [finding.level for finding in app.inspect.examine() if finding.what == "ledger"] == ["ok"]


def test_a_store_that_was_not_restored_is_never_counted_anew(target: Database) -> None:
    with closing(Shop(target.url)) as shop:
        shop.figures()
        before = target.ask("select xmin::text from laneway.origin")
        target.psql("vacuum freeze laneway.origin; vacuum full laneway.origin;")
        PostgresStore(target.url).migrate()
        with closing(Shop(target.url)) as other:
            other.figures()
        assert target.ask("select xmin::text from laneway.origin") == before
