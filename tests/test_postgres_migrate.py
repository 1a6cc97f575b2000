"""`laneway migrate` on PostgreSQL, the same as SQL, and the rights that a role needs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgresbench
from clidesk import Desk, open_desk
from laneway import App
from laneway.config import safe_url
from laneway.errors import SchemaError, StoreError, StoreUnavailable
from laneway.worker import Worker

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

from laneway.store.postgres import PostgresStore, schema

DOCUMENT = Path(__file__).parent.parent / "docs" / "postgres.md"


def tool(name: str) -> str:
    """The path of a client program; they are in PATH, or where the server's are."""
    return shutil.which(name) or str((postgresbench.programs() / "postgres").resolve().parent / name)


class Database:
    """A database of its own, on the shared server or another."""

    def __init__(self, name: str, server: postgresbench.Server | None = None) -> None:
        self.name = name
        self.server = server or postgresbench.server()
        self.url = self.of(postgresbench.USER)
        self.socket_url = self.server.socket_url.replace("@/postgres?", f"@/{name}?")
        self.server.ask(f"drop database if exists {name} with (force)")
        self.server.ask(f"create database {name}")

    def of(self, user: str) -> str:
        """The address for a user."""
        return f"postgresql://{user}@127.0.0.1:{self.server.port}/{self.name}"

    def psql(self, text: str) -> None:
        command = [tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url]
        subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=60)

    def dump(self, *options: str) -> str:
        """What pg_dump prints."""
        command = [tool("pg_dump"), *options, "-d", self.url]
        text = subprocess.run(command, text=True, check=True, capture_output=True, timeout=60).stdout
        random = ("\\restrict", "\\unrestrict")  # they have a key
        return "\n".join(line for line in text.splitlines() if not line.startswith(random))

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        import psycopg  # noqa: PLC0415 - it may be missing

        with psycopg.connect(self.url, autocommit=True) as connection:
            answer = connection.execute(sql.encode())
            return answer.fetchall() if answer.description else []

    def remove(self) -> None:
        self.server.ask(f"drop database {self.name} with (force)")


@pytest.fixture
def one() -> Iterator[Database]:
    database = Database("one")
    yield database
    database.remove()


@pytest.fixture
def two() -> Iterator[Database]:
    database = Database("two")
    yield database
    database.remove()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


def works(url: str) -> bool:
    """Say whether a job can be enqueued and run."""
    ran: list[int] = []
    with contextlib.closing(App(url)) as app:

        @app.task(lane="number", keep_result=60)
        def note(number: int) -> int:
            ran.append(number)
            return number

        handle = note.enqueue(7)
        Worker(app, 1).run(burst=True)
        return ran == [7] and handle.result(timeout=5) == 7


# -- migrate -----------------------------------------------------------------------------------------------------


def test_migrate_says_what_it_did_and_a_dry_run_makes_nothing(desk: Desk, one: Database) -> None:
    nothing: dict[str, object] = {"from": None, "to": schema.VERSION, "steps": [], "dry_run": True}
    assert desk.json("migrate", "--dry-run", "--store", one.url) == nothing
    assert one.ask("select to_regnamespace('laneway')::text") == [(None,)]
    assert desk.run("migrate", "--store", one.url) == f"there is no store yet: one of version {schema.VERSION} was made\n"
    assert desk.run("migrate", "--store", one.url) == f"the tables have version {schema.VERSION} already: nothing to do\n"


def test_commands_that_only_look_make_no_tables(desk: Desk, one: Database) -> None:
    said = desk.mistake("status", "--store", one.url, code=1)
    assert said == f"there is no store {safe_url(one.url)} yet: the first enqueue makes it, or a worker"
    assert one.ask("select to_regnamespace('laneway')::text") == [(None,)]


def test_the_printed_statements_make_what_migrate_makes(desk: Desk, one: Database, two: Database) -> None:
    one.psql(desk.run("migrate", "--sql", "--store", one.url))
    desk.run("migrate", "--store", two.url)

    assert one.dump("--schema-only") == two.dump("--schema-only")
    assert "CREATE FUNCTION laneway.push_v" in one.dump("--schema-only")
    assert one.ask("select version from laneway.meta") == [(schema.VERSION,)]
    assert works(one.url)


def test_the_printed_statements_are_for_the_schema_of_the_address(desk: Desk, one: Database) -> None:
    url = f"{one.url}?schema=jobs"
    one.psql(desk.run("migrate", "--sql", "--store", url))
    assert one.ask("select to_regnamespace('laneway')::text, version from jobs.meta") == [(None, schema.VERSION)]
    assert works(url)


