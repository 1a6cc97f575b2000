"""What an orchestrator asks a fleet: is it alive, is it ready."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import redisbench
from fleetharm import Yard, open_yard
from laneway.errors import ConfigError
from laneway.fleet import probes, readiness
from laneway.fleet.probes import Probes
from laneway.fleet.readiness import ALIVE_WITHIN, Readiness
from redisbench import free_port
from workbench import DEADLINE, until

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Return status and body; 0 if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    except OSError:
        return 0, ""
    finally:
        connection.close()


# -- the server --------------------------------------------------------------------------------------------------


@needs_linux
@pytest.mark.parametrize("asked", [False, True])
def test_closing_wakes_the_thread_that_listens(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    monkeypatch.setattr(probes, "POLL", 3600.0)
    server = Probes("127.0.0.1", 0, Readiness())
    if asked:
        ask(server.port, "/livez")
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(DEADLINE)
    assert not closing.is_alive()
    assert not server._thread.is_alive()
    assert ask(server.port, "/livez") == (0, "")


@pytest.fixture
def served() -> Iterator[tuple[Readiness, int]]:
    beats = Readiness()
    server = Probes("127.0.0.1", 0, beats)
    yield beats, server.port
    server.close()


def test_alive_while_the_loop_turns_and_ready_while_nothing_is_said_against_it(
    served: tuple[Readiness, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    beats, port = served
    assert (ask(port, "/livez"), ask(port, "/readyz")) == ((200, "ok"), (503, "starting"))
    beats.beat("")
    assert ask(port, "/readyz") == ask(port, "/readyz?verbose") == (200, "ok")
    assert ask(port, "/readyz", "HEAD") == (200, "")
    beats.beat("the store is away")
    assert (ask(port, "/livez"), ask(port, "/readyz")) == ((200, "ok"), (503, "the store is away"))
    beats.beat("")
    monkeypatch.setattr(readiness, "ALIVE_WITHIN", -1.0)
    assert ask(port, "/livez") == ask(port, "/readyz") == (503, "the supervisor's loop has not turned for 0 s")
    assert ask(port, "/")[0] == ask(port, "/metrics")[0] == 404
    assert ask(port, "/livez", "POST")[0] == 501
    assert ALIVE_WITHIN > 10


def test_clients_that_send_nothing_or_garbage_keep_no_other_waiting(
    served: tuple[Readiness, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probes._Answer, "timeout", 0.2)
    _, port = served
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2 * probes.CONNECTIONS)]
        for number, one in enumerate(silent):
            if number % 2:
                one.send(os.urandom(200))
        until(lambda: ask(port, "/livez") == (200, "ok"), "room for another one")
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_one_line(served: tuple[Readiness, int]) -> None:
    with pytest.raises(ConfigError, match="cannot be listened on there: Address already in use"):
        Probes("127.0.0.1", served[1], Readiness())
    with pytest.raises(ConfigError, match=r"nowhere\.invalid cannot be listened on"):
        Probes("nowhere.invalid", 0, Readiness())


# -- a fleet -----------------------------------------------------------------------------------------------------


@needs_linux
def test_a_fleet_is_ready_while_all_its_workers_claim(yard: Yard) -> None:
    port = free_port()
    loaded = yard.gate("loaded")
    waits = f"while not os.path.exists({str(loaded)!r}): time.sleep(0.01)\n"
    slow = yard.write(f"import os, time\n{waits}@app.task\ndef t(): ...\n")
    fleet = yard.start("--health-port", str(port), app_name=str(slow), processes=2, ready=False)
    until(lambda: ask(port, "/readyz")[0] == 503, "an answer while the app is being loaded")
    assert ask(port, "/livez") == (200, "ok")
    loaded.touch()
    until(lambda: ask(port, "/readyz") == (200, "ok"), "a fleet that is ready")
    assert len(fleet.workers) == 2

    os.kill(fleet.workers[0], signal.SIGSTOP)  # it is there, and its supervisor goes on
    assert ask(port, "/livez") == (200, "ok")
    os.kill(fleet.workers[0], signal.SIGKILL)
    until(lambda: ask(port, "/readyz") == (200, "ok") and len(fleet.workers) == 2, "another worker")

    held = yard.enqueue("app.t")
    yard.until_done([held])
    fleet.process.send_signal(signal.SIGTERM)
    until(lambda: ask(port, "/readyz")[0] != 200, "the stop")
    assert fleet.process.wait(DEADLINE) == 0
    assert ask(port, "/livez") == (0, "")


@needs_linux
def test_a_fleet_whose_store_is_away_is_alive_and_not_ready(yard: Yard) -> None:
    redisbench.server()  # or skip
    own, port = redisbench.Server(), free_port()
    path = yard.folder / "away.py"
    path.write_text(f"from laneway import App\napp = App({own.url!r})\n@app.task\ndef t(): ...\n")
    try:
        options = ("--health-port", str(port), "--beat", "0.1", "--shutdown-timeout", "0.5")
        fleet = yard.start(*options, app_name=str(path), processes=1, ready=False)
        until(lambda: ask(port, "/readyz") == (200, "ok"), "a fleet that is ready")
        own.stop(kill=True)
        until(lambda: ask(port, "/readyz") == (503, "the store is away"), "that the store is away")
        assert ask(port, "/livez") == (200, "ok")
        own.start()
        until(lambda: ask(port, "/readyz") == (200, "ok"), "a fleet that is ready again")
        fleet.stop()  # while there is a store: without one, a worker takes its time to end
    finally:
        own.remove()


@needs_linux
def test_a_port_that_is_taken_ends_the_command_with_one_line(yard: Yard, served: tuple[Readiness, int]) -> None:
    fleet = yard.start("--health-port", str(served[1]), ready=False)
    assert fleet.process.wait(20) == 2
    assert f"laneway: --health-port {served[1]}: 127.0.0.1 cannot be listened on there" in fleet.said
