"""What tests of the web share: a shop with a bit of everything in its store, and clients that ask its dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx

from laneway import App, Retry, Worker
from laneway.store.contract import WorkerInfo
from laneway.web import dashboard, server
from laneway.web.app import ENDPOINTS
from laneway.web.endpoint import Endpoint

DEADLINE = 60.0
HERE = "http://localhost:8080"
TOKEN = "a-token-of-some-length"  # noqa: S105 - of a test


class Client:
    """Asks an ASGI app, in an event loop and a task that live as long as the client.

    The threads of anyio end with the task that was the first to run: one for each request would start a thread each.
    """

    def __init__(self, site: Any, *, base: str = HERE, client: tuple[str, int] = ("127.0.0.1", 5000), **headers: str) -> None:
        transport = httpx.ASGITransport(site, client=client)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.site = site
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(transport=transport, base_url=base, headers=named, trust_env=False)
        self._asked: asyncio.Queue[tuple[httpx.Request, asyncio.Future[httpx.Response]]] = asyncio.Queue()
        self._task = self._runner.get_loop().create_task(self._answer())

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        loop = self._runner.get_loop()
        answer: asyncio.Future[httpx.Response] = loop.create_future()
        self._asked.put_nowait((self._client.build_request(method, path, **more), answer))
        return loop.run_until_complete(answer)

    async def _answer(self) -> None:
        while True:
            request, answer = await self._asked.get()
            try:
                async with asyncio.timeout(DEADLINE):
                    answer.set_result(await self._client.send(request))
            except Exception as error:  # noqa: BLE001 - for who asked
                answer.set_exception(error)

    def get(self, path: str, status: int = 200, /, **query: Any) -> Any:
        answer = self.ask("GET", path, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, status: int = 200, /, **body: Any) -> Any:
        answer = self.ask("POST", path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def operation(self, path: str, /, **body: Any) -> Any:
        """Start an operation and wait for its end."""
        return self.until_over(self.post(path, 202, **body)["id"])

    def until_over(self, id_: str) -> Any:
        end = time.monotonic() + DEADLINE
        while (found := self.get(f"/api/v1/operations/{id_}"))["state"] not in ("done", "failed"):
            assert time.monotonic() < end, f"the operation did not end: {found}"
            time.sleep(0.005)
        return found

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


@contextlib.contextmanager
def asking(site: Any, **more: Any) -> Iterator[Client]:
    client = Client(site, **more)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def visiting(app: App, **options: Any) -> Iterator[Client]:
    """Ask the dashboard of an app from this machine."""
    with asking(dashboard(app, **options)) as client:
        yield client


class Shop:
    """Tasks on an app, and one or more of everything in its store."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.task(name="add", keep_result=600)
        def add(a: int, b: int = 1) -> dict[str, int | str]:
            return {"sum": a + b, "token": "t0psecret"}

        @app.task(name="login", queue="mail")
        def login(user: str, password: str, *, headers: dict[str, str] | None = None) -> None: ...

        @app.task(name="charge", queue="billing", lane="customer", retry=Retry(times=0))
        def charge(customer: str) -> None:
            raise ValueError("no money")

        @app.task(name="flaky", queue="flaky", retry=Retry(times=3, backoff=600))
        def flaky() -> None:
            raise TimeoutError("read timed out")

        @app.task(name="nightly", schedule="0 3 * * *")
        def nightly() -> None: ...

        @app.collector(name="sync")
        def sync(lanes: dict[str, list[dict[str, Any]]]) -> None: ...

        self.add, self.login, self.charge, self.flaky, self.sync = add, login, charge, flaky, sync
        self.done: str = ""

    def fill(self) -> Shop:
        """Put in a job that is done, one dead, one to be retried, some that wait, a collector's lane, and a worker."""
        self.done = self.add.enqueue(1, 2).id
        self.dead = self.charge.enqueue("c-1").id
        self.retrying = self.flaky.enqueue().id
        self.work()
        self.ready = self.login.enqueue("ada", "hunter2", headers={"Authorization": "Bearer x", "Accept": "y"}).id
        self.scheduled = self.login.using(run_after=3600).enqueue("bob", "hunter3").id
        for _ in range(3):
            self.charge.using(run_after=3600).enqueue("c-2")
        self.sync.using(run_after=3600).enqueue("o/1 ?", {"api_key": "k", "total": 1}, score=1)
        self.sync.enqueue("o/1 ?", {"card": {"nr": "4111"}, "total": 2}, score=2)
        self.app.store.beat([WorkerInfo("w-1", host="h", pid=7, slots=4, queues=("nowhere",), tasks=("add",))])
        self.app.inspect.set_schedule("kept", self.login.bind("eve", "hunter4"), "@hourly", by="ada")
        return self

    def work(self) -> None:
        Worker(self.app, 2).run(burst=True)

    def snapshot(self) -> object:
        """Everything that an action would change."""
        look = self.app.inspect
        jobs = [(job.id, job.state, job.due_at, job.mark, job.attempt) for job in look.jobs(limit=1000)]
        workers = self.app.store.beat([WorkerInfo("w-1", host="h", pid=7, slots=4, queues=("nowhere",), tasks=("add",))])
        return (
            jobs, look.counts(), [(queue.name, queue.paused) for queue in look.queues()],
            [(one.name, one.paused, one.schedule) for one in look.schedules()], self.app.stats.totals(), workers,
            list(self.app.store_inspect.payloads("sync", "o/1 ?", 100, None)), [group.id for group in self.app.stats.errors()],
        )  # fmt: skip

    def path(self, endpoint: Endpoint) -> str:
        """Return an endpoint's path with names in it that exist."""
        id_ = {"workers": "w-1", "errors": next((group.id for group in self.app.stats.errors()), "none")}
        place = next((name for name in id_ if name in endpoint.path), "")
        job = self.retrying if endpoint.path.endswith(("retry", "reschedule")) else self.ready
        schedule = "kept" if endpoint.path.endswith(("/set", "schedules/{name:path}/drop")) else "nightly"
        return endpoint.path.replace("{id}", id_.get(place, job)).replace("{queue}", "mail").replace("{name:path}", schedule)

    def body(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return what an endpoint must be given to do something."""
        takes = endpoint.takes
        body: dict[str, Any] = {"in": "2h"} if "in" in takes else {}
        if "when" in takes:
            body |= {"task": "add", "when": "5m", "args": [1]}
        elif "lane" in takes and "ids" not in takes:
            body |= {"queue": "sync", "lane": "o/1 ?"}
        elif takes == ("queue",):
            body |= {"queue": "sync"}
        elif "all" in takes:
            body |= {"all": True}
        return body


ACTIONS = [endpoint for endpoint in ENDPOINTS if endpoint.method != "GET"]
LOOKS = [endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"]


class Server:
    """A dashboard on a socket of this machine, in a thread."""

    def __init__(self, site: Any) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._server = server.Server(site, lambda: None)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the server did not end"


@contextlib.contextmanager
def serving(site: Any) -> Iterator[str]:
    made = Server(site)
    try:
        yield made.url
    finally:
        made.close()
