"""Programs that fork while they use a store: daemons, pre-forking servers, isolated runs.

Each program runs in a process of its own and writes down, outside the store, which jobs it was told are accepted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from types import FrameType

import pytest

import redisbench
from laneway import App, locks
from workbench import ids_in_store, is_intact

PREAMBLE = """
import faulthandler, os, signal, sqlite3, subprocess, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what these programs are about
from laneway import App, Worker
url = sys.argv[1]
path = url.removeprefix("sqlite:///")
app = App(url, enqueue_timeout=5)
evidence = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)

@app.task
def work(name): ...

def tell(text):
    os.write(evidence, text.encode() + b"\\n")

def accept(name):
    work.using(id=name).enqueue(name)
    tell(name)

def in_child(function, *arguments):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            faulthandler.dump_traceback_later(25, exit=True)  # a child that hangs is a failure, not a time-out of the tests
            function(*arguments)
            code = 0
        except BaseException as error:
            tell(f"error {type(error).__name__}: {error}")
        finally:
            os._exit(code)
    return child

def ended_well(children):
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(codes), codes
"""


def run(tmp_path: Path, url: str, code: str, first: str = "") -> list[str]:
    """Run a program; return the jobs that it was told are accepted, and its errors."""
    evidence = tmp_path / "evidence"
    evidence.touch()
    command = [sys.executable, "-c", textwrap.dedent(first) + PREAMBLE + textwrap.dedent(code), url, str(evidence)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr + evidence.read_text()[-2000:]
    return evidence.read_text().splitlines()


def in_store(url: str) -> list[str]:
    return sorted(ids_in_store(url))


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, file_url: str) -> str:
    return file_url if request.param == "sqlite" else redisbench.emptied().url


LOOKS = """
def somebody_looks():
    # A program that has the file to itself for a moment, as it believes, clears the log away when it closes.
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('pragma schema_version').fetchall(); c.close()"
    subprocess.run([sys.executable, "-c", look, path], check=True)
"""


def test_what_a_child_enqueues_stays_when_its_parent_has_ended(tmp_path: Path, file_url: str) -> None:
    code = (
        LOOKS
        + """
ended, lives = os.pipe()
if os.fork():
    os.wait()
    os.close(lives)
    os.read(ended, 1)  # until the daemon has ended
    sys.exit()
accept("parent")
app.inspect.counts()
if os.fork():  # as a daemon does: the process that opened the store ends
    os._exit(0)
for number in range(60):
    accept(f"child-{number:03}")
    if number % 20 == 10:
        somebody_looks()
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    accepted = run(tmp_path, file_url, code)

    assert len(accepted) == 61
    assert in_store(file_url) == sorted(accepted)
    assert is_intact(file_url)


def test_what_workers_of_a_server_enqueue_stays_when_its_master_has_died(tmp_path: Path, file_url: str) -> None:
    code = (
        LOOKS
        + """
def serve(number):
    while os.getppid() == master:
        time.sleep(0.001)
    for job in range(30):
        accept(f"server-{number}-{job:02}")
        if job == 15:
            somebody_looks()

ended, lives = os.pipe()
if os.fork():
    os.wait()
    os.close(lives)
    os.read(ended, 1)  # until all servers have ended
    sys.exit()
accept("master")
master = os.getpid()
for number in range(3):
    in_child(serve, number)
os.kill(master, signal.SIGKILL)
"""
    )
    accepted = run(tmp_path, file_url, code)

    assert len(accepted) == 91, accepted
    assert in_store(file_url) == sorted(accepted)
    assert is_intact(file_url)


def test_a_child_is_refused_while_a_connection_of_the_users_own_lived_over_the_fork(tmp_path: Path, file_url: str) -> None:
    told = run(tmp_path, file_url, """
        accept("parent")
        own = sqlite3.connect(path)
        own.execute("select count(*) from sqlite_schema").fetchall()
        os.wait() if in_child(accept, "child") else None
        accept("parent-again")
        own.close()
        ended_well([in_child(accept, "another-child")])
    """)  # fmt: skip

    assert told[0] == "parent"
    assert told[1].startswith("error StoreUnavailable")
    assert "Close every connection" in told[1]
    assert told[2:] == ["parent-again", "another-child"]
    assert in_store(file_url) == ["another-child", "parent", "parent-again"]


