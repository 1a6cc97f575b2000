"""The Django example under real servers, with a real fleet: orders are placed over HTTP while workers are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import postgresbench
from conftest import SOAK, often
from djangobench import environment, only_long, ran, run
from redisbench import free_port
from test_shops import Programs, answers, needs_linux, opened, workers_of
from workbench import until

pytest.importorskip("httpx")
pytest.importorskip("django")
pytest_plugins = ("django_fixtures",)
CUSTOMERS = ("ada", "ben", "cy", "dee")
SERVERS = {
    "wsgi": ("gunicorn", "shop.wsgi:application", "--threads", "4", "--bind"),
    "asgi": ("uvicorn", "shop.asgi:application", "--log-level", "warning", "--port"),
}
FACTS = """
import json
from orders.models import Order, Parcel
from laneway.contrib.django import app
print(json.dumps({
    "orders": list(Order.objects.order_by("pk").values_list("pk", "customer")),
    "parcels": list(Parcel.objects.order_by("pk").values_list("order_id", "order__customer", "number_of_customer")),
    "unshipped": Order.objects.filter(shipped_at=None).count(),
    "states": sorted({job.state for job in app.inspect.jobs(limit=1000)}),
    "done": app.stats.totals()["processed"], "enqueued": app.stats.totals()["enqueued"],
}))
"""
PEOPLE = """
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("boss", password="secret")
"""


class DjangoShop(Programs):
    """The programs of the example."""

    def __init__(self, folder: Path, place: dict[str, str], python: str) -> None:
        super().__init__(folder, "")
        self.python = python
        self._environment = environment(**place)


def log_in(client: Any, path: str) -> None:
    """Log in as a browser does."""
    form = client.get(path, follow_redirects=True)
    assert form.url.path == "/admin/login/"
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[0]
    sent = {"csrfmiddlewaretoken": token, "username": "boss", "password": "secret"}
    assert client.post(str(form.url), data=sent, headers={"Referer": str(form.url)}).status_code == 302


def sessions(place: dict[str, str]) -> int:
    """Return how many sessions a shop's database has."""
    if "PGDATABASE" not in place:
        return 0
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
    return int(postgresbench.server().ask(asked, place["PGDATABASE"])[0][0])


def sell(client: Any, customer: str) -> list[int]:
    """Place a customer's orders, one after the other; every seventh fails. Return those that were placed."""
    placed = []
    for number in range(8):
        fails = number % 7 == 0
        answer = client.post("/orders/", json={"customer": customer, "total": number, "fails": fails})
        assert answer.status_code == (500 if fails else 201), answer.text
        placed += [] if fails else [int(answer.json()["order"])]
    return placed


def look(client: Any, port: int) -> None:
    """Use the dashboard as the staff does."""
    log_in(client, "/jobs/")
    assert "Overview" in client.get("/jobs/").text
    pause, here = "/jobs/api/v1/queues/default/pause", {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post(pause, headers=here).status_code == 403
    token = client.get("/jobs/api/v1/session").json()["csrf_token"]
    assert client.post(pause, headers={**here, "X-CSRF-Token": token}).status_code == 200
    assert client.post(pause, headers={"Origin": "http://evil.example", "X-CSRF-Token": token}).status_code == 403
    with client.stream("GET", "/jobs/api/v1/live") as live:
        assert live.headers["content-type"].startswith("text/event-stream")
        assert json.loads(next(line for line in live.iter_lines() if line.startswith("data:")).removeprefix("data:"))


def served(place: dict[str, str], folder: Path, server: str, python: str = sys.executable) -> None:
    """Sell, while workers are killed; then look at the dashboard. Everything agrees in the end."""
    port, most = free_port(), 0
    placed: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}
    with opened(DjangoShop(folder, place, python)) as shop:
        shop.start("web", *SERVERS[server], f"127.0.0.1:{port}" if server == "wsgi" else str(port))
        fleet = shop.start("fleet", "django", "laneway", "worker", "-p", "2", "-s", "2", "--beat", "0.2")
        ran("-m", "django", "shell", "-c", PEOPLE, **place)
        client = shop.client(port)
        until(lambda: answers(client, "/orders/1/"))
        until(lambda: len(workers_of(fleet.pid)) >= 2)
        with ThreadPoolExecutor(len(CUSTOMERS)) as people:
            for _ in range(often(2, 20)):
                begun = {customer: people.submit(sell, client, customer) for customer in CUSTOMERS}
                os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
                for customer, one in begun.items():
                    placed[customer] += one.result()
                most = max(most, sessions(place))
                until(lambda: len(workers_of(fleet.pid)) >= 2)
        numbers = sorted(number for theirs in placed.values() for number in theirs)
        until(lambda: all(client.get(f"/orders/{number}/").json()["shipped"] for number in numbers))
        look(client, port)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0
    facts = json.loads(run("-m", "django", "shell", "-v", "0", "-c", FACTS, **place).stdout)
    assert [number for number, _ in facts["orders"]] == numbers
    assert sorted(number for number, _, _ in facts["parcels"]) == numbers
    assert (facts["unshipped"], facts["states"]) == (0, [])  # of those that are not done
    assert (facts["enqueued"], facts["done"]) == (len(numbers), len(numbers))
    for customer in CUSTOMERS:
        theirs = sorted((place_in_line, number) for number, whose, place_in_line in facts["parcels"] if whose == customer)
        assert theirs == list(enumerate(placed[customer], 1))
    assert most <= 40


@needs_linux
@pytest.mark.parametrize(
    ("place", "server"),
    [
        ("sqlite", "wsgi"), ("postgresql", "asgi"),
        pytest.param("sqlite", "asgi", marks=only_long), pytest.param("postgresql", "wsgi", marks=only_long),
    ],
    indirect=["place"],
)  # fmt: skip
def test_a_shop_with_django(place: dict[str, str], tmp_path: Path, server: str) -> None:
    served(place, tmp_path, server)


@needs_linux
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "server"),
    [
        ("postgresql", "wsgi"), pytest.param("sqlite", "asgi", marks=only_long),
        pytest.param("sqlite", "wsgi", marks=only_long), pytest.param("postgresql", "asgi", marks=only_long),
    ],
    indirect=["place"],
)  # fmt: skip
def test_a_shop_with_django_6(place: dict[str, str], tmp_path: Path, server: str, six: str) -> None:
    served(place, tmp_path, server, six)


@needs_linux
@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="make soak runs it")
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_shop_with_an_outbox(place: dict[str, str], tmp_path: Path, jobs: str) -> None:
    ran("-m", "django", "migrate", SHOP_JOBS=jobs, **place)
    served({**place, "SHOP_JOBS": jobs}, tmp_path, "asgi")
