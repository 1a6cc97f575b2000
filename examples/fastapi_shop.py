"""A shop with FastAPI: requests enqueue, a worker runs, another request shows the state and the result.

uvicorn --app-dir examples fastapi_shop:api              the web program; the dashboard is at /jobs
laneway worker examples/fastapi_shop.py                  a fleet of workers, in other processes
python examples/fastapi_shop.py                          both in one process, to try it out

LANEWAY_URL names the store. TRACES=spans.jsonl writes spans of requests and jobs, SENTRY_DSN sends errors.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException

from laneway import App, JobHandle, Retry, current_job
from laneway.contrib.fastapi import lifespan
from laneway.errors import UnknownJob
from laneway.web import dashboard

jobs = App(os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-fastapi-')}/shop.db")
api = FastAPI(title="A shop", lifespan=lifespan(jobs))
api.mount("/jobs", dashboard(jobs, read_only=True))


# -- jobs --------------------------------------------------------------------------------------------------------


@jobs.lifespan
async def open_bank() -> AsyncIterator[dict[str, Any]]:
    """Open what all runs of a worker share: here a pool of HTTP connections would stand."""
    yield {"bank": {"name": "First Bank"}}


@jobs.task(lane="customer", keep_result=3600, retry=Retry(times=2, backoff=0.1))
async def charge(customer: int, cents: int) -> str:
    """Take money: one customer's charges run one at a time, in order."""
    if cents < 0:
        raise ValueError(f"{cents} cents cannot be charged")
    bank = current_job().resources.get("bank", {"name": "nobody"})
    return f"{bank['name']} charged customer {customer} {cents / 100:.2f}"


# -- requests ----------------------------------------------------------------------------------------------------


@api.post("/charges", status_code=202)
async def start(customer: int, cents: int) -> dict[str, str]:
    """Enqueue: the request is over before the bank was asked."""
    job = await charge.aenqueue(customer, cents)
    return {"id": job.id}


@api.get("/charges/{id_}")
async def show(id_: str) -> dict[str, Any]:
    """Say how a charge stands, in any process: the id is enough."""
    job: JobHandle[Any] = jobs.job(id_)
    try:
        found = await job.ainfo()
    except UnknownJob as error:
        raise HTTPException(404, str(error)) from None
    result = await job.aresult(timeout=1) if found.state == "done" else None
    return {**found.as_dict(), "result": result}


# -- what operators plug in --------------------------------------------------------------------------------------


def instrument() -> None:
    """Trace requests and jobs, and send errors, if the environment asks for it."""
    if path := os.environ.get("TRACES"):
        from opentelemetry import trace  # noqa: PLC0415 - only who traces needs it
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor  # noqa: PLC0415

        from laneway.contrib import opentelemetry  # noqa: PLC0415

        provider = TracerProvider()
        lines = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - it is open as long as the program runs
        written = ConsoleSpanExporter(out=lines, formatter=lambda span: span.to_json(indent=None) + "\n")
        provider.add_span_processor(SimpleSpanProcessor(written))
        trace.set_tracer_provider(provider)
        opentelemetry.instrument(jobs)

        @api.middleware("http")
        async def traced(request: Any, call_next: Any) -> Any:
            with trace.get_tracer("shop").start_as_current_span(f"{request.method} {request.url.path}"):
                return await call_next(request)

    if dsn := os.environ.get("SENTRY_DSN"):
        import sentry_sdk  # noqa: PLC0415

        from laneway.contrib import sentry  # noqa: PLC0415

        sentry_sdk.init(dsn)
        sentry.instrument(jobs)


instrument()


async def main() -> None:
    """Ask, work, and ask again."""
    import httpx  # noqa: PLC0415 - only here

    from laneway import Worker  # noqa: PLC0415

    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
        id_ = (await client.post("/charges", params={"customer": 7, "cents": 450})).json()["id"]
        print("before:", (await client.get(f"/charges/{id_}")).json()["state"])
        await asyncio.to_thread(lambda: Worker(jobs).run(burst=True))
        print("after:", (await client.get(f"/charges/{id_}")).json()["result"])


if __name__ == "__main__":
    asyncio.run(main())
