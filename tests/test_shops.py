"""The example shops of FastAPI and Flask, as their operators meet them: real servers, a real fleet, a client over HTTP."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import redisbench
from redisbench import free_port
from test_probes import ask as probe
from workbench import until

httpx = pytest.importorskip("httpx")
ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Inbox:
    """Takes what Sentry's own transport sends, as a server of theirs would."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        inbox = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                lines = body.split(b"\n")
                for head, item in zip(lines[1::2], lines[2::2], strict=False):
                    if head and json.loads(head).get("type") == "event":
                        inbox.events.append(json.loads(item))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Programs:
    """The programs of a shop."""

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        self.folder = folder
        names = ("LANEWAY_URL", "PYTHONDONTWRITEBYTECODE")
        clean = {name: value for name, value in os.environ.items() if name not in names}
        self._environment = {**clean, "LANEWAY_URL": url, "PYTHONPATH": str(ROOT / "src"), **environment}
        self._stack = ExitStack()

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one; what it says goes to a file of its name."""
        said = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        made = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.folder, env=self._environment, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        self._stack.callback(self._end, made)
        return made

    def client(self, port: int) -> Any:
        return self._stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False))

    def said(self, name: str) -> list[str]:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()

    @staticmethod
    def _end(made: subprocess.Popen[bytes]) -> None:
        if made.poll() is None:
            made.terminate()
            try:
                made.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(made.pid, signal.SIGKILL)
                made.wait(10)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[redisbench.Server]:
    if why := redisbench.why_not():
        pytest.skip(why)
    made = redisbench.Server()
    yield made
    made.remove()


@contextmanager
def opened(programs: Programs) -> Iterator[Programs]:
    try:
        yield programs
    finally:
        programs.close()


def answers(client: Any, path: str) -> bool:
    try:
        return bool(client.get(path, follow_redirects=True).status_code < 500)
    except httpx.TransportError:
        return False


def ended(client: Any, id_: str, state: str = "done") -> dict[str, Any]:
    """Wait until a charge is in a state; return what the shop says of it."""
    until(lambda: client.get(f"/charges/{id_}").json()["state"] == state)
    return dict(client.get(f"/charges/{id_}").json())


def workers_of(fleet: int) -> list[int]:
    """The pids of a fleet's workers, by their titles."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, ValueError, IndexError):
                continue
            if session == fleet and "worker" in title and "supervisor" not in title and int(entry.name) != fleet:
                found.append(int(entry.name))
    return found


def trace_of(spans: Path, id_: str) -> list[str]:
    """Return the names of the spans in the trace of a job's run."""
    found = [json.loads(line) for line in spans.read_text(encoding="utf-8").splitlines()]
    runs = [span for span in found if span["kind"].endswith("CONSUMER")]
    [run] = [span for span in runs if span["attributes"].get("messaging.message.id") == id_]
    return [span["name"] for span in found if span["context"]["trace_id"] == run["context"]["trace_id"]]


