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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from conftest import often
from laneway import App
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

    python = sys.executable

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
            [self.python, "-m", *command], cwd=self.folder, env=self._environment, stdout=said, stderr=said,
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


FLASK_SHOP = str(EXAMPLES / "flask_shop.py")
GUNICORN = ("gunicorn", "--chdir", str(EXAMPLES), "flask_shop:create_app()", "--workers", "2", "--bind")


@needs_linux
def test_a_shop_with_flask(tmp_path: Path, inbox: Inbox) -> None:
    port, second_port, health = (free_port() for _ in range(3))
    spans, url = tmp_path / "spans.jsonl", f"sqlite:///{tmp_path}/shop.db"
    with opened(Programs(tmp_path, url, TRACES=str(spans), SENTRY_DSN=inbox.dsn)) as shop:
        shop.start("web1", *GUNICORN, f"127.0.0.1:{port}", "--threads", "2")
        shop.start("web2", "flask", "--app", FLASK_SHOP, "run", "--port", str(second_port))
        client, second = shop.client(port), shop.client(second_port)
        until(lambda: answers(client, "/charges/nobody") and answers(second, "/charges/nobody"))
        id_ = client.post("/charges", json={"customer": 7, "cents": 450}).json()["id"]
        assert second.get(f"/charges/{id_}").json()["state"] == "ready"
        fleet = shop.start(
            "fleet", "flask", "--app", FLASK_SHOP, "laneway", "worker", "-p", "1", "--log-format", "json", "--health-port",
            str(health), "--health-host", "127.0.0.1",
        )  # fmt: skip
        until(lambda: probe(health, "/readyz")[0] == 200)
        assert ended(second, id_)["result"] == "charged customer 7 4.50 EUR"
        os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
        assert probe(health, "/livez")[0] == 200
        until(lambda: probe(health, "/readyz")[0] == 200)
        bad = client.post("/charges", json={"customer": 7, "cents": -1}).json()["id"]
        assert ended(client, bad, "dead")["error"] == "-1 cents cannot be charged"
        until(lambda: len(inbox.events) >= 1)
        [event] = inbox.events
        assert event["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "charge"
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0
        assert all(json.loads(line) for line in shop.said("fleet") if line)
    assert "POST /charges" in trace_of(spans, id_)


def order(client: Any, customer: int) -> list[int]:
    """Place a customer's orders, one after the other; every fourth is refused when it is written already. Return the others."""
    placed = []
    for number in range(8):
        refused = number % 4 == 0
        answer = client.post("/charges", json={"customer": customer, "cents": 100_001 if refused else number})
        assert answer.status_code == (422 if refused else 202), answer.text
        placed += [] if refused else [int(answer.json()["order"])]
    return placed


def act(client: Any) -> None:
    """Use the dashboard as a browser does, which the program lets in after a login."""
    assert client.get("/jobs/").headers["location"] == "/login"
    assert client.post("/login", data={"password": "secret"}).headers["location"] == "/jobs/"
    assert "Overview" in client.get("/jobs/").text
    here = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    token = client.get("/jobs/api/v1/session").json()["csrf_token"]
    for _ in range(4):  # whichever process is asked
        paused = client.post("/jobs/api/v1/queues/default/pause", headers={**here, "X-CSRF-Token": token})
        assert paused.status_code == 200, paused.text
        assert client.post("/jobs/api/v1/queues/default/resume", headers=here).status_code == 403
        assert client.get("/jobs/api/v1/live").text.startswith("retry: ")


@needs_linux
@pytest.mark.parametrize(("database", "kind"), [("sqlite", ("--preload", "--threads", "4")), ("postgresql", ("--preload",))])
def test_orders_and_jobs_agree_while_workers_of_a_flask_shop_are_killed(
    database: str, kind: tuple[str, ...], tmp_path: Path
) -> None:
    port, url = free_port(), f"sqlite:///{tmp_path}/shop.db"
    if database == "postgresql":
        server, name = postgresbench.server(), f"flask_{os.getpid()}"
        server.ask(f"CREATE DATABASE {name}")
        url = f"{server.url.rpartition('/')[0]}/{name}"
    with opened(Programs(tmp_path, url)) as shop:
        shop.start("web", *GUNICORN, f"127.0.0.1:{port}", *kind)
        client = shop.client(port)
        until(lambda: answers(client, "/charges/nobody"))
        fleet = shop.start("fleet", "flask", "--app", FLASK_SHOP, "laneway", "worker", "-p", "2", "-s", "2", "--beat", "0.2")
        until(lambda: len(workers_of(fleet.pid)) >= 2)
        placed: dict[int, list[int]] = {customer: [] for customer in range(4)}
        with ThreadPoolExecutor(len(placed)) as people:
            for _ in range(often(2, 20)):
                begun = {customer: people.submit(order, client, customer) for customer in placed}
                os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
                for customer, one in begun.items():
                    placed[customer] += one.result()
                until(lambda: len(workers_of(fleet.pid)) >= 2)
        jobs = App(url)
        until(lambda: not any(jobs.inspect.counts().values()))
        act(client)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0, shop.said("fleet")
    engine = pytest.importorskip("sqlalchemy").create_engine(url)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql('select customer, id, receipt from "order" order by customer, id').all()
    engine.dispose()
    totals = jobs.stats.totals()
    jobs.close()
    wanted = [(customer, id_, number) for customer, ids in placed.items() for number, id_ in enumerate(ids, 1)]
    assert [tuple(row) for row in rows] == wanted
    assert (totals["enqueued"], totals["processed"]) == (len(wanted), len(wanted))
    if database == "postgresql":
        server.ask(f"DROP DATABASE {name} WITH (FORCE)")
