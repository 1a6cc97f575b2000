"""The server of `laneway dashboard` under clients that send half a request, read nothing, or hang up."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clidesk import SHOP, environment
from laneway import App
from laneway.web import dashboard, server
from webdesk import DEADLINE, TOKEN, Shop, serving

HALF_HEAD = b"GET /api/v1/counts HTTP/1.1\r\nHost: localhost\r\nX-Half: "
HALF_BODY = b"POST /api/v1/queues/mail/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
#: More than a process has file descriptors for.
CROWD = 1300
#: So long an honest client may wait on a busy machine; the crowd would stay for longer.
SOON = 20.0


class Dashboard:
    """`laneway dashboard` as a process of its own, with as few file descriptors as most systems give."""

    def __init__(self, folder: Path) -> None:
        (folder / "app.py").write_text(SHOP)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "laneway", "dashboard", "--port", "0"], cwd=folder, env=environment(), stderr=log,
                stdout=subprocess.PIPE, text=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024)),  # noqa: PLW1509 - nothing else runs
            )  # fmt: skip
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found, self.log.read_text()
        self.url, self.port = found[0], int(found[1])

    def ask(self) -> float:
        """Return how long an honest client waits for its answer."""
        begun = time.monotonic()
        with httpx.Client(trust_env=False, timeout=DEADLINE) as client:
            assert client.get(f"{self.url}/api/v1/counts").status_code == 200
        return time.monotonic() - begun

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Dashboard]:
    many = 4 * CROWD
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < many:
        pytest.skip(f"this process may not have {many} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(many, before[0]), before[1]))
    made = Dashboard(tmp_path)
    yield made
    made.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Crowd:
    """Connections that send the same bytes and then nothing; one that is cut off is opened again."""

    def __init__(self, port: int, sent: bytes, number: int) -> None:
        self._sent, self._port = sent, port
        self._sockets = [self._open() for _ in range(number)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._come_back, daemon=True)
        self._thread.start()

    def _open(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE)
        with contextlib.suppress(OSError):
            made.sendall(self._sent)
        return made

    def _come_back(self) -> None:
        while not self._over.wait(0.1):
            for place, one in enumerate(self._sockets):
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    with contextlib.suppress(ConnectionError):
                        if one.recv(4096):
                            continue
                    one.close()
                    with contextlib.suppress(OSError):
                        self._sockets[place] = self._open()
                if self._over.is_set():
                    return

    def close(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE)
        for one in self._sockets:
            one.close()


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY], ids=["nothing", "half-a-head", "half-a-body"])
def test_a_crowd_that_sends_half_a_request_locks_nobody_out(running: Dashboard, sent: bytes) -> None:
    running.ask()
    before = running.descriptors()
    heard: list[str] = []
    enough, over = threading.Event(), threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{running.url}/api/v1/live", timeout=DEADLINE, trust_env=False) as answer:
            for line in answer.iter_lines():
                heard.append(line)
                if over.is_set() and line.startswith("id:"):
                    enough.set()
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    until(lambda: bool(heard), "nothing was heard before the crowd came")
    crowd = Crowd(running.port, sent, CROWD)
    try:
        waited = [running.ask() for _ in range(5)]
    finally:
        crowd.close()
    over.set()
    assert max(waited) < SOON, waited
    assert enough.wait(DEADLINE), "a client that listened before the crowd came was cut off"
    listener.join(DEADLINE)
    until(lambda: running.descriptors() <= before, "connections were not closed")
    assert running.ask() < SOON
    log = running.log.read_text()
    assert len(log) < 2_000, log
    assert "Traceback" not in log


def until(reached: Callable[[], bool], complaint: str) -> None:
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end, complaint
        time.sleep(0.02)


# -- time-outs ---------------------------------------------------------------------------------------------------


def connected(url: str, sent: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), DEADLINE, (host, 0))
    made.sendall(sent)
    return made


def is_cut(one: socket.socket) -> bool:
    """Wait until the server says something or hangs up."""
    try:
        return one.recv(4096) == b""
    except ConnectionResetError:
        return True


def trickle(one: socket.socket, over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while not over.wait(0.02):
            one.sendall(b"x")


@pytest.mark.parametrize(("limit", "sent"), [("HEAD", HALF_HEAD), ("BODY", HALF_BODY), ("HEAD", b"")])
def test_bytes_that_trickle_in_do_not_prolong_a_time_out(
    app: App, monkeypatch: pytest.MonkeyPatch, limit: str, sent: bytes
) -> None:
    Shop(app).fill()
    monkeypatch.setattr(server, limit, 0.3)
    over = threading.Event()
    with serving(dashboard(app)) as url, connected(url, sent) as one:
        thread = threading.Thread(target=trickle, args=(one, over))
        if sent:
            thread.start()
        try:
            assert is_cut(one)
        finally:
            over.set()
            if sent:
                thread.join(DEADLINE)


def test_a_body_that_nobody_waits_for_is_not_read_for_ever(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD", 0.3)
    over = threading.Event()
    with serving(dashboard(app, token=TOKEN)) as url, connected(url, HALF_BODY) as one:
        assert b"401" in one.recv(4096)
        thread = threading.Thread(target=trickle, args=(one, over))
        thread.start()
        try:
            while not is_cut(one):
                pass
        finally:
            over.set()
            thread.join(DEADLINE)


LARGE = 30_000_000


async def large(scope: object, receive: object, send: Callable[..., Any]) -> None:
    """Answer with more than any buffer takes."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
    await send({"type": "http.response.body", "body": bytes(LARGE)})


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED", 0.3)
    cut, lost = server.ClientConnection.cut, threading.Event()

    def noted(one: server.ClientConnection) -> None:
        cut(one)
        lost.set()

    monkeypatch.setattr(server.ClientConnection, "cut", noted)
    with serving(large) as url, connected(url, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as one:
        assert lost.wait(DEADLINE)
        read = 0
        while portion := one.recv(1_000_000):
            read += len(portion)
    assert read < LARGE


def test_a_client_that_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED", 0.5)
    monkeypatch.setattr(server, "HEAD", 0.5)
    with serving(large) as url, connected(url, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as one:
        begun, read = time.monotonic(), 0
        while portion := one.recv(1_000_000):
            read += len(portion)
            time.sleep(0.05)
    assert read > LARGE
    assert time.monotonic() - begun > 1  # longer than each of the limits


def test_the_client_with_most_connections_makes_room(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST", 10)
    with serving(dashboard(app)) as url, contextlib.ExitStack() as stack:
        quiet = stack.enter_context(connected(url, HALF_HEAD, host="127.0.0.2"))  # the oldest of all
        greedy = [stack.enter_context(connected(url, HALF_HEAD)) for _ in range(10)]
        assert is_cut(greedy[0])
        quiet.sendall(b"whole\r\n\r\n")
        assert quiet.recv(12) == b"HTTP/1.1 200"


def test_who_is_answered_is_not_closed_for_a_new_one(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST", 2)
    listening = b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(dashboard(app)) as url, contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(connected(url, listening)) for _ in range(2)]
        for one in listeners:
            assert one.recv(12) == b"HTTP/1.1 200"
        assert is_cut(stack.enter_context(connected(url)))
        for one in listeners:
            assert one.recv(4096)


# -- what is logged ----------------------------------------------------------------------------------------------


def test_no_file_descriptor_left_is_one_line_and_a_count(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "AGAIN", 0.2)
    accept, failures = socket.socket.accept, iter(range(100))

    def fail(listening: socket.socket) -> Any:
        if listening.getsockname()[1] == port and next(failures, None) is not None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    with serving(dashboard(app)) as url:
        port = int(url.rpartition(":")[2])
        monkeypatch.setattr(socket.socket, "accept", fail)
        assert httpx.get(f"{url}/api/v1/counts", timeout=DEADLINE, trust_env=False).status_code == 200
        until(lambda: any("times more" in record.message for record in caplog.records), "no count was logged")
    found = [record for record in caplog.records if "Too many open files" in record.message]
    assert 2 <= len(found) <= 6, caplog.text
    assert not any(record.exc_info for record in found)


HANGS_UP = {
    "in a body": (HALF_BODY, 0),
    "in an answer": (b"GET /api/v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n", 100),
    "before an answer": (b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", 0),
    "in a page": (b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", 100),
    "in a file": (b"GET /static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 10),
    "in the live stream": (b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 100),
    "before the live stream": (b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 0),
}


@pytest.mark.parametrize("where", HANGS_UP)
def test_a_client_that_hangs_up_leaves_no_traceback(app: App, where: str, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(app).fill()
    for _ in range(50):
        shop.login.enqueue("x" * 50_000, "secret")
    site = dashboard(app)
    sent, read = HANGS_UP[where]
    caplog.clear()
    with serving(site) as url:
        for reset in (False, True):
            with connected(url, sent) as one:
                if read:
                    assert one.recv(read)
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: site.state.laneway.live.listeners == 0, "a listener that hung up is still there")
        assert httpx.get(f"{url}/api/v1/counts", timeout=DEADLINE, trust_env=False).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
