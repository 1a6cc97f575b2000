"""PostgreSQL's own: addresses, opening, versions, rights, poolers' sessions, threads and forks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import postgresbench
from laneway import App
from laneway.errors import ConfigError, SchemaError, StoreError, StoreUnavailable

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.postgres import schema as tables
from postgresscene import claim, done, job, works
from workbench import SOON, until


@pytest.fixture
def server() -> postgresbench.Server:
    return postgresbench.emptied()


@pytest.fixture
def store(server: postgresbench.Server) -> Iterator[PostgresStore]:
    made = PostgresStore(server.url)
    yield made
    made.close()


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


# -- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u@h/d?shema=a", 'no option "shema". Did you mean "schema"?'),
        ("postgresql://u@h/d?schema=A-B", "schema=A-B: use up to 50 small letters"),
        ("postgresql://u@h/d?schema=" + "a" * 60, "use up to 50 small letters"),
        ("postgresql://u@h/d?prepare=maybe", "prepare=maybe: use on or off"),
        ("postgresql://u@h/d?synchronous=1", "synchronous=1: use on or off"),
        ("postgresql://u@h/d?timeout=0", "timeout=0: use a positive number"),
        ("postgresql://u@h/d?connections=0", "connections=0: use a whole number"),
    ],
)
def test_a_wrong_option_is_named(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        App(url)
    assert says in one_line(caught.value)


@pytest.mark.parametrize("secret", ["se%cret", "se%zzcret"])
def test_a_wrong_address_is_told_without_its_password(secret: str) -> None:
    with pytest.raises(ConfigError) as caught, closing(App(f"postgresql://ada:{secret}@localhost/shop")) as app:
        app.enqueue("x")
    assert secret not in one_line(caught.value)
    assert "%25" in str(caught.value)


def test_a_wrong_listening_address_is_told_at_once(server: postgresbench.Server) -> None:
    with pytest.raises(ConfigError, match="is not a PostgreSQL URL"):
        PostgresStore(server.url, listen="sqlite:///x")


def test_socket_service_and_environment_are_libpqs(
    server: postgresbench.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tmp_path / "services"
    services.write_text(f"[shop]\nhost={server.folder}\nport={server.port}\nuser=postgres\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    for url in (server.socket_url, "postgresql://?service=shop"):
        with closing(App(url)) as app:
            app.enqueue("x")
    for name, value in (("PGHOST", "127.0.0.1"), ("PGPORT", server.port), ("PGUSER", "postgres"), ("PGDATABASE", "postgres")):
        monkeypatch.setenv(name, str(value))
    with closing(App("postgresql://")) as app:
        app.enqueue("x")
        assert app.inspect.counts()["ready"] == 3


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("postgresql://postgres@127.0.0.1:{port}/nowhere", "check the database"),
        ("postgresql://nobody@127.0.0.1:{port}/postgres", "check the database and the user"),
        ("postgresql://postgres@127.0.0.1:1/postgres", "is it running, and is the address right?"),
        ("postgresql://postgres@no.such.host.invalid/postgres", "is it running, and is the address right?"),
        ("postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=require", "does not support SSL"),
    ],
)
def test_a_server_that_lets_nobody_in_is_unavailable_and_says_why(server: postgresbench.Server, address: str, says: str) -> None:
    with closing(App(address.format(port=server.port))) as app, pytest.raises(StoreUnavailable) as caught:
        app.enqueue("x")
    assert says in one_line(caught.value)
    assert caught.value.written is False


@pytest.fixture
def dead_end() -> Iterator[int]:
    """A port whose host answers nobody: its queue of connections is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_host_that_does_not_answer_costs_no_more_than_the_time_that_is_allowed(dead_end: int) -> None:
    store = PostgresStore(f"postgresql://postgres@127.0.0.1:{dead_end}/postgres", enqueue_timeout=0.3)
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time") as caught:
        store.push([job()])
    assert 0.2 < time.monotonic() - begun < SOON
    assert caught.value.written is False


def test_a_dead_host_does_not_hide_the_next_one(server: postgresbench.Server, store: PostgresStore, dead_end: int) -> None:
    store.migrate()
    other = PostgresStore(f"postgresql://postgres@127.0.0.1:{dead_end},127.0.0.1:{server.port}/postgres", enqueue_timeout=3)
    assert other.push([job()]) == [None]
    other.close()