def test_such_a_child_does_not_read_either(tmp_path: Path, file_url: str) -> None:
    told = run(tmp_path, file_url, """
        accept("parent")
        app.close()
        own = sqlite3.connect(path)
        own.execute("select count(*) from sqlite_schema").fetchall()
        os.wait() if in_child(lambda: tell(str(app.inspect.counts()))) else None
    """)  # fmt: skip

    assert told[1].startswith("error StoreUnavailable")
    assert "Close every connection" in told[1]


def test_what_such_a_child_reads_while_others_write_is_not_taken_for_damage(tmp_path: Path, file_url: str) -> None:
    told = run(tmp_path, file_url, """
        accept("parent")
        app.close()
        damage = sqlite3.DatabaseError("database disk image is malformed")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT

        def judge():
            tell(type(app.store.database.file.translate(damage)).__name__)

        judge()
        ended_well([in_child(judge)])
        own = sqlite3.connect(path)
        own.execute("select count(*) from sqlite_schema").fetchall()
        ended_well([in_child(judge)])
    """)  # fmt: skip

    assert told == ["parent", "StoreCorrupt", "StoreCorrupt", "StoreUnavailable"]


@pytest.mark.parametrize("cursor", ["lost", "kept"])
def test_a_cursor_that_keeps_a_closed_connection_open_is_noticed(tmp_path: Path, file_url: str, cursor: str) -> None:
    """SQLite closes a connection only when its last statement is gone, which may wait for the garbage collector."""
    told = run(tmp_path, file_url, f"""
        import gc
        gc.disable()
        accept("parent")
        app.inspect.counts()
        cursor = app.store.database._reader.execute("select 1 union select 2")
        next(cursor)
        if {cursor!r} == "lost":
            knot = [cursor]
            knot.append(knot)
            del knot, cursor
        for act in (lambda: accept("child"), lambda: tell(str(app.inspect.counts()["ready"]))):
            child = in_child(act)
            os.waitpid(child, 0)
    """)  # fmt: skip

    if cursor == "lost":
        assert told == ["parent", "child", "2"]
    else:
        assert [line.partition(":")[0] for line in told] == ["parent", "error StoreUnavailable", "error StoreUnavailable"]


