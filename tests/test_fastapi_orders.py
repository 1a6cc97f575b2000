"""The example of orders as its operators meet it: uvicorn, a fleet, clients over HTTP; all is killed, rows and jobs agree."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("itsdangerous")
pytest.importorskip("sqlalchemy")
import httpx
import sqlalchemy

import postgresbench
from laneway import App
from redisbench import free_port
from test_shops import EXAMPLES, Programs, answers, opened, workers_of
from workbench import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
DATABASES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/shop.db",
    "postgres": lambda _: postgresbench.renewed().url,
}
#: Of one customer, and how many customers there are.
ORDERS, CUSTOMERS = 40, 4


class Shop:
    """The programs of the example, on a database."""

    def __init__(self, programs: Programs, url: str) -> None:
        self.programs = programs
        self.url = url
        self.port = free_port()
        self.jobs = App(url)
        self.starts = 0
        self.serve()

    def serve(self) -> None:
        self.starts += 1
        self.web = self.programs.start(
            f"web{self.starts}", "uvicorn", "--app-dir", str(EXAMPLES), "fastapi_orders:api", "--port", str(self.port),
            "--timeout-graceful-shutdown", "3",
        )  # fmt: skip
        client = self.programs.client(self.port)
        until(lambda: answers(client, "/docs"))

    def work(self) -> None:
        self.fleet = self.programs.start(
            "fleet", "laneway", "worker", str(EXAMPLES / "fastapi_orders.py"), "-p", "2", "-s", "3", "--beat", "0.3"
        )  # fmt: skip
        until(lambda: len(workers_of(self.fleet.pid)) >= 2)

    def client(self, user: str) -> Any:
        client = self.programs.client(self.port)
        assert client.post("/login", json={"user": user}).status_code == 204
        return client

    def rows(self, query: str) -> list[Any]:
        engine = sqlalchemy.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://", 1))
        try:
            with engine.connect() as connection:
                return list(connection.execute(sqlalchemy.text(query)))
        finally:
            engine.dispose()


@pytest.fixture(params=DATABASES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = DATABASES[request.param](tmp_path)
    with opened(Programs(tmp_path, url, SECRET="of-a-test", SECONDS="0.02")) as programs:  # noqa: S106
        made = Shop(programs, url)
        try:
            yield made
        finally:
            made.jobs.close()
            if request.param == "postgres":
                programs.close()
                postgresbench.server().ask("drop table if exists shipments, orders")


class Customer(threading.Thread):
    """Orders one after the other, some of it too much; if the server is gone, tries again."""

    def __init__(self, shop: Shop, name: str) -> None:
        super().__init__(daemon=True)
        self.client = shop.client(name)
        self.accepted: list[int] = []
        self.refused = self.lost = 0
        self.start()

    def run(self) -> None:
        for number in range(ORDERS):
            self._order(1000 if number % 4 == 3 else number % 4)

    def _order(self, items: int) -> None:
        for _ in range(500):
            try:
                answer = self.client.post("/orders", json={"items": items})
            except httpx.TransportError:
                self.lost += 1  # it may have been accepted, or not
                threading.Event().wait(0.05)
                continue
            if answer.status_code == 422:
                self.refused += 1
            else:
                assert answer.status_code == 202, answer.text
                self.accepted.append(answer.json()["order"])
            return
        raise AssertionError("the server does not come back")


def test_whatever_is_killed_rows_and_jobs_agree(shop: Shop) -> None:
    shop.work()
    customers = [Customer(shop, f"customer-{number}") for number in range(CUSTOMERS)]
    for share in (10, 30, 50, 70, 90):
        until(lambda least=share: sum(len(one.accepted) for one in customers) >= least)  # type: ignore[misc]
        until(lambda: workers_of(shop.fleet.pid))  # the one killed last may have been the last one that was ready
        os.kill(workers_of(shop.fleet.pid)[0], signal.SIGKILL)
        if share == 50:
            shop.web.send_signal(signal.SIGKILL)
            shop.web.wait(30)
            shop.serve()
    for one in customers:
        one.join(60)
        assert not one.is_alive()
    accepted = {order for one in customers for order in one.accepted}
    assert len(accepted) == CUSTOMERS * ORDERS * 3 // 4
    assert {one.refused for one in customers} == {ORDERS // 4}

    until(lambda: not any(shop.jobs.inspect.counts().values()), "all jobs are done")
    orders = {row.id: row for row in shop.rows("select * from orders")}
    assert accepted <= {*orders}, "an order that was accepted is lost"
    assert len(orders) - len(accepted) <= sum(one.lost for one in customers)
    assert max(row.items for row in orders.values()) < 100, "an order is there that was refused"
    assert sorted(row.order_id for row in shop.rows("select order_id from shipments")) == sorted(orders), "each once"
    ended = [shop.jobs.job(row.job).info() for row in orders.values()]
    assert {job.state for job in ended} == {"done"}
    assert [error for job in ended for error in job.errors if error.kind == "worker lost"], "no kill hit a job that ran"


def test_a_customer_follows_an_order_and_the_staff_has_the_dashboard(shop: Shop) -> None:
    ada, eve, nobody = shop.client("ada"), shop.client("eve"), shop.programs.client(shop.port)
    order = ada.post("/orders", json={"items": 80}).json()["order"]
    assert ada.get(f"/orders/{order}").json()["state"] == "ready"
    for path in (f"/orders/{order}", f"/orders/{order}/events"):
        assert (eve.get(path).status_code, nobody.get(path).status_code) == (404, 401)
    assert nobody.post("/orders", json={"items": 1}).status_code == 401

    with ExitStack() as stack:
        # More than there are connections in the pool: a stream holds none.
        url = f"/orders/{order}/events"
        streams = [stack.enter_context(ada.stream("GET", url)).iter_lines() for _ in range(20)]
        assert ada.post("/orders", json={"items": 1}).status_code == 202
        shop.work()
        heard = [json.loads(line[5:]) for line in streams[0] if line.startswith("data:")]
    assert {one["progress"]["done"] for one in heard if one["progress"]} & {*range(81)}
    assert (heard[0]["state"], heard[-1]["state"], heard[-1]["result"]) == ("ready", "done", {"order": order, "items": 80})

    assert nobody.get("/jobs/").status_code == 401
    assert "Overview" in ada.get("/jobs", follow_redirects=True).text
    assert ada.post("/jobs/api/v1/queues/default/pause").json()["error"]["kind"] == "forbidden"
    boss = shop.client("boss")
    token = boss.get("/jobs/api/v1/session").json()["csrf_token"]
    assert boss.post("/jobs/api/v1/queues/default/pause", headers={"x-csrf-token": token}).status_code == 200
    assert shop.jobs.inspect.queues()[0].paused
    assert "EventSource" in nobody.get("/").text
