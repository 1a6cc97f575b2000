"""Orders with FastAPI and SQLAlchemy: an order and the job that ships it are one transaction, and a page shows how far it is.

uvicorn --app-dir examples fastapi_orders:api            the web program: http://127.0.0.1:8000/, the dashboard is at /jobs
laneway worker examples/fastapi_orders.py                a fleet of workers, in other processes
python examples/fastapi_orders.py                        both in one process, to try it out

LANEWAY_URL names the database, SQLite or PostgreSQL: it has the orders and the jobs. SECRET signs the cookies. An item
takes SECONDS to pack. Beside laneway[fastapi] it needs sqlalchemy and itsdangerous, which signs cookies for Starlette.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel
from sqlalchemy import Engine, ForeignKey, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from starlette.middleware.sessions import SessionMiddleware

from laneway import App, current_job
from laneway.contrib.fastapi import JobStatus, dashboard, job_events, job_status, lifespan

URL = os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-orders-')}/shop.db"
SECRET = os.environ.get("SECRET") or secrets.token_hex()
SECONDS = float(os.environ.get("SECONDS", "0.2"))
jobs = App(URL)


# -- tables ------------------------------------------------------------------------------------------------------


class Base(DeclarativeBase):
    """All tables of the shop."""


class Order(Base):
    """What a customer has ordered. `job` is the job that ships it."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    items: Mapped[int]
    job: Mapped[str] = mapped_column(default="")


class Shipment(Base):
    """What was shipped, once for each order: nothing but the job's transaction sees to that."""

    __tablename__ = "shipments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))


def connect() -> Engine:
    """Return an engine: one for the web program, and one for each worker."""
    return create_engine(URL.replace("postgresql://", "postgresql+psycopg://", 1))


# -- jobs --------------------------------------------------------------------------------------------------------


@jobs.lifespan
def database() -> Iterator[dict[str, Any]]:
    """Give every worker, and every isolated run, connections of its own."""
    engine = connect()
    yield {"engine": engine}
    engine.dispose()


class Parcel(BaseModel):
    """What the task returns."""

    order: int
    items: int


@jobs.task(lane="customer", keep_result=3600)
def ship(customer: str, order: int) -> Parcel:  # noqa: ARG001 - its lane
    """Pack, and write the shipment in the transaction that finishes the job: both are there, or neither."""
    job = current_job()
    with Session(job.resources["engine"]) as session:
        items = session.scalars(select(Order.items).where(Order.id == order)).one()
    for packed in range(items + 1):
        job.progress(packed, items)
        time.sleep(SECONDS)
    parcel = Parcel(order=order, items=items)
    with Session(job.resources["engine"]) as session, session.begin():
        session.add(Shipment(order_id=order))
        job.finish(session, parcel)
    return parcel


# -- the web program ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_database(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open what the requests need; a real program leaves the tables to Alembic."""
    engine = connect()
    Base.metadata.create_all(engine)
    yield {"engine": engine}
    engine.dispose()


api = FastAPI(title="Orders", lifespan=lifespan(jobs, open_database))
api.add_middleware(SessionMiddleware, secret_key=SECRET, same_site="strict")


def get_session(request: Request) -> Iterator[Session]:
    """Lend a session to a request. What is not committed when it ends is rolled back."""
    with Session(request.state.engine) as session:
        yield session


def get_user(request: Request) -> str:
    """Return who is logged in."""
    if not (user := request.session.get("user")):
        raise HTTPException(401, "log in first: POST /login")
    return str(user)


DB = Annotated[Session, Depends(get_session)]
User = Annotated[str, Depends(get_user)]


class Login(BaseModel):
    """Who somebody says they are. A real program asks for a password."""

    user: str


class NewOrder(BaseModel):
    """What is ordered."""

    items: int


@api.post("/login", status_code=204)
def log_in(login: Login, request: Request) -> Response:
    """Let somebody in."""
    request.session["user"] = login.user
    return Response(status_code=204)


@api.post("/orders", status_code=202)
def create_order(new: NewOrder, user: User, session: DB) -> dict[str, int | str]:
    """Write an order and enqueue its job in one transaction."""
    order = Order(customer=user, items=new.items)
    with jobs.transaction(session):
        session.add(order)
        session.flush()  # gives the order its number
        order.job = ship.enqueue(user, order.id).id
        if new.items > 100:
            raise HTTPException(422, "so much is not there")  # neither the order nor its job
        session.commit()  # in the block: sleeping workers are woken
    return {"order": order.id, "job": order.job}


def get_job(order: int, user: User, request: Request) -> str:
    """Return the job of an order of the user's: nobody sees those of others.

    The session of a dependency stays open as long as the answer, and a stream is a long one: this one is closed at once.
    """
    with Session(request.state.engine) as session:
        job = session.scalars(select(Order.job).where(Order.id == order, Order.customer == user)).first()
    if job is None:
        raise HTTPException(404, "you have no such order")
    return job


OwnJob = Annotated[str, Depends(get_job)]


@api.get("/orders/{order}")
async def show_order(job: OwnJob) -> JobStatus[Parcel]:
    """Say how an order stands."""
    return await job_status(ship, job)


@api.get("/orders/{order}/events", response_class=Response)
async def follow_order(job: OwnJob) -> Response:
    """Send how an order stands, whenever that changes."""
    return await job_events(ship, job)


@api.get("/", include_in_schema=False)
def show_page() -> Response:
    """Show a page that orders, and follows the order."""
    return FileResponse(Path(__file__).with_name("fastapi_orders.html"))


# -- the dashboard -----------------------------------------------------------------------------------------------


def staff(user: User) -> tuple[Literal["act", "read"], str]:
    """Say who may do what: "boss" may act, all others who are logged in may look."""
    return ("act" if user == "boss" else "read"), user


api.include_router(dashboard(jobs, staff, secret=SECRET), prefix="/jobs")


def main() -> None:
    """Order, work, and ask."""
    from fastapi.testclient import TestClient  # noqa: PLC0415 - only here

    from laneway import Worker  # noqa: PLC0415

    with TestClient(api, base_url="http://localhost") as client:
        client.post("/login", json={"user": "ada"})
        order = client.post("/orders", json={"items": 2}).json()["order"]
        print("before:", client.get(f"/orders/{order}").json()["state"])
        Worker(jobs).run(burst=True)
        print("after:", client.get(f"/orders/{order}").json()["result"])
        print("too much:", client.post("/orders", json={"items": 1000}).json()["detail"])
        with Session(engine := connect()) as session:
            print("orders:", session.scalar(select(func.count(Order.id))), "jobs:", sum(jobs.inspect.counts().values()))
        engine.dispose()


if __name__ == "__main__":
    main()
