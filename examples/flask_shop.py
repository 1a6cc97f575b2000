"""A shop with Flask and Flask-SQLAlchemy: an order and the job that charges it are one transaction, in one database.

flask --app examples/flask_shop.py run                       the web program; the dashboard is at /jobs/
gunicorn --chdir examples "flask_shop:create_app()"          the same, by a server for production
flask --app examples/flask_shop.py laneway worker            a fleet of workers, in other processes
python examples/flask_shop.py                                all in one process, to try it out

LANEWAY_URL names the database. TRACES=spans.jsonl writes spans of requests and jobs, SENTRY_DSN sends errors.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from flask import Flask, abort, current_app, g, redirect, request, session
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from laneway import Retry
from laneway.contrib.flask import Laneway


class Base(DeclarativeBase):
    """What all tables share."""


db = SQLAlchemy(model_class=Base)
jobs = Laneway()


class Order(db.Model):  # type: ignore[misc, name-defined] - made at run time
    """What a customer wants, and whether it is paid."""

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[int] = mapped_column(index=True)
    cents: Mapped[int]
    receipt: Mapped[int | None] = mapped_column(default=None)  #: 1 for the customer's first charge, then 2, …


# -- jobs --------------------------------------------------------------------------------------------------------


@jobs.task(lane="customer", keep_result=3600, retry=Retry(times=0))
def charge(customer: int, order_id: int) -> str:
    """Take money: one customer's charges run one at a time, in order. A run after a crash charges nothing twice."""
    order = db.session.get_one(Order, order_id)
    if order.cents < 0:
        raise ValueError(f"{order.cents} cents cannot be charged")
    if order.receipt is None:
        charged = select(func.count()).where(Order.customer == customer, Order.receipt.is_not(None))
        order.receipt = 1 + (db.session.scalar(charged) or 0)
        db.session.commit()
    return f"charged customer {customer} {order.cents / 100:.2f} {current_app.config['CURRENCY']}"


# -- requests ----------------------------------------------------------------------------------------------------


def start() -> tuple[dict[str, Any], int]:
    """Take an order: the request is over before the bank was asked."""
    given = request.get_json()
    with jobs.transaction(db.session):
        order = Order(customer=int(given["customer"]), cents=int(given["cents"]))
        db.session.add(order)
        db.session.flush()  # gives it its id
        job = charge.enqueue(order.customer, order.id)
        if order.cents > 100_000:
            abort(422, "too much")  # nothing is committed: neither the order nor its job
        db.session.commit()
    return {"id": job.id, "order": order.id}, 202


def show(id_: str) -> dict[str, Any]:
    """Say how a charge stands, in any process: the id is enough."""
    return jobs.status_or_404(id_)


def log_in() -> Any:
    """Ask for the password, or take it."""
    if request.method == "POST" and request.form.get("password") == current_app.config["PASSWORD"]:
        session["user"] = "boss"
        return redirect("/jobs/")
    return '<form method="post">Password: <input name="password" type="password"> <button>Log in</button></form>'


def operator() -> Any:
    """Let users act who have logged in; send others to the login page."""
    if "user" not in session:
        return redirect("/login")
    g.user = session["user"]
    return "act"


# -- the program -------------------------------------------------------------------------------------------------


def create_app() -> Flask:
    """Make the web program; `flask`, gunicorn and workers call it."""
    app = Flask(__name__, instance_path=str(Path.cwd()))
    here = f"sqlite:///{Path(tempfile.gettempdir(), 'laneway-flask-shop.db')}"
    app.config.update(
        CURRENCY="EUR", SECRET_KEY=os.environ.get("SECRET_KEY", "of a shop that sells nothing"),
        PASSWORD=os.environ.get("PASSWORD", "secret"), SQLALCHEMY_DATABASE_URI=os.environ.get("LANEWAY_URL") or here,
    )  # fmt: skip
    db.init_app(app)
    jobs.init_app(app)
    with app.app_context():
        db.create_all()
    app.add_url_rule("/charges", view_func=start, methods=["POST"])
    app.add_url_rule("/charges/<id_>", view_func=show)
    app.add_url_rule("/login", view_func=log_in, methods=["GET", "POST"])
    app.register_blueprint(jobs.dashboard(auth=operator), url_prefix="/jobs")
    instrument(app)
    return app


def instrument(app: Flask) -> None:
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
        serve = app.wsgi_app

        def traced(environ: Any, respond: Any) -> Any:
            with trace.get_tracer("shop").start_as_current_span(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"):
                return serve(environ, respond)

        app.wsgi_app = traced  # type: ignore[method-assign]

    if dsn := os.environ.get("SENTRY_DSN"):
        import sentry_sdk  # noqa: PLC0415

        from laneway.contrib import sentry  # noqa: PLC0415

        sentry_sdk.init(dsn)
        sentry.instrument(jobs)


if __name__ == "__main__":
    from laneway import Worker

    web = create_app().test_client()
    job_id = web.post("/charges", json={"customer": 7, "cents": 450}).get_json()["id"]
    print("before:", web.get(f"/charges/{job_id}").get_json()["state"])
    Worker(jobs).run(burst=True)
    print("after:", web.get(f"/charges/{job_id}").get_json()["result"])
