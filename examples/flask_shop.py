"""A shop with Flask: requests enqueue, a worker runs, another request shows the state and the result.

flask --app examples/flask_shop.py run                   the web program
laneway worker examples/flask_shop.py                    a fleet of workers, in other processes
laneway dashboard examples/flask_shop.py                 the dashboard, a process of its own
python examples/flask_shop.py                            all in one process, to try it out

LANEWAY_URL names the store. TRACES=spans.jsonl writes spans of requests and jobs, SENTRY_DSN sends errors.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flask import Flask, abort, current_app, request

from laneway import App, JobContext, Retry
from laneway.errors import UnknownJob

app = Flask(__name__)
app.config["CURRENCY"] = "EUR"
jobs = App(os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-flask-')}/shop.db")


# -- jobs --------------------------------------------------------------------------------------------------------


@jobs.middleware
def in_flask(_: JobContext) -> Iterator[None]:
    """Give every run the context of the Flask app, for its configuration and extensions."""
    with app.app_context():
        yield


@jobs.task(lane="customer", keep_result=3600, retry=Retry(times=0))
def charge(customer: int, cents: int) -> str:
    """Take money: one customer's charges run one at a time, in order."""
    if cents < 0:
        raise ValueError(f"{cents} cents cannot be charged")
    return f"charged customer {customer} {cents / 100:.2f} {current_app.config['CURRENCY']}"


# -- requests ----------------------------------------------------------------------------------------------------


@app.post("/charges")
def start() -> tuple[dict[str, str], int]:
    """Enqueue: the request is over before the bank was asked."""
    given = request.get_json()
    return {"id": charge.enqueue(int(given["customer"]), int(given["cents"])).id}, 202


@app.get("/charges/<id_>")
def show(id_: str) -> dict[str, Any]:
    """Say how a charge stands, in any process: the id is enough."""
    job = jobs.job(id_)
    try:
        found = job.info()
    except UnknownJob as error:
        abort(404, str(error))
    return {**found.as_dict(), "result": job.result(timeout=1) if found.state == "done" else None}


if path := os.environ.get("TRACES"):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    from laneway.contrib import opentelemetry

    provider = TracerProvider()
    lines = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - it is open as long as the program runs
    written = ConsoleSpanExporter(out=lines, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(written))
    trace.set_tracer_provider(provider)
    opentelemetry.instrument(jobs)
    serve = app.wsgi_app

    def traced(environ: Any, respond: Any) -> Any:
        """Serve a request inside a span."""
        with trace.get_tracer("shop").start_as_current_span(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"):
            return serve(environ, respond)

    app.wsgi_app = traced  # type: ignore[method-assign]

if dsn := os.environ.get("SENTRY_DSN"):
    import sentry_sdk

    from laneway.contrib import sentry

    sentry_sdk.init(dsn)
    sentry.instrument(jobs)


if __name__ == "__main__":
    from laneway import Worker

    client = app.test_client()
    job_id = client.post("/charges", json={"customer": 7, "cents": 450}).get_json()["id"]
    print("before:", client.get(f"/charges/{job_id}").get_json()["state"])
    Worker(jobs).run(burst=True)
    print("after:", client.get(f"/charges/{job_id}").get_json()["result"])