@needs_linux
def test_a_shop_with_fastapi(tmp_path: Path, server: redisbench.Server, inbox: Inbox) -> None:
    first_port, second_port, health = free_port(), free_port(), free_port()
    spans = tmp_path / "spans.jsonl"
    url = f"{server.url}?timeout=2"  # its absence is noticed sooner
    with opened(Programs(tmp_path, url, TRACES=str(spans), SENTRY_DSN=inbox.dsn)) as shop:
        serve = ("uvicorn", "--app-dir", str(EXAMPLES), "fastapi_shop:api", "--port")
        shop.start("web1", *serve, str(first_port))
        shop.start("web2", *serve, str(second_port))
        first, second = shop.client(first_port), shop.client(second_port)
        until(lambda: answers(first, "/docs") and answers(second, "/docs"))

        # Enqueued in one process, before there is a worker; seen from another.
        id_ = first.post("/charges", params={"customer": 7, "cents": 450}).json()["id"]
        assert second.get(f"/charges/{id_}").json()["state"] == "ready"
        assert second.get("/charges/nobody").status_code == 404

        fleet = shop.start(
            "fleet", "laneway", "worker", str(EXAMPLES / "fastapi_shop.py"), "-p", "2", "-s", "2", "--log-format", "json",
            "--log-level", "debug", "--health-port", str(health), "--health-host", "127.0.0.1", "--beat", "0.3",
        )  # fmt: skip
        until(lambda: probe(health, "/readyz")[0] == 200)
        done = ended(second, id_)
        assert (done["result"], done["args"], done["attempt"]) == ("First Bank charged customer 7 4.50", [7, 450], 1)
        assert "Overview" in first.get("/jobs", follow_redirects=True).text

        # One that fails for good: one event, with the stack of the task.
        bad = first.post("/charges", params={"customer": 7, "cents": -1}).json()["id"]
        dead = ended(second, bad, "dead")
        assert [error["message"] for error in dead["errors"]] == ["-1 cents cannot be charged"] * 3
        until(lambda: len(inbox.events) >= 1)
        [event] = inbox.events
        raised = event["exception"]["values"][-1]
        assert (raised["type"], raised["stacktrace"]["frames"][-1]["function"]) == ("ValueError", "charge")

        # A worker is killed: alive all the time, ready again, nothing lost.
        until(lambda: len(workers_of(fleet.pid)) >= 2)
        os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
        assert probe(health, "/livez")[0] == 200
        after = first.post("/charges", params={"customer": 8, "cents": 100}).json()["id"]
        assert ended(second, after)["result"] == "First Bank charged customer 8 1.00"
        until(lambda: probe(health, "/readyz")[0] == 200)

        # The store is away, and comes back.
        with server.frozen():
            until(lambda: probe(health, "/readyz")[0] == 503)
            assert probe(health, "/livez")[0] == 200
        until(lambda: probe(health, "/readyz")[0] == 200)
        again = first.post("/charges", params={"customer": 9, "cents": 100}).json()["id"]
        assert ended(second, again)["state"] == "done"

        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0
        assert probe(health, "/readyz")[0] == 0
        logged = [json.loads(line) for line in shop.said("fleet") if line]
    assert {"time", "level", "logger", "message"} <= set.intersection(*({*line} for line in logged))
    assert {line["outcome"] for line in logged if line.get("job_id") == bad and "outcome" in line} == {"retrying", "dead"}
    assert [line["seconds"] >= 0 for line in logged if line.get("job_id") == id_ and "seconds" in line] == [True]

    assert "POST /charges" in trace_of(spans, id_)


@needs_linux
def test_a_shop_with_flask(tmp_path: Path, inbox: Inbox) -> None:
    port, second_port, pages, health = (free_port() for _ in range(4))
    example = str(EXAMPLES / "flask_shop.py")
    spans, url = tmp_path / "spans.jsonl", f"sqlite:///{tmp_path}/shop.db"
    with opened(Programs(tmp_path, url, TRACES=str(spans), SENTRY_DSN=inbox.dsn)) as shop:
        shop.start("web1", "flask", "--app", example, "run", "--port", str(port))
        shop.start("web2", "flask", "--app", example, "run", "--port", str(second_port))
        shop.start("pages", "laneway", "dashboard", example, "--port", str(pages))
        client, second, dashboard = shop.client(port), shop.client(second_port), shop.client(pages)
        until(lambda: answers(client, "/charges/nobody") and answers(second, "/charges/nobody") and answers(dashboard, "/"))
        id_ = client.post("/charges", json={"customer": 7, "cents": 450}).json()["id"]
        assert second.get(f"/charges/{id_}").json()["state"] == "ready"
        fleet = shop.start(
            "fleet", "laneway", "worker", example, "-p", "1", "--log-format", "json", "--health-port", str(health),
            "--health-host", "127.0.0.1",
        )  # fmt: skip
        until(lambda: probe(health, "/readyz")[0] == 200)
        assert ended(second, id_)["result"] == "charged customer 7 4.50 EUR"
        assert "Overview" in dashboard.get("/").text
        os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
        assert probe(health, "/livez")[0] == 200
        until(lambda: probe(health, "/readyz")[0] == 200)
        bad = client.post("/charges", json={"customer": 7, "cents": -1}).json()["id"]
        assert ended(client, bad, "dead")["errors"][-1]["message"] == "-1 cents cannot be charged"
        until(lambda: len(inbox.events) >= 1)
        [event] = inbox.events
        assert event["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "charge"
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0
        assert all(json.loads(line) for line in shop.said("fleet") if line)
    assert "POST /charges" in trace_of(spans, id_)
