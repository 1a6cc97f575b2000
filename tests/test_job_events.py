"""A job's events over a real socket, on every store: each change until the end, one look for all who listen, none for nobody."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import postgresbench
import redisbench
from laneway import App, Retry, current_job
from laneway.contrib.starlette import job_events, job_routes
from laneway.errors import StoreUnavailable
from laneway.web import job_events as watched
from laneway.web import live
from webdesk import DEADLINE, serving
from workbench import burst, until, wait, working

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db",
    "redis": lambda _: redisbench.emptied().url,
    "postgres": lambda _: postgresbench.renewed().url,
}


@pytest.fixture(params=STORES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    made = App(STORES[request.param](tmp_path))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "EVERY", 0.2)


def site(app: App) -> Starlette:
    return Starlette(routes=[Mount("/jobs", routes=job_routes(app))])


class Listening:
    """A client that hears the events of a job, in a thread."""

    def __init__(self, url: str, id_: str, **headers: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.first = threading.Event()
        self._url, self._headers = f"{url}/jobs/{id_}/events", {name.replace("_", "-"): value for name, value in headers.items()}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=DEADLINE, trust_env=False) as answer:
            self.status = answer.status_code
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    self.names.append(value)
                if name == "data":
                    self.heard.append(json.loads(value))
                    self.first.set()

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.heard if "state" in event]

    def end(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), f"the stream did not end: {self.heard}"


def test_a_listener_hears_progress_until_the_end(stored: App) -> None:
    steps = [threading.Event() for _ in range(2)]

    @stored.task(keep_result=60)
    def pack(items: int) -> str:
        for packed, step in enumerate(steps):
            current_job().progress(packed, items)
            wait(step)
        return "packed"

    with serving(site(stored)) as url:
        job = pack.enqueue(2)
        client = Listening(url, job.id)
        wait(client.first)
        assert client.states == ["ready"]
        with working(stored, beat=0.1):
            for packed, step in enumerate(steps):
                until(lambda done=packed: any((one["progress"] or {}).get("done") == done for one in client.heard))  # type: ignore[misc]
                step.set()
            client.end()
    last = client.heard[-1]
    assert (last["state"], last["ended"], last["result"]) == ("done", True, "packed")
    assert {"running"} <= {*client.states}
    assert all(one != two for one, two in zip(client.heard, client.heard[1:], strict=False)), "only changes are sent"


def test_a_job_that_dies_or_is_cancelled_or_leaves_nothing_ends_its_stream(stored: App) -> None:
    @stored.task(retry=Retry(times=0))
    def fail() -> None:
        raise ValueError("no")

    @stored.task(retry=Retry(times=3, backoff=3600))
    def again() -> None:
        raise TimeoutError("later")

    @stored.task
    def forget() -> None: ...

    with serving(site(stored)) as url:
        waiting = again.enqueue()
        clients = [Listening(url, job.id) for job in (fail.enqueue(), waiting, forget.enqueue())]
        for client in clients:
            wait(client.first)
        burst(stored)
        for client in (clients[0], clients[2]):
            client.end()
        until(lambda: clients[1].states[-1] == "retrying")
        assert clients[1].heard[-1]["ended"] is False
        stored.inspect.cancel(waiting.id)
        clients[1].end()
    assert clients[0].heard[-1]["errors"][0]["message"] == "no"
    assert clients[0].states[-1] == "dead"
    assert clients[1].states[-1] in ("cancelled", "gone")
    assert clients[2].states[-1] in ("done", "gone")


def test_many_listeners_share_one_look_at_each_job(stored: App, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[str, float]] = []
    real = stored.inspect.job

    def job(id_: str) -> Any:
        looks.append((id_, time.monotonic()))
        return real(id_)

    @stored.task(keep_result=60)
    def pack() -> None: ...

    with serving(site(stored)) as url:
        one, two = pack.enqueue(), pack.enqueue()
        clients = [Listening(url, id_) for id_ in (one.id, two.id) for _ in range(20)]
        for client in clients:
            wait(client.first)
        monkeypatch.setattr(stored.inspect, "job", job)
        until(lambda: len(looks) >= 8)
        begun, ended = looks[0][1], looks[-1][1]
        assert sorted({id_ for id_, _ in looks}) == sorted([one.id, two.id])
        # Two jobs, five times a second: each listener for itself would look twenty times as often.
        assert len(looks) <= 2 * ((ended - begun) / watched.EVERY + 2)
        burst(stored)
        for client in clients:
            client.end()
        assert {client.states[-1] for client in clients} == {"done"}
        seen = len(looks)
        until(lambda: watched._followers[stored].listeners == 0)
    assert len(looks) == seen, "nobody listens, and somebody looks"
    assert not watched._followers[stored]._jobs


def test_a_client_that_leaves_is_forgotten(app: App) -> None:
    @app.task
    def pack() -> None: ...

    job = pack.enqueue()
    with serving(site(app)) as url:
        with httpx.stream("GET", f"{url}/jobs/{job.id}/events", timeout=DEADLINE, trust_env=False) as answer:
            lines = answer.iter_lines()
            assert [next(lines) for _ in range(3)][2].startswith("data")
            assert dict(watched._followers[app]._jobs) == {job.id: 1}
        until(lambda: watched._followers[app].listeners == 0, "the listener is still there")
        until(lambda: not watched._followers[app]._jobs, "the job is still looked at")


def test_a_browser_that_has_heard_the_end_is_told_not_to_come_back(app: App) -> None:
    @app.task(keep_result=60)
    def pack() -> None: ...

    job = pack.enqueue()
    burst(app)
    with serving(site(app)) as url:
        text = httpx.get(f"{url}/jobs/{job.id}/events", trust_env=False).text
        assert "\nid: ended\n" in text
        again = httpx.get(f"{url}/jobs/{job.id}/events", headers={"last-event-id": "ended"}, trust_env=False)
        assert (again.status_code, again.content) == (204, b"")
        assert httpx.head(f"{url}/jobs/{job.id}/events", trust_env=False).status_code == 200


def test_a_store_that_goes_away_is_an_event_and_the_stream_goes_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(keep_result=60)
    def pack() -> None: ...

    real, away = app.inspect.job, threading.Event()

    def job(id_: str) -> Any:
        if away.is_set():
            raise StoreUnavailable("it is away")
        return real(id_)

    monkeypatch.setattr(app.inspect, "job", job)
    with serving(site(app)) as url:
        client = Listening(url, pack.enqueue().id)
        wait(client.first)
        away.set()
        until(lambda: "trouble" in client.names)
        away.clear()
        burst(app)
        client.end()
    assert client.states[-1] == "done"
    assert next(one for one in client.heard if "error" in one)["error"]["kind"] == "store_unavailable"


def test_a_stream_ends_after_a_while_and_says_now_and_then_that_it_is_there(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONG", 1.0)
    monkeypatch.setattr(watched, "SILENCE", 0.1)

    @app.task
    def pack() -> None: ...

    with serving(site(app)) as url:
        text = httpx.get(f"{url}/jobs/{pack.enqueue().id}/events", timeout=DEADLINE, trust_env=False).text
    assert text.startswith("retry: 1000\n\ndata: {")
    assert text.endswith(":\n\n")
    assert "id: ended" not in text


def test_so_many_may_follow_jobs_and_no_more(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST", 0)

    @app.task
    def pack() -> None: ...

    with serving(site(app)) as url:
        answer = httpx.get(f"{url}/jobs/{pack.enqueue().id}/events", trust_env=False)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")


def test_an_app_that_nobody_needs_any_more_is_not_kept() -> None:
    async def ask(app: App, id_: str) -> None:
        await job_events(app, id_)

    app = App("sqlite://")
    asyncio.run(ask(app, app.enqueue("pack", check=False).id))
    assert app in watched._followers
    app.close()
    gone = weakref.ref(app)
    del app
    until(lambda: gc.collect() >= 0 and gone() is None, "the app is gone")  # a thread that ends may still have it for a moment