def test_nothing_is_kept_over_a_fork_by_an_exception_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may be interrupted while it opens a connection."""

    class Connection: ...

    opened: list[weakref.ref[Connection]] = []
    alive: list[bool] = []

    def open_one() -> None:
        connection = Connection()
        opened.append(weakref.ref(connection))
        try:
            raise LookupError
        except LookupError:
            raise KeyboardInterrupt from None

    def before(_: float, __: FrameType) -> None:
        if not opened:
            open_one()

    monkeypatch.setattr(locks, "_hooks", [])
    locks.around_forks(before, lambda: None, lambda: None)
    locks.around_forks(lambda *_: alive.append(opened[0]() is not None), lambda: None, lambda: None)

    with pytest.raises(KeyboardInterrupt):
        locks._before_fork()

    assert alive == [False]


@pytest.mark.parametrize("act", ["accept('child')", "app.inspect.counts()"])
def test_a_fork_that_python_does_not_hear_of_is_refused_too(tmp_path: Path, file_url: str, act: str) -> None:
    told = run(tmp_path, file_url, f"""
        import ctypes
        accept("parent")
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            try:
                {act}
            except BaseException as error:
                tell(f"error {{type(error).__name__}}: {{error}}")
            os._exit(0)
        os.waitpid(pid, 0)
        accept("parent-again")
    """)  # fmt: skip

    assert told[1].startswith("error StoreUnavailable")
    assert in_store(file_url) == ["parent", "parent-again"]


def test_children_write_though_threads_of_the_parent_were_inside_the_store(tmp_path: Path, url: str) -> None:
    accepted = run(tmp_path, url, """
        stop = threading.Event()

        def enqueue(thread):
            number = 0
            while not stop.is_set():
                accept(f"thread-{thread}-{number:05}")
                if number % 20 == 0:
                    app.inspect.counts()
                number += 1

        threads = [threading.Thread(target=enqueue, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        children = []
        for number in range(15):
            time.sleep(0.01)
            children.append(in_child(lambda: [accept(f"child-{number}-{n}") for n in range(3)]))
        ended_well(children)
        stop.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    """)  # fmt: skip

    assert sum(name.startswith("child") for name in accepted) == 45
    assert sum(name.startswith("thread") for name in accepted) > 45
    assert in_store(url) == sorted(accepted)


def test_a_fork_waits_for_a_thread_that_opens_the_store_for_the_first_time(tmp_path: Path, file_url: str) -> None:
    first = """
        import os, threading
        enqueued = threading.Event()
        os.register_at_fork(before=lambda: enqueued.wait(0.5))  # called last: what can still begin before the fork begins here
    """
    told = run(tmp_path, file_url, """
        forks, imports = threading.Event(), threading.Event()
        os.register_at_fork(before=forks.set)  # called first

        class Slow:
            def find_spec(self, module, path=None, target=None):
                if module == "laneway.store.sqlite.database":
                    imports.set()
                    forks.wait(10)

        sys.meta_path.insert(0, Slow())

        def enqueue():
            accept("thread")
            enqueued.set()

        def look_and_enqueue():
            inherited = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
            assert path not in inherited, inherited
            accept("child")

        thread = threading.Thread(target=enqueue)
        thread.start()
        assert imports.wait(10)
        ended_well([in_child(look_and_enqueue)])
        thread.join()
    """, first)  # fmt: skip

    assert sorted(told) == ["child", "thread"]
    assert in_store(file_url) == ["child", "thread"]


def test_isolated_runs_enqueue_though_threads_of_the_program_do_too(tmp_path: Path, url: str) -> None:
    accepted = run(tmp_path, url, """
        @app.task(isolate=True, queue="isolated")
        def split(name):
            accept(name + "-left")
            accept(name + "-right")

        stop = threading.Event()

        def enqueue(thread):
            number = 0
            while not stop.is_set():
                accept(f"thread-{thread}-{number:05}")
                number += 1

        for number in range(10):
            split.enqueue(f"split-{number}")
        threads = [threading.Thread(target=enqueue, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        Worker(app, slots=2, queues=["isolated"]).run(burst=True)
        stop.set()
        for thread in threads:
            thread.join(20)
    """)  # fmt: skip

    assert sum(name.startswith("split") for name in accepted) == 20
    assert in_store(url) == sorted(accepted)


def test_a_fork_in_the_middle_of_a_transaction_of_ones_own_does_not_wait_for_itself(tmp_path: Path, file_url: str) -> None:
    told = run(tmp_path, file_url, """
        accept("parent")
        began = time.monotonic()
        with app.store.turn(), app.store.database.reading():
            child = in_child(accept, "child")
        assert time.monotonic() - began < 9, "the fork waited"
        os.waitpid(child, 0)
        accept("parent-again")
    """)  # fmt: skip

    assert told[0] == "parent"
    assert any(line.startswith("error StoreUnavailable") for line in told)
    assert in_store(file_url) == ["parent", "parent-again"]


def test_a_fork_waits_for_a_thread_that_is_in_a_transaction(tmp_path: Path, file_url: str) -> None:
    accepted = run(tmp_path, file_url, """
        accept("parent")
        inside, forking = threading.Event(), threading.Event()

        def write():
            with app.store.turn():
                inside.set()
                forking.wait(20)
                time.sleep(0.2)  # the fork begins now

        writer = threading.Thread(target=write)
        writer.start()
        inside.wait(20)
        forking.set()
        ended_well([in_child(accept, "child")])
        writer.join(20)
        accept("parent-again")
    """)  # fmt: skip

    assert sorted(accepted) == in_store(file_url) == ["child", "parent", "parent-again"]


def test_a_store_in_memory_stays_with_its_parent_for_grandchildren_too() -> None:
    app = App("sqlite://")
    app.enqueue("a")
    reader, writer = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            try:
                app.enqueue("b")
                os.write(writer, b"accepted")
            except BaseException as error:  # noqa: BLE001 - the child must tell and end
                os.write(writer, str(error).encode())
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert "use a file" in answer.read()
    assert app.inspect.counts()["ready"] == 1
    app.close()
