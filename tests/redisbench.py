"""A Redis server for tests: on a free port, in a folder of its own, gone at the end."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PROGRAM", "Server", "emptied", "free_port", "quick_disk", "server", "stop_all", "version", "why_not"]

_all: list[Server] = []


#: The server's program: another Redis or Valkey may be tried.
PROGRAM = os.environ.get("REDIS_SERVER", "redis-server")
SHARED = "/dev/shm"  # noqa: S108 - folders in it have names of their own


class Server:
    """A server that can be stopped and started again, with what it keeps on disk."""

    def __init__(self, *options: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="laneway-redis-", dir=quick_disk())
        self.port = free_port()
        self.url = self._plain_url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        _all.append(self)
        self.start()
        atexit.register(self.remove)  # whatever becomes of the tests

    def start(self) -> None:
        settings = [("--port", str(self.port)), ("--bind", "127.0.0.1"), ("--dir", self.folder), ("--save", '""')]
        settings += [("--logfile", "redis.log"), *zip(self._options[::2], self._options[1::2], strict=True)]
        if version() < (7,):  # it allows that anyway, and does not know the word
            settings = [pair for pair in settings if pair[0] != "--enable-debug-command"]
        # A file, since old servers take some of these on the command line only in other words.
        file = Path(self.folder, "redis.conf")
        file.write_text("".join([f"{name.removeprefix('--')} {value}\n" for name, value in settings]))
        self._process = subprocess.Popen([PROGRAM, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(Exception):
                if self.ask("PING") == b"PONG":
                    return
            assert time.monotonic() < deadline, f"the server did not start: {Path(self.folder, 'redis.log').read_text()[-500:]}"
            time.sleep(0.01)

    def stop(self, *, kill: bool = False) -> None:
        """End it, gently or not."""
        if self._process is not None and self._pid == os.getpid():
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(10)
            self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it answer nobody while the block runs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it and what it kept."""
        if self._pid == os.getpid():
            self.stop(kill=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *command: str | bytes | float) -> Any:
        """Send one command on a connection of its own: redis-py's client takes ten times as long to make one."""
        import hiredis  # noqa: PLC0415 - a missing driver skips tests, and breaks no others
        import redis  # noqa: PLC0415 - the same

        if self.url != self._plain_url:
            with redis.Redis.from_url(self.url, socket_timeout=10, protocol=2) as client:
                client.response_callbacks.clear()
                return client.execute_command(*command)
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
            pack: Any = hiredis.pack_command
            line.sendall(pack(tuple(part if isinstance(part, bytes) else str(part) for part in command)))
            reader = hiredis.Reader(replyError=redis.ResponseError)
            while (answer := reader.gets()) is False:
                data = line.recv(65536)
                if not data:
                    raise redis.ConnectionError("the server hung up")
                reader.feed(data)
        if isinstance(answer, redis.ResponseError):
            raise answer
        return answer

    def all_keys(self) -> set[str]:
        """All keys."""
        return {key.decode() for key in self.ask("KEYS", "*")}


def quick_disk() -> str | None:
    """Return a folder in memory, if there is plenty of it: how busy a disk is would decide how long tests take."""
    with contextlib.suppress(OSError):
        return SHARED if shutil.disk_usage(SHARED).free > 2**30 and os.access(SHARED, os.W_OK) else None
    return None


def free_port() -> int:
    """Return a port that nobody listens on; a cluster's node takes the one 10,000 above too.

    Both are below those that systems give out by themselves: one of these may be a client's in the next moment. A locked file
    keeps the port from other processes that run tests: between the look and the server's start they may look too.
    """
    taken = Path(tempfile.gettempdir(), "laneway-test-ports")
    taken.mkdir(exist_ok=True)
    while True:
        port = _chance.randrange(12_000, 22_000)
        mark = os.open(taken / str(port), os.O_WRONLY | os.O_CREAT)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe, socket.socket() as above:
                probe.bind(("127.0.0.1", port))
                above.bind(("127.0.0.1", port + 10_000))
        except OSError:
            os.close(mark)
        else:
            _ports.append(mark)
            return port


#: Not the generator that hypothesis sets to one state in all processes.
_chance = random.SystemRandom()
_ports: list[int] = []  # the marks of this process


@functools.cache
def version() -> tuple[int, ...]:
    """Return the server's version; of Valkey too."""
    said = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True, timeout=10).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def why_not() -> str:
    """Say what is missing for tests on Redis; empty: nothing."""
    if shutil.which(PROGRAM) is None:
        return f"no {PROGRAM} here: apt-get install redis-server"
    try:
        import redis  # noqa: F401, PLC0415
    except ImportError:
        return "no redis driver here: pip install 'laneway[redis]'"
    return ""


@functools.cache
def server() -> Server:
    """Return the server that all tests share; skip if there can be none, fail if there must be one."""
    missing = why_not()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return Server()


def emptied() -> Server:
    """Return the shared server with nothing on it."""
    shared = server()
    shared.ask("FLUSHALL")
    return shared


def stop_all() -> None:
    """End every server that was started here."""
    server.cache_clear()
    while _all:
        _all.pop().remove()
