"""PostgreSQL and PgBouncer for tests: on free ports, in folders of their own, never as root, gone at the end."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from redisbench import free_port, quick_disk

if TYPE_CHECKING:
    import psycopg

__all__ = ["Pooler", "Server", "emptied", "pooler_why_not", "programs", "renewed", "server", "stop_all", "version", "why_not"]

_all: list[_Program] = []

#: The user that runs the programs if the tests run as root: PostgreSQL and PgBouncer refuse to be root.
USER = "postgres"
INITDB = ("--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}")
#: Commits are waited for as in production, but nothing waits for a disk. The log of changes stays small: it may be in memory.
USUAL = (
    "fsync=off", "synchronous_commit=on", "full_page_writes=off", "autovacuum=on", "max_prepared_transactions=16",
    "min_wal_size=32MB", "max_wal_size=128MB",
    "dynamic_shared_memory_type=mmap",  # in the folder: goes with it, even after a SIGKILL
    "log_line_prefix='%m [%p] %q%u@%d '",
)  # fmt: skip


#: What a server's function for the time does if its clock is set by hand.
CLOCK = "SELECT now FROM public.clock"


#: Puts the rows that a store never deletes back to what they are in a new one.
BEGUN = (
    "UPDATE laneway.books SET snap = pg_current_snapshot(), totals = '{}', runs = 0, closed = 0;"
    "UPDATE laneway.meta SET move = NULL, closed = false"
)
#: What changes with every table, column, index, trigger or function of ours that is made, replaced or altered.
SHAPE = """
    SELECT 'c', count(*), max(xmin::text::bigint) FROM pg_class WHERE relnamespace = to_regnamespace('laneway')
    UNION ALL SELECT 'p', count(*), max(xmin::text::bigint) FROM pg_proc WHERE pronamespace = to_regnamespace('laneway')
    UNION ALL SELECT 't', count(*), max(xmin::text::bigint) FROM pg_trigger
    UNION ALL SELECT 'a', count(*), max(a.xmin::text::bigint) FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = to_regnamespace('laneway') ORDER BY 1