def test_the_printed_statements_a_second_time_change_nothing(desk: Desk, one: Database) -> None:
    text = desk.run("migrate", "--sql", "--store", one.url)
    one.psql(text)
    before = one.dump("--schema-only")
    with pytest.raises(subprocess.CalledProcessError):
        one.psql(text)
    assert one.dump("--schema-only") == before


def test_statements_are_printed_without_a_server_and_not_for_tables_that_are_there(desk: Desk, one: Database) -> None:
    done = desk.call("migrate", "--sql", "--store", "postgresql://127.0.0.1:1/shop")
    assert (done.exit_code, done.stdout) == (0, desk.run("migrate", "--sql", "--store", one.url))
    assert "are for a database without Laneway's tables: the store postgresql://127.0.0.1:1/shop cannot be" in done.stderr

    desk.run("migrate", "--store", one.url)
    assert desk.run("migrate", "--sql", "--store", one.url).startswith(f"-- the tables have version {schema.VERSION} already")
    assert "without --sql" in desk.mistake("migrate", "--sql", "--store", desk.url)


def test_functions_of_another_version_are_replaced_as_a_whole(one: Database) -> None:
    store = PostgresStore(one.url)
    store.migrate()
    before = one.dump("--schema-only")
    one.psql(schema.script("laneway", schema.VERSION))  # what a migration does behind the steps of the tables
    assert one.dump("--schema-only") == before
    store.close()


def test_tables_of_another_version_are_refused(desk: Desk, one: Database) -> None:
    desk.run("migrate", "--store", one.url)
    one.ask("update laneway.meta set version = 99")
    assert "upgrade Laneway here" in desk.mistake("migrate", "--sql", "--store", one.url, code=1)
    for act in (lambda: PostgresStore(one.url).push([]), lambda: PostgresStore(one.url).migrate()):
        with pytest.raises(SchemaError, match="has tables of version 99"):
            act()
    one.ask("update laneway.meta set version = 0")
    with pytest.raises(SchemaError, match="run: laneway migrate"):
        PostgresStore(one.url).push([])


# -- rights ------------------------------------------------------------------------------------------------------


def documented() -> list[str]:
    """The SQL of the document's section on rights."""
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("\n## Rights\n")
    return re.findall(r"```sql\n(.*?)```", rest.partition("\n## ")[0], re.DOTALL)


@pytest.fixture
def roles(one: Database) -> Iterator[None]:
    yield
    with contextlib.suppress(Exception):  # some may not be there
        for role in ("shop", "shop_owner", "stranger"):
            one.ask(f"drop owned by {role} cascade")
            one.ask(f"drop role {role}")


@pytest.mark.usefixtures("roles")
def test_one_role_migrates_and_another_with_few_rights_works(desk: Desk, one: Database) -> None:
    first, _ = documented()
    one.psql(first)
    one.ask("create role stranger login")

    with pytest.raises(StoreUnavailable, match=r"does not let this user do that \(permission denied for schema laneway"):
        works(one.of("shop"))
    desk.run("migrate", "--store", one.of("shop_owner"))

    assert works(one.of("shop"))
    one.ask("delete from laneway.origin")  # as if it came out of a dump
    assert works(one.of("shop"))
    assert one.ask(f"select laneway.is_original_v{schema.VERSION}()") == [(True,)]
    for statement in ("create table laneway.more (id int)", "drop table laneway.job", "drop function laneway.now_us()"):
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            ask_as(one.of("shop"), statement)
    with pytest.raises(StoreError, match="permission denied for schema laneway"):
        works(one.of("stranger"))


@pytest.mark.usefixtures("roles")
def test_rights_on_tables_that_are_there(one: Database) -> None:
    _, second = documented()
    one.psql("create role shop login; create role stranger login;")
    PostgresStore(one.url).migrate()
    one.psql("grant usage on schema laneway to shop, stranger;")
    with pytest.raises(StoreError, match="permission denied for table meta"):
        works(one.of("shop"))
    one.psql(second)
    assert works(one.of("shop"))

    functions = "select count(*) from pg_proc where pronamespace = 'laneway'::regnamespace"
    may = functions + " and has_function_privilege('{}', oid, 'execute')"
    assert one.ask(may.format("stranger")) == [(0,)]
    assert one.ask(may.format("shop")) != [(0,)]
    with pytest.raises(Exception, match="permission denied for function now_us"):
        ask_as(one.of("stranger"), "select laneway.now_us()")


def ask_as(url: str, statement: str) -> None:
    import psycopg  # noqa: PLC0415 - it may be missing

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
