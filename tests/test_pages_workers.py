"""The page of workers: by which rule a worker's slots are dealt, which queues hold them, and whose memory is meant."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from laneway import App, Worker
from laneway.core.job import Job
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.web import dashboard
from webdesk import asking


def shown(app: App) -> str:
    """Return the words of the page."""
    with asking(dashboard(app)) as client:
        answer = client.ask("GET", "/workers", headers={"accept": "text/html"})
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.text)))


def hold(app: App, worker: str, queue: str, number: int) -> None:
    app.store.push([Job(f"{worker}-{queue}-{n}", "app.task", queue, b"[[],{}]") for n in range(number)])
    app.store.exchange(worker, [], [ClaimRequest(queue, number)], number)


@pytest.mark.every_store
def test_each_queue_is_shown_with_the_slots_it_holds(app: App) -> None:
    app.store.beat([WorkerInfo("w", slots=10, balance="even")])
    hold(app, "w", "mail", 2)
    hold(app, "w", "billing", 3)

    page = shown(app)

    assert re.search(r"billing 3 slots mail 2 slots", page)
    assert "even equally to queues with work" in page


def test_of_many_queues_the_largest_are_shown(app: App) -> None:
    app.store.beat([WorkerInfo("w", slots=30)])
    for number in range(11):
        hold(app, "w", f"q{number:02}", 2 if number == 10 else 1)

    page = shown(app)

    assert re.search(r"q10 2 slots q00 1 slot q01 1 slot", page)
    assert "and 3 more queues" in page
    assert "q07 1 slot" not in page


def test_a_worker_that_does_not_say_how_it_balances_is_shown_without(app: App) -> None:
    app.store.beat([WorkerInfo("old", slots=5)])

    assert "Balance" not in shown(app)


def test_memory_is_called_by_its_name(app: App) -> None:
    app.store.beat([WorkerInfo("a", rss=40 << 20, pss=10 << 20), WorkerInfo("b", rss=50 << 20, pss=20 << 20)])

    page = shown(app)

    assert "30 MiB memory (PSS: what is shared counts once); RSS 90 MiB" in page
    assert "10 MiB PSS, 40 MiB RSS" in page


def test_where_the_system_tells_no_pss_the_rss_is_shown_as_that(app: App) -> None:
    app.store.beat([WorkerInfo("a", rss=40 << 20)])

    page = shown(app)

    assert "40 MiB memory (RSS)" in page
    assert "PSS" not in page


def biggest_first(slots: int, loads: Mapping[str, int]) -> dict[str, int]:
    return {max(loads, key=lambda queue: loads[queue]): slots}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "even equally to queues with work"),
        ({"balance": "adaptive"}, "adaptive one each, the rest by what waits"),
        ({"balance": "strict", "queues": ["mail", "low"]}, "strict to the first of its queues with work"),
        ({"queues": {"mail": 3, "low": 0.5}}, "weighted (mail 3, low 0.5) by weight"),
        ({"balance": biggest_first}, "biggest_first a rule of your own"),
    ],
)
def test_a_worker_tells_what_deals_its_slots(app: App, options: dict[str, Any], told: str) -> None:
    runs, may_end = threading.Event(), threading.Event()

    @app.task(name="wait", queue="mail")
    def wait() -> None:
        runs.set()
        may_end.wait(20)

    wait.enqueue()
    worker = Worker(app, 2, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert runs.wait(20)
        page = shown(app)
    finally:
        may_end.set()
        worker.stop()
        thread.join(20)

    assert told in page
    assert "mail 1 slot" in page
