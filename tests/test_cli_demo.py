"""The demo and its dashboard: said where it is, there while the shop is open, gone with it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from clidesk import read_until
from laneway.cli.demo_shop import LedgerEntry, check

pytest.importorskip("uvicorn")


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "DEMO_", "NO_COLOR"))}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


@contextmanager
def demo(*options: str, **extra: str) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "laneway", "demo", *options]
    with subprocess.Popen(command, env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()  # of no effect on one that has ended


def told(process: subprocess.Popen[bytes]) -> int:
    """Wait until the demo works; return its dashboard's port."""
    assert process.stdout is not None
    first, *_ = read_until(process.stdout.fileno(), " s  enqueued").splitlines()  # the machine may be busy in its first second
    assert first.startswith("dashboard: http://127.0.0.1:"), first
    return int(first.removeprefix("dashboard: http://127.0.0.1:").partition("/")[0])


def ended(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> str:
    """Ask the demo to end; return what it said then, and see that it had nothing to complain of."""
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.decode()) == (0, "")
    return out.decode()


def broken_off(process: subprocess.Popen[bytes]) -> None:
    """End the demo without waiting for what runs."""
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A program that takes the place of a browser; beside it `tried` has what it was to show."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path / "tried"}\n')
    program.chmod(0o755)
    return program


def answer(port: int, method: str, path: str) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
        asked.request(method, path)
        answered = asked.getresponse()
        assert answered.status == 200
        return answered.read().decode()


def is_open(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_the_demos_dashboard_shows_the_shop_and_is_gone_with_it_even_for_who_looks_on(browser: Path) -> None:
    with demo("--seconds", "60", BROWSER=str(browser)) as process:
        port = told(process)
        page = answer(port, "GET", "/")
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as listener:
            listener.request("GET", "/api/v1/live")
            assert listener.getresponse().readline().startswith(b"id: 1")

            said = ended(process)

    assert "billing" in page
    assert "In order:" in said
    assert not is_open(port)
    assert not browser.with_name("tried").exists()  # nobody asked for it


def test_two_signals_end_the_demo_at_once() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        broken_off(process)

    assert not is_open(port)


def test_what_somebody_does_by_hand_is_no_mistake_of_the_lanes() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        answer(port, "POST", "/api/v1/queues/stock/pause")

        said = ended(process, signal.SIGTERM)

    assert "One at a time:" in said
    assert "You acted by hand (1 time)" in said
    assert "LOST" not in said


def test_a_browser_is_opened_if_asked_for(browser: Path) -> None:
    with demo("--seconds", "60", "--open", BROWSER=str(browser)) as process:
        port = told(process)
        broken_off(process)

    [url] = browser.with_name("tried").read_text().splitlines()
    assert url.startswith(f"http://127.0.0.1:{port}/")


def test_where_somebody_acted_only_overlaps_count() -> None:
    skipped = [LedgerEntry("ada", 1, "begins"), LedgerEntry("ada", 1, "done"), LedgerEntry("ada", 5, "begins")]
    overlap = LedgerEntry("ada", 6, "begins")

    assert check(skipped, in_order=False).mistakes == []
    assert check([*skipped, overlap], in_order=False).mistakes == ["ada: 6 began while 5 ran"]
