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


def ended(process: subprocess.Popen[bytes]) -> str:
    """Ask the demo to end; return what it said then, and see that it had nothing to complain of."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, errors.decode()) == (0, "")
    return out.decode()


def answer(port: int, method: str, path: str) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
        asked.request(method, path)
        answered = asked.getresponse()
        assert answered.status == 200
        return answered.read().decode()


def is_open(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_the_demos_dashboard_shows_the_shop_and_is_gone_with_it() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        page = answer(port, "GET", "/")

        said = ended(process)

    assert "billing" in page
    assert "In order:" in said
    assert not is_open(port)


def test_who_looks_on_does_not_keep_the_demo_from_ending() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as listener:
            listener.request("GET", "/api/v1/live")
            assert listener.getresponse().readline().startswith(b"id: 1")

            said = ended(process)

    assert "In order:" in said
    assert not is_open(port)


def test_two_signals_end_the_demo_at_once() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)

    assert not is_open(port)


def test_what_somebody_does_by_hand_is_no_mistake_of_the_lanes() -> None:
    with demo("--seconds", "60") as process:
        port = told(process)
        answer(port, "POST", "/api/v1/queues/stock/pause")

        said = ended(process)

    assert "One at a time:" in said
    assert "You acted by hand (1 time)" in said
    assert "LOST" not in said


def test_without_the_web_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no starlette here', name='starlette')\n")
    with demo("--seconds", "1", PYTHONPATH=str(tmp_path)) as process:
        out, errors = process.communicate(timeout=30)

    assert (process.returncode, errors) == (0, b"")
    assert out.decode().splitlines()[0] == 'dashboard: not installed. To see this in a browser: pip install "laneway[web]"'
    assert "In order:" in out.decode()


def test_a_browser_is_opened_only_if_asked_for(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tried}\n')
    program.chmod(0o755)

    with demo("--seconds", "0.5", "--open", BROWSER=str(program)) as process:
        out, _ = process.communicate(timeout=30)
    with demo("--seconds", "0.5", BROWSER=str(program)) as process:
        process.communicate(timeout=30)

    [url] = tried.read_text().splitlines()
    assert f"dashboard: {url} " in out.decode()


def test_where_somebody_acted_only_overlaps_count() -> None:
    skipped = [LedgerEntry("ada", 1, "begins"), LedgerEntry("ada", 1, "done"), LedgerEntry("ada", 5, "begins")]
    overlap = LedgerEntry("ada", 6, "begins")

    assert check(skipped, in_order=False).mistakes == []
    assert check([*skipped, overlap], in_order=False).mistakes == ["ada: 6 began while 5 ran"]
