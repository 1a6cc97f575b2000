"""How long it takes to look: every read of the web API and every page, with a million jobs that wait and 100,000 that are dead.

make bench ARGS="reads"
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx

from harness import Table, percentile
from laneway import App
from laneway.core.outcome import Dead, ErrorInfo, Settled
from laneway.store.contract import ClaimRequest
from laneway.web import dashboard
from raw_redis import missing, served

WAITING, DEAD = 1_000_000, 100_000
TIMES = 7
QUEUES = ("mail", "images", "billing", "sync")
READS = (
    "/healthz", "/metrics", "/api/v1/counts", "/api/v1/count?state=dead", "/api/v1/count?task=work-1", "/api/v1/jobs?limit=50",
    "/api/v1/jobs?limit=50&newest=true", "/api/v1/jobs?state=ready&limit=50", "/api/v1/jobs?state=dead&limit=50&newest=true",
    "/api/v1/jobs?state=ready&queue=billing&limit=50", "/api/v1/jobs?task=work-1&limit=50",
    "/api/v1/jobs?state=dead&error=OSError", "/api/v1/jobs/{id}", "/api/v1/jobs/{id}/explain", "/api/v1/queues",
    "/api/v1/lanes?limit=50", "/api/v1/workers", "/api/v1/schedules", "/api/v1/plan", "/api/v1/stats",
    "/api/v1/stats/totals", "/api/v1/stats/recent", "/api/v1/stats/series", "/api/v1/stats/minutes", "/api/v1/stats/history",
    "/api/v1/stats/tasks", "/api/v1/stats/queues", "/api/v1/stats/errors",
)  # fmt: skip
PAGES = (
    "/", "/jobs", "/jobs?q=state:dead", "/jobs?q=task:work-1", "/jobs/{id}", "/errors", "/lanes", "/workers", "/schedules",
    "/history",
)  # fmt: skip


def fill(app: App) -> str:
    """Fill a store; return the id of a job that waits."""
    tasks = [app.task(name=f"work-{number}", queue=queue)(_work) for number, queue in enumerate(QUEUES)]
    for task in tasks:
        task.enqueue_many((n,) for n in range(DEAD // len(tasks)))
    left, error = DEAD, Dead(ErrorInfo(kind="OSError", message="the disk is full", traceback="a traceback " * 40))
    while left:
        claims = app.store.exchange("bench", [], [ClaimRequest(queue, 1000) for queue in QUEUES], 1000).claims
        app.store.exchange("bench", [Settled(claim, (error,), 1, 2) for claim in claims], [], 0)
        left -= len(claims)
    for task in tasks:
        task.enqueue_many((n,) for n in range(WAITING // len(tasks)))
    return app.inspect.jobs("ready", limit=1)[0].id


def _work(number: int) -> None: ...


def reads(where: Path) -> None:
    """Both stores, one after the other."""
    _measure("SQLite", f"sqlite:///{where / 'jobs.db'}")
    if not missing():
        with served(where / "redis") as server:
            _measure("Redis", server.url)


def _measure(name: str, url: str) -> None:
    app = App(url, dead_max=2 * DEAD)
    id_ = fill(app)
    table = Table(f"reads with {WAITING:,} waiting and {DEAD:,} dead on {name}, milliseconds", "", "median", "most")
    asyncio.run(_ask(app, id_, table))
    app.close()


async def _ask(app: App, id_: str, table: Table) -> None:
    transport = httpx.ASGITransport(dashboard(app), client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080", trust_env=False, timeout=60) as client:
        for path in (*READS, *PAGES):
            spent: list[float] = []
            for _ in range(TIMES):
                begun = time.perf_counter()
                answer = await client.get(path.replace("{id}", id_))
                spent.append(1000 * (time.perf_counter() - begun))
            said = "" if answer.status_code in (200, 503) else f" ({answer.status_code})"
            table.row(path + said, percentile(spent, 0.5), max(spent))


PARTS = {"reads": reads}