"""


class _Program:
    """A program in a folder of its own that can be stopped and started again."""

    def __init__(self, name: str, *, quick: bool = True) -> None:
        self.folder = tempfile.mkdtemp(prefix=f"laneway-{name}-", dir=quick_disk() if quick else None)
        self.port = free_port()
        self.url = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        self.socket_url = f"postgresql://{USER}@/postgres?host={self.folder}&port={self.port}"
        self.log = Path(self.folder, f"{name}.log")
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        _give(self.folder)
        _all.append(self)
        atexit.register(self.remove)  # whatever becomes of the tests

    def _run(self, *command: str | Path) -> None:
        """Start the program, and wait until it answers."""
        assert self._process is None, "it runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **_person())
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(Exception):
                self.ask("SELECT 1")
                return
            running = self._process.poll() is None and time.monotonic() < deadline
            assert running, f"{command[0]} did not start: {self.log.read_text()[-800:]}"
            time.sleep(0.01)

    def processes(self) -> list[psutil.Process]:
        """Return the program's process and its children; none is missing if the first one is stopped."""
        if self._process is None or self._process.poll() is not None:
            return []
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def stop(self, *, kill: bool = False) -> None:
        """End it: its clients are disconnected; or kill all of its processes."""
        if self._process is None or self._pid != os.getpid():
            return
        self._process.send_signal(signal.SIGSTOP if kill else signal.SIGINT)  # whoever is stopped makes no further children
        everyone = self.processes() if kill else []
        for one in everyone:
            _send(one, signal.SIGKILL)
        self._process.wait(30)
        self._process = None
        _wait_for_the_end(everyone)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nobody while the block runs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        everyone = self.processes()
        for one in everyone:
            _send(one, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in reversed(everyone):
                _send(one, signal.SIGCONT)

    def remove(self) -> None:
        """End it and what it kept."""
        if self._pid == os.getpid():
            if self._process is not None:  # to end at once by itself leaves nothing behind, neither memory nor zombies
                self._process.send_signal(signal.SIGQUIT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(10)
            self.stop(kill=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, sql: str, *values: object) -> list[Any]:
        """Run one statement on a connection of its own, committed at once; return its rows."""
        with self.asking() as ask:
            return ask(sql, *values)

    @contextlib.contextmanager
    def asking(self) -> Iterator[Callable[..., list[Any]]]:
        """Return what runs statements as `ask` does, all of them on one connection: a new one costs more than most statements."""
        with _connect(self.socket_url) as connection:
            yield functools.partial(_rows, connection)


class Server(_Program):
    """A server; options are lines of its configuration: `Server("max_connections=10")`.

    `ALTER SYSTEM` and `reload()` change the others while it runs. `quick=False`: not in memory, but on a disk.
    """

    def __init__(self, *options: str, quick: bool = True) -> None:
        super().__init__("postgres", quick=quick)
        self._options = options
        self._line: psycopg.Connection | None = None
        self._known: tuple[object, ...] = ()  #: the tables that `_emptying` is for
        self._shape: list[Any] = []  #: of the tables that `renew` has made
        self._emptying = b""
        self.data = Path(self.folder, "data")
        _make_cluster(self.data)
        self.start()

    def start(self) -> None:
        """Start it, with what it keeps on disk."""
        own = [f"port={self.port}", "listen_addresses='127.0.0.1'", f"unix_socket_directories='{self.folder}'"]
        (self.data / "postgresql.conf").write_text("\n".join([*own, *USUAL, *self._options, ""]))
        self._run(programs() / "postgres", "-D", self.data)

    def stop(self, *, kill: bool = False) -> None:
        """End it, and let go of its shared memory, which it keeps if it is killed."""
        if self._line is not None and self._pid == os.getpid():
            self._line.close()
            self._line = None
        super().stop(kill=kill)
        with contextlib.suppress(FileNotFoundError):  # it goes at a gentle end
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            memory = [line.split()[1] for line in lines[6:7] if line.strip()]
            if memory and self._pid == os.getpid():
                subprocess.run(["ipcrm", "-m", *memory], check=False, stderr=subprocess.DEVNULL, timeout=10)  # noqa: S607

    def reload(self) -> None:
        """Let it read its configuration again."""
        self.ask("SELECT pg_reload_conf()")

    def drop(self, schema: str = "laneway") -> None:
        """Remove a schema."""
        _rows(self._quick(), f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    def clear(self, *but: str, schema: str = "laneway") -> None:
        """Delete the rows of all tables of a schema, and restart its numbers: in a tenth of the time in which it is made anew.

        `but` names the tables that keep their rows. A schema that is not there is none of its business.
        """
        line = self._quick()
        there = "SELECT count(*), max(oid) FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"
        known = (schema, but, *_rows(line, there, schema))
        if known != self._known:
            self._known, self._emptying = known, _emptying(line, schema, but)
        line.execute(self._emptying)

    def has_tables(self) -> bool:
        """Return whether Laneway's tables are there."""
        return _rows(self._quick(), "SELECT to_regclass('laneway.books')::text") != [(None,)]

    def renew(self) -> None:
        """Leave Laneway's tables as a new store has them: emptied, or made anew if somebody has changed them since."""
        from laneway.store.postgres import PostgresStore  # noqa: PLC0415 - its driver may be missing

        line = self._quick()
        if self._shape and _rows(line, SHAPE) == self._shape:
            self.clear("meta", "books", "origin")
            line.execute(BEGUN)
            return
        self.drop()
        store = PostgresStore(self.url)
        store.migrate()
        store.close()
        self._shape = _rows(line, SHAPE)

    def begin_anew(self) -> None:
        """Empty Laneway's tables, if there are any, and let its clock be set by hand, see `set_clock`."""
        self.clear("meta", "books", "origin")
        line = self._quick()
        clock = "EXISTS (SELECT 1 FROM pg_proc WHERE oid = to_regprocedure('laneway.now_us()') AND prosrc = %s)"
        [(is_there, is_set)] = _rows(line, f"SELECT to_regclass('laneway.books') IS NOT NULL, {clock}", CLOCK)
        if not is_there:
            return
        line.execute(BEGUN)
        if not is_set:  # to replace it again would let all sessions plan their statements anew
            self.take_clock()

    def take_clock(self) -> None:
        """Let the clock of the store that is there be set by hand."""
        line = self._quick()
        line.execute("DROP TABLE IF EXISTS public.clock; CREATE TABLE public.clock AS SELECT 0::bigint AS now")
        line.execute(f"CREATE OR REPLACE FUNCTION laneway.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS '{CLOCK}'".encode())

    def set_clock(self, now: int) -> None:
        """Let it be this late, microseconds, for a store that began anew."""
        line = self._line if self._line is not None and not self._line.closed else self._quick()
        line.execute(f"UPDATE public.clock SET now = {now}".encode())  # noqa: S608 - a number

    def _quick(self) -> psycopg.Connection:
        """Return a connection that stays; end transactions that were prepared and forgotten, since they keep their locks."""
        if self._line is None or self._line.closed:
            self._line = _connect(self.socket_url)
            self._line.execute("SET lock_timeout = '10s'; SET client_min_messages = 'warning'")
        for (name,) in _rows(self._line, "SELECT quote_literal(gid) FROM pg_prepared_xacts WHERE database = current_database()"):
            _rows(self._line, f"ROLLBACK PREPARED {name}")
        return self._line


class Pooler(_Program):
    """PgBouncer in front of a server, in transaction mode; options are lines of its configuration."""

    def __init__(self, server: Server, *options: str) -> None:
        _skip_or_fail(pooler_why_not())
        super().__init__("pgbouncer")
        users = Path(self.folder, "users.txt")
        users.write_text(f'"{USER}" ""\n')
        self._file = Path(self.folder, "pgbouncer.ini")
        own = [f"listen_port={self.port}", "listen_addr=127.0.0.1", f"unix_socket_dir={self.folder}", f"auth_file={users}"]
        own += ["auth_type=trust", "pool_mode=transaction", f"admin_users={USER}", *options]
        self._file.write_text("\n".join(["[databases]", f"*=host=127.0.0.1 port={server.port}", "[pgbouncer]", *own, ""]))
        self.start()

    def start(self) -> None:
        """Start it."""
        self._run(_pgbouncer(), self._file)


def _connect(url: str) -> psycopg.Connection:
    import psycopg  # noqa: PLC0415 - a missing driver skips tests, and breaks no others

    return psycopg.connect(url, autocommit=True, connect_timeout=10, prepare_threshold=None)


def _rows(connection: psycopg.Connection, sql: str, *values: object) -> list[Any]:
    answer = connection.execute(sql.encode(), values or None)
    return answer.fetchall() if answer.description else []


def _emptying(line: psycopg.Connection, schema: str, but: tuple[str, ...]) -> bytes:
    """Return what deletes the rows of all other tables of a schema, and restarts its numbers."""
    tables = _rows(line, "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> ALL(%s)", schema, list(but))
    deletes = [f'DELETE FROM "{schema}"."{table}"' for (table,) in tables]  # noqa: S608 - names of our own
    numbers = _rows(line, "SELECT sequencename, start_value FROM pg_sequences WHERE schemaname = %s", schema)
    restarts = [f'SELECT setval(\'"{schema}"."{name}"\', {start}, false)' for name, start in numbers]
    # The role of a replica: rows may go before those that refer to them, and triggers are silent.
    return ";".join(["BEGIN; SET LOCAL session_replication_role = replica", *deletes, *restarts, "COMMIT"]).encode()


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _wait_for_the_end(processes: list[psutil.Process]) -> None:
    """Wait until none of them runs: those that nobody reaps stay as zombies."""
    deadline = time.monotonic() + 10
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            while one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, f"process {one.pid} goes on after SIGKILL"
                time.sleep(0.002)


def _person() -> dict[str, Any]:
    """Return what makes subprocess run something as a user who may."""
    if os.geteuid():
        return {}
    found = pwd.getpwnam(USER)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _give(folder: str | Path) -> None:
    """Give a folder and all that is in it to the user who runs the programs."""
    person = _person()
    if person:
        for place, _, files in os.walk(folder):
            for name in (place, *(os.path.join(place, file) for file in files)):
                os.chown(name, person["user"], person["group"])


def _make_cluster(data: Path) -> None:
    """Make a cluster: the first one with initdb, which takes a second, the others are copies of it.

    The original stays in the environment's folder, for other processes and later runs.
    """
    if not os.access(sys.prefix, os.W_OK):
        _initdb(data)
        return
    told = f"{version()} {INITDB}"
    kept = Path(sys.prefix, f"postgres-{hashlib.sha256(told.encode()).hexdigest()[:12]}")
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _initdb(data)
            begun = kept.with_suffix(".begun")
            shutil.rmtree(begun, ignore_errors=True)
            shutil.copytree(data, begun)
            begun.rename(kept)
            return
    subprocess.run(["cp", "-r", kept, data], check=True, timeout=60)  # noqa: S607 - in half of the time of copytree
    _give(data)


def _initdb(data: Path) -> None:
    command: list[str | Path] = [programs() / "initdb", *INITDB, "-D", data]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=data.parent, timeout=60, **_person())
    assert done.returncode == 0, f"initdb made no cluster: {done.stderr}"


@functools.cache
def programs() -> Path:
    """Return the folder of the server's programs, which Debian does not put into PATH."""
    named, found = os.environ.get("POSTGRES_BIN"), shutil.which("postgres")
    if named or found:
        return Path(named) if named else Path(str(found)).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return installed[-1].parent if installed else Path("no-postgres")


def _pgbouncer() -> str:
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin") or ""


@functools.cache
def version() -> tuple[int, ...]:
    """Return the server's version."""
    said = subprocess.run([programs() / "postgres", "--version"], check=True, capture_output=True, text=True, timeout=10).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def why_not() -> str:
    """Say what is missing for tests on PostgreSQL; empty: nothing."""
    if not (programs() / "postgres").exists() or not (programs() / "initdb").exists():
        return "no PostgreSQL server here: apt-get install postgresql, or name its folder: POSTGRES_BIN=/path/to/bin"
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError:
        return "no PostgreSQL driver here: pip install 'laneway[postgres]'"
    try:
        _person()
    except KeyError:
        return f"PostgreSQL does not run as root, and there is no user {USER}: useradd --system {USER}"
    return ""


def pooler_why_not() -> str:
    """Say what is missing for tests behind PgBouncer; empty: nothing."""
    return why_not() or ("" if _pgbouncer() else "no pgbouncer here: apt-get install pgbouncer")


def _skip_or_fail(missing: str) -> None:
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@functools.cache
def server() -> Server:
    """Return the server that all tests share; skip if there can be none, fail if there must be one."""
    _skip_or_fail(why_not())
    return Server()


def emptied() -> Server:
    """Return the shared server without our schema."""
    shared = server()
    shared.drop()
    return shared


def renewed() -> Server:
    """Return the shared server with a new store: in a quarter of the time in which the first call makes its tables."""
    shared = server()
    shared.renew()
    return shared


def stop_all() -> None:
    """End every program that was started here."""
    server.cache_clear()
    while _all:
        _all.pop().remove()