def test_a_store_is_in_the_schema_of_its_address(server: postgresbench.Server) -> None:
    for name in ("one", "two_2"):
        server.drop(name)
        with closing(App(f"{server.url}?schema={name}")) as app:
            app.enqueue("x")
            assert app.inspect.counts()["ready"] == 1
    assert server.ask("SELECT to_regnamespace('laneway')") == [(None,)]
    assert server.ask("SELECT count(*) FROM two_2.job") == [(1,)]
    for name in ("one", "two_2"):
        server.drop(name)


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[postgresbench.Server]:
    """A server with a certificate that it has signed itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    made = postgresbench.Server()
    made.stop()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    files = ["-keyout", str(made.data / "server.key"), "-out", str(made.data / "server.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    for file in ("server.key", "server.crt"):
        shutil.chown(made.data / file, *((postgresbench.USER, postgresbench.USER) if not os.geteuid() else (os.geteuid(),)))
    (made.data / "server.key").chmod(0o600)
    shutil.copy(made.data / "server.crt", tmp_path / "root.crt")
    made._options = ("ssl=on",)
    made.start()
    yield made
    made.remove()


def test_connections_are_encrypted_and_servers_checked_as_libpq_does_it(encrypted: postgresbench.Server, tmp_path: Path) -> None:
    address = f"postgresql://postgres@localhost:{encrypted.port}/postgres?sslmode=verify-full&sslrootcert={tmp_path}/"
    with closing(App(f"{address}root.crt")) as app:
        app.enqueue("x" * 100)
        body = "y" * 100_000  # larger than a record of TLS
        app.enqueue("x", body)
        assert app.inspect.counts()["ready"] == 2
        assert encrypted.ask("SELECT count(*) > 0 FROM pg_stat_ssl WHERE ssl") == [(True,)]
    (tmp_path / "other.crt").write_text("")
    with closing(App(f"{address}other.crt")) as app, pytest.raises(StoreUnavailable) as caught:
        app.enqueue("x")
    assert "sslrootcert" in one_line(caught.value) or "root certificate" in str(caught.value)
    assert caught.value.written is False


def test_options_are_passed_on_as_libpq_reads_them_and_sessions_that_are_cut_while_idle_are_replaced(
    server: postgresbench.Server,
) -> None:
    limit = "idle_session_timeout" if postgresbench.version() >= (14,) else "tcp_keepalives_idle"
    enqueued: list[str] = []

    def is_there() -> bool:
        return server.ask("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'a+b c'") == [(True,)]

    with closing(App(f"{server.url}?application_name=a+b%20c&options=-c%20{limit}%3D200")) as app:

        def is_seen() -> bool:  # on a busy machine it may be cut before we look
            enqueued.append(app.enqueue("x").id)
            return is_there()

        for _ in range(3):
            until(is_seen, "a session of that name")
            if limit == "idle_session_timeout":
                until(lambda: not is_there(), "the end of an idle session")
        assert app.inspect.counts()["ready"] == len(enqueued)


# -- versions ------------------------------------------------------------------------------------------------------


def test_many_programs_that_open_a_new_store_at_once_make_it_once(server: postgresbench.Server) -> None:
    stores = [PostgresStore(server.url, timeout=20, enqueue_timeout=20) for _ in range(8)]
    together = threading.Barrier(len(stores))

    def use(store: PostgresStore) -> list[str | None]:
        together.wait(20)
        return store.push([job()])

    with ThreadPoolExecutor(len(stores)) as pool:
        assert list(pool.map(use, stores)) == [[None]] * len(stores)
    assert PostgresInspect(stores[0]).counts()["ready"] == len(stores)
    for store in stores:
        store.migrate()
        store.close()
    assert server.ask("SELECT version FROM laneway.meta") == [(tables.VERSION,)]


@pytest.mark.parametrize(("found", "says"), [(0, "then run: laneway migrate"), (99, "upgrade Laneway here")])
def test_tables_of_another_version_are_not_touched(
    server: postgresbench.Server, store: PostgresStore, found: int, says: str
) -> None:
    store.push([job()])
    server.ask("UPDATE laneway.meta SET version = %s", found)
    other = PostgresStore(server.url)
    for verb in (lambda: other.push([job()]), lambda: claim(other), lambda: PostgresInspect(other).counts()):
        with pytest.raises(SchemaError) as caught:
            verb()
        assert says in one_line(caught.value)
    if found > tables.VERSION:
        with pytest.raises(SchemaError, match="upgrade Laneway"):
            other.migrate()
    assert server.ask("SELECT count(*) FROM laneway.job") == [(1,)]
    other.close()


def test_an_exchange_that_is_done_again_hears_no_answer_of_the_one_behind_it(
    server: postgresbench.Server, store: PostgresStore
) -> None:
    store.push([job(), job()])
    held = claim(store)
    other = PostgresStore(server.url)
    assert len(other.give_back("w")) == 2  # the number of the worker's exchanges ends with it
    hear = [store.begin("w", done([one]), [], 0) for one in held]
    assert [answer().refused for answer in hear] == [[one.unit.id] for one in held]
    assert [one.unit.id for one in claim(store)] == [one.unit.id for one in held]
    other.close()


def test_a_program_that_was_overtaken_by_a_migration_says_so_and_writes_nothing(
    server: postgresbench.Server, store: PostgresStore
) -> None:
    store.push([job()])
    held = claim(store)
    for (name,) in server.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'laneway'::regnamespace"):
        ours, theirs = f"_v{tables.VERSION}", f"_v{tables.VERSION + 1}"
        if f"{ours}(" in name:
            server.ask(f"ALTER FUNCTION {name} RENAME TO {name.partition('(')[0].split('.')[1].replace(ours, theirs)}")
    server.ask("UPDATE laneway.meta SET version = %s", tables.VERSION + 1)
    verbs = (
        lambda: store.push([job()]), lambda: claim(store), lambda: store.give_back("w"), lambda: PostgresInspect(store).counts(),
        lambda: store.exchange("w", done(held), [], 0),
    )  # fmt: skip
    for verb in verbs:
        with pytest.raises(SchemaError) as caught:
            verb()
        assert "upgrade Laneway" in one_line(caught.value)
    assert f"version {tables.VERSION + 1}" in str(caught.value), "after the first error the version is looked at again"
    assert server.ask("SELECT count(*) FROM laneway.job") == [(1,)]


def test_a_migration_that_fails_leaves_nothing(server: postgresbench.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(server.url)
    with monkeypatch.context() as broken:
        broken.setattr(tables, "functions", lambda _: "select 1/0;")
        with pytest.raises(StoreError, match="division by zero"):
            store.push([job()])
    assert server.ask("SELECT to_regnamespace('laneway')") == [(None,)]
    works(store)
    store.close()


# -- rights --------------------------------------------------------------------------------------------------------


@pytest.fixture
def role(server: postgresbench.Server) -> Iterator[str]:
    """An address for a user who may connect, and nothing else."""
    server.ask("CREATE ROLE worker LOGIN")
    yield server.url.replace("postgres@", "worker@")
    server.drop()
    server.ask("DROP OWNED BY worker")
    server.ask("DROP ROLE worker")


GRANTS = (
    "GRANT USAGE ON SCHEMA laneway TO worker",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA laneway TO worker",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA laneway TO worker",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA laneway TO worker",
)


def test_a_user_without_rights_is_told_and_with_a_few_runs_workers(server: postgresbench.Server, role: str) -> None:
    few = PostgresStore(role)
    with pytest.raises(StoreUnavailable, match=r"permission denied.*docs/postgres.md") as caught:
        few.push([job()])
    assert caught.value.written is False
    PostgresStore(server.url).migrate()
    for grant in GRANTS:
        with pytest.raises(StoreUnavailable, match="permission denied"):
            works(few)
        server.ask(grant)
    works(few)
    few.beat([])
    few.recover("w", "it ended")
    assert PostgresInspect(few).counts()["ready"] == 0
    with pytest.raises(StoreUnavailable, match="must be owner"), few.wire.lend() as line:
        line.ask("drop table laneway.job")
    few.close()


def test_nobody_else_may_execute_the_functions(server: postgresbench.Server, store: PostgresStore, role: str) -> None:
    store.migrate()
    server.ask("GRANT USAGE ON SCHEMA laneway TO PUBLIC")
    open_to_all = server.ask(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'laneway'::regnamespace "
        "AND has_function_privilege('worker', oid, 'execute')"
    )
    assert open_to_all == []
    assert role


# -- threads and forks ---------------------------------------------------------------------------------------------


def test_threads_share_a_few_connections_and_each_gets_its_own_answers(server: postgresbench.Server) -> None:
    store = PostgresStore(server.url, connections=3, timeout=20, enqueue_timeout=20)

    def use(number: int) -> None:
        queue = f"q{number}"
        for _ in range(10):
            one = job(queue, lane="l")
            assert store.push([one]) == [None]
            claims = claim(store, queue, worker=queue)
            assert [held.unit.id for held in claims] == [one.id]
            assert store.exchange(queue, done(claims), [], 0).refused == []

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(use, range(12)))
    assert len(store.wire.pool) <= 3
    assert sum(PostgresInspect(store).counts().values()) == 0
    store.close()


FORKING = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what this is about
from laneway import App
app = App(sys.argv[1], enqueue_timeout=10)

@app.task
def work(name): ...

stop = threading.Event()

def busy():
    while not stop.is_set():
        work.enqueue("thread")
        counted.append(1)

counted = []
work.enqueue("before")
app.store.wait(0.01)  # a listener is there too
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for number in range(8):
    child = os.fork()
    if not child:
        try:
            for _ in range(3):
                work.enqueue("child")
            app.store.wait(0.01)
            app.close()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    work.enqueue("parent")
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
for thread in threads:
    thread.join()
work.enqueue("after")
assert codes == [0] * 8, codes
app.close()
print(len(counted) + 2 + 8 + 24)
"""


def test_after_a_fork_parent_and_child_go_on(server: postgresbench.Server) -> None:
    done = subprocess.run([sys.executable, "-c", FORKING, server.url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert server.ask("SELECT count(*) FROM laneway.job") == [(int(done.stdout),)]
