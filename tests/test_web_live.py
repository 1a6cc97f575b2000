"""Live figures over a real socket: one look a second whoever listens; slow listeners are dropped. And the command that serves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from clidesk import SHOP, environment
from laneway import App
from laneway.errors import StoreUnavailable
from laneway.web import dashboard, live
from laneway.web.live import Live
from webdesk import DEADLINE, Shop, serving, visiting

Event = dict[str, str]


def listen(url: str, number: int, heard: list[Event] | None = None, first: threading.Event | None = None) -> list[Event]:
    """Hear so many events."""
    heard = [] if heard is None else heard
    with httpx.stream("GET", f"{url}/api/v1/live", timeout=DEADLINE, trust_env=False) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        event: Event = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            heard.append(event)
            event = {}
            if first is not None:
                first.set()
            if len(heard) == number:
                break
    return heard


class Count:
    """Counts calls, with when they began."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.times: list[float] = []

    def __call__(self) -> Any:
        self.times.append(time.monotonic())
        return self._call()


@pytest.mark.every_store
def test_two_listeners_and_one_look_a_second(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Shop(app).fill()
    calls = {name: Count(getattr(app.inspect, name)) for name in ("queues", "workers")}
    calls["totals"] = Count(app.store_inspect.totals)
    for name in ("queues", "workers"):
        monkeypatch.setattr(app.inspect, name, calls[name])
    monkeypatch.setattr(app.store_inspect, "totals", calls["totals"])
    heard: list[list[Event]] = [[], []]
    with serving(dashboard(app)) as url:
        threads = [threading.Thread(target=listen, args=(url, 3, one), daemon=True) for one in heard]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    ids = [[int(event["id"]) for event in one] for one in heard]
    assert sorted(ids[0]) == ids[0]
    looks = len(calls["queues"].times)
    assert max(map(max, ids)) <= looks, "each look is one event for both"
    figures = json.loads(heard[0][0]["data"])
    assert (heard[0][0]["event"], figures["length"], figures["dead"], figures["workers"]["count"]) == ("figures", 7, 1, 1)
    for name, count in calls.items():
        assert len(count.times) == looks, name
        # So many have room in that time; a busy machine may shift one of them. Each for itself, they would look twice as often.
        assert looks - 1 <= (count.times[-1] - count.times[0]) / live.EVERY + 1, name


@pytest.mark.every_store
def test_the_socket_answers_requests_and_acts(app: App) -> None:
    shop = Shop(app).fill()
    with serving(dashboard(app)) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/api/v1/counts").json()["dead"] == 1
        assert client.post(f"/api/v1/jobs/{shop.dead}/retry").status_code == 200
        assert client.get("/api/v1/counts", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/api/v1/lane", params={"queue": "sync", "lane": "o/1 ?"}).json()["size"] == 2
        assert client.head("/api/v1/live").status_code == 200


def test_a_store_that_is_away_is_an_event_and_its_return_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.05)
    inner, gone, first = app.inspect.queues, threading.Event(), threading.Event()

    def queues() -> Any:
        if first.is_set() and not gone.is_set():
            gone.set()
            raise StoreUnavailable("away")
        return inner()

    monkeypatch.setattr(app.inspect, "queues", queues)
    with serving(dashboard(app)) as url:
        heard = listen(url, 5, first=first)
    assert [event["event"] for event in heard].count("trouble") == 1
    trouble = next(event for event in heard if event["event"] == "trouble")
    assert json.loads(trouble["data"])["error"]["kind"] == "store_unavailable"
    assert heard[-1]["event"] == "figures"


# -- listeners without a socket ----------------------------------------------------------------------------------

SCOPE = {"type": "http", "method": "GET"}


class Listener:
    """The other end of a stream."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.sent: list[bytes] = []
        self.gone = asyncio.Event()
        self._stuck = stuck
        self.heard = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self._stuck and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        self.sent.append(message.get("body", b""))
        self.heard.set()


def run(main: Callable[[], Any]) -> Any:
    async def in_time() -> Any:
        async with asyncio.timeout(DEADLINE):
            return await main()

    return asyncio.run(in_time())


async def nothing() -> object:
    return {}


def test_a_listener_that_takes_nothing_is_dropped_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SLOW", 0.05)
    monkeypatch.setattr(live, "EVERY", 0.01)

    async def main() -> None:
        shared = Live(nothing)
        stuck, well = Listener(stuck=True), Listener()
        going = asyncio.create_task(shared.stream({})(SCOPE, well.receive, well.send))
        await shared.stream({})(SCOPE, stuck.receive, stuck.send)
        assert shared.listeners == 1
        well.heard.clear()
        await well.heard.wait()
        well.gone.set()
        await going
        assert shared.listeners == 0

    run(main)


def test_nobody_looks_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)

    async def main() -> None:
        looks = 0

        async def look() -> object:
            nonlocal looks
            looks += 1
            return {}

        shared = Live(look)
        one = Listener()
        going = asyncio.create_task(shared.stream({})(SCOPE, one.receive, one.send))
        await one.heard.wait()
        one.gone.set()
        await going
        assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing is left that could look
        assert looks <= len(one.sent) + 1

    run(main)


def test_if_who_looks_leaves_another_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)

    async def main() -> None:
        first = asyncio.Event()

        async def look() -> object:
            if not first.is_set():
                first.set()
                await asyncio.Event().wait()
            return {}

        shared = Live(look)
        leaves, stays = Listener(), Listener()
        one = asyncio.create_task(shared.stream({})(SCOPE, leaves.receive, leaves.send))
        await first.wait()
        two = asyncio.create_task(shared.stream({})(SCOPE, stays.receive, stays.send))
        leaves.gone.set()
        await one
        while not any(stays.sent):
            await asyncio.sleep(0)
        stays.gone.set()
        await two

    run(main)


def test_a_stream_ends_after_a_while_and_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        shared = Live(nothing)
        one, two = Listener(), Listener()
        monkeypatch.setattr(live, "LONG", 0.01)
        await shared.stream({})(SCOPE, one.receive, one.send)
        monkeypatch.setattr(live, "LONG", 1000.0)
        shared.close()
        await shared.stream({})(SCOPE, two.receive, two.send)
        assert (one.sent[-1], two.sent[-1]) == (b"", b"")

    run(main)


def test_so_many_may_listen_and_no_more(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST", 0)
    with visiting(app) as client:
        assert client.get("/api/v1/live", 503)["error"]["kind"] == "busy"


# -- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(SHOP)
    return tmp_path


def command(project: Path, *words: str, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "laneway", "dashboard", *words], cwd=project, env=environment(**extra), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def opening(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_it_listens_serves_and_ends(project: Path, sign: signal.Signals) -> None:
    process = command(project, "--port", "0")
    found = re.search(r"http://127\.0\.0\.1:\d+", opening(process))
    assert found
    url = found[0]
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        assert client.get("/api/v1/schedules").json()["schedules"][0]["task"] == "app.nightly"
        assert client.post("/api/v1/schedules/app.nightly/run").status_code == 200
    first = threading.Event()
    threading.Thread(target=_listen_until_gone, args=(url, first), daemon=True).start()
    assert first.wait(DEADLINE)
    os.kill(process.pid, sign)
    _, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert 'action="schedule.run"' in said
    assert "Traceback" not in said


def _listen_until_gone(url: str, first: threading.Event) -> None:
    listen(url, 1000, first=first)


def test_the_command_can_be_read_only_and_print_json(project: Path) -> None:
    process = command(project, "--port", "0", "--read-only", "--json")
    assert process.stdout is not None
    document = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
    assert document["read_only"] is True
    answer = httpx.post(f"{document['url']}api/v1/queues/default/pause", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "read_only")
    process.terminate()
    process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])  # noqa: S104 - that is the point
def test_the_command_does_not_open_to_all_without_credentials(project: Path, host: str) -> None:
    process = command(project, "--host", host)
    out, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, said.count("\n")) == (2, "", 1)
    assert "LANEWAY_DASHBOARD_TOKEN" in said


def test_the_command_opens_to_all_with_credentials(project: Path) -> None:
    process = command(project, "--host", "0.0.0.0", "--port", "0", LANEWAY_DASHBOARD_TOKEN="a-long-token")  # noqa: S104, S106
    found = re.search(r":(\d+)/", opening(process))
    assert found
    url = f"http://127.0.0.1:{found[1]}/api/v1/counts"
    assert httpx.get(url, trust_env=False).status_code == 401
    assert httpx.get(url, trust_env=False, headers={"authorization": "Bearer a-long-token"}).status_code == 200
    process.terminate()
    process.communicate(timeout=DEADLINE)


def test_a_port_that_is_taken_is_one_line(project: Path) -> None:
    with serving(dashboard(App("sqlite://"))) as url:
        process = command(project, "--port", url.rpartition(":")[2])
        _, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, said.count("\n"), "--port" in said) == (1, 1, True)


def test_a_store_in_memory_is_nothing_to_look_at(project: Path) -> None:
    process = command(project, "--store", "sqlite://")
    _, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, "memory of one process" in said) == (2, True)


def test_without_the_extra_the_command_says_what_to_install(project: Path) -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; sys.argv = ['laneway', 'dashboard']; from laneway.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project, env=environment(), text=True, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, 'pip install "laneway[web]"' in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_laneway_does_not_load_the_web() -> None:
    program = (
        "import sys; import laneway.desk.app, laneway.worker, laneway.cli\n"
        "print([name for name in ('starlette', 'uvicorn', 'anyio', 'laneway.web') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
