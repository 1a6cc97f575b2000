"""Requests that write rows and enqueue in one transaction: sessions of SQLAlchemy and SQLModel, sync and async, in FastAPI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlmodel")
pytest.importorskip("aiosqlite")
import sqlmodel
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlmodel.ext.asyncio.session import AsyncSession as AsyncSQLModelSession

import postgresbench
from laneway import App, current_job
from laneway.contrib.fastapi import lifespan
from laneway.errors import BadOption
from workbench import burst


class Order(sqlmodel.SQLModel, table=True):
    """A row of the program's."""

    __tablename__ = "fastapi_orders"
    id: int | None = sqlmodel.Field(default=None, primary_key=True)
    total: int
    shipped: int = 0


DATABASES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/shop.db",
    "postgres": lambda _: postgresbench.renewed().url,
}
SYNC = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
ASYNC = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
ASYNCPG = {**ASYNC, "postgresql": "postgresql+asyncpg"}


def address(url: str, drivers: dict[str, str]) -> str:
    scheme, _, rest = url.partition("://")
    return f"{drivers[scheme]}://{rest}"


class Shop:
    """A database with orders and jobs, and the tasks of a program."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.jobs = App(url)
        self.engine = create_engine(address(url, SYNC), poolclass=NullPool)
        Order.metadata.drop_all(self.engine)
        Order.metadata.create_all(self.engine)

        @self.jobs.task
        def ship(order: int) -> None:
            with Session(self.engine) as session, session.begin():
                session.get_one(Order, order).shipped += 1
                current_job().finish(session)

        self.ship = ship

    def orders(self) -> int:
        with Session(self.engine) as session:
            return int(session.scalar(text("select count(*) from fastapi_orders")) or 0)

    def shipped(self) -> list[int]:
        with Session(self.engine) as session:
            return list(session.scalars(text("select shipped from fastapi_orders")))

    def agree(self, number: int) -> bool:
        """Say whether there are so many orders, and a job for each."""
        return (self.orders(), sum(self.jobs.inspect.counts().values())) == (number, number)


@pytest.fixture(params=DATABASES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(DATABASES[request.param](tmp_path))
    yield made
    made.jobs.close()
    Order.metadata.drop_all(made.engine)


def sync_program(shop: Shop, kind: Any) -> FastAPI:
    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[dict[str, Any]]:
        engine = create_engine(address(shop.url, SYNC))
        yield {"engine": engine}
        engine.dispose()

    def get_session(request: Request) -> Iterator[Any]:
        with kind(request.state.engine) as session:
            yield session

    api = FastAPI(lifespan=lifespan(shop.jobs, own))

    @api.post("/orders")
    def write(total: int, session: Any = Depends(get_session)) -> str:  # noqa: B008 - as FastAPI has it
        with shop.jobs.transaction(session):
            session.add(order := Order(total=total))
            session.flush()
            job = shop.ship.enqueue(order.id)  # type: ignore[arg-type]
            assert job.state() == "gone", "nobody else sees it before the commit"
            if total < 0:
                raise HTTPException(422)
            session.commit()
        return job.state()

    @api.post("/using")
    def write_using(total: int, session: Any = Depends(get_session)) -> str:  # noqa: B008
        session.add(order := Order(total=total))
        session.flush()
        job = shop.ship.using(connection=session).enqueue(order.id)  # type: ignore[arg-type]
        if total >= 0:
            session.commit()
        return job.state()  # without the commit both are gone with the session

    return api


def async_program(shop: Shop, kind: Any, drivers: dict[str, str]) -> FastAPI:
    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[dict[str, Any]]:
        engine = create_async_engine(address(shop.url, drivers))
        yield {"engine": engine}
        await engine.dispose()

    async def get_session(request: Request) -> AsyncIterator[Any]:
        async with kind(request.state.engine, expire_on_commit=False) as session:
            yield session

    api = FastAPI(lifespan=lifespan(shop.jobs, own))

    @api.post("/orders")
    async def write(total: int, session: Any = Depends(get_session)) -> str:  # noqa: B008
        async with shop.jobs.transaction(session):
            session.add(order := Order(total=total))
            await session.flush()
            job = await shop.ship.aenqueue(order.id)  # type: ignore[arg-type]
            assert await job.astate() == "gone", "nobody else sees it before the commit"
            if total < 0:
                raise HTTPException(422)
            await session.commit()
        return await job.astate()

    @api.post("/using")
    async def write_using(total: int, session: Any = Depends(get_session)) -> str:  # noqa: B008
        session.add(order := Order(total=total))
        await session.flush()
        job = await shop.ship.using(connection=session).aenqueue(order.id)  # type: ignore[arg-type]
        if total >= 0:
            await session.commit()
        return await job.astate()

    return api


PROGRAMS: dict[str, Callable[[Shop], FastAPI]] = {
    "sqlalchemy": lambda shop: sync_program(shop, Session),
    "sqlmodel": lambda shop: sync_program(shop, sqlmodel.Session),
    "async-sqlalchemy": lambda shop: async_program(shop, AsyncSession, ASYNCPG),
    "async-sqlmodel": lambda shop: async_program(shop, AsyncSQLModelSession, ASYNC),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_row_and_its_job_are_both_there_or_neither(shop: Shop, kind: str) -> None:
    with TestClient(PROGRAMS[kind](shop)) as client:
        assert client.post("/orders", params={"total": 5}).json() == "ready"
        assert shop.agree(1)
        assert client.post("/orders", params={"total": -5}).status_code == 422
        assert shop.agree(1), "the request was refused after both were written"
        assert client.post("/using", params={"total": 5}).json() == "ready"
        assert client.post("/using", params={"total": -5}).json() == "gone"
        assert shop.agree(2)
        burst(shop.jobs)
    assert shop.shipped() == [1, 1]


def test_a_block_in_a_plain_dependency_is_reported_since_it_does_not_reach_the_endpoint(shop: Shop) -> None:
    def get_session() -> Iterator[Session]:
        with Session(shop.engine) as session, shop.jobs.transaction(session):
            yield session

    async def get_async_session() -> AsyncIterator[Session]:
        with Session(shop.engine) as session, shop.jobs.transaction(session):
            yield session

    api = FastAPI()

    @api.post("/plain")
    def plain(session: Any = Depends(get_session)) -> str:  # noqa: B008
        return shop.ship.enqueue(1).state()

    @api.post("/async")
    def in_async(session: Any = Depends(get_async_session)) -> str:  # noqa: B008
        return shop.ship.enqueue(1).state()

    with pytest.raises(BadOption, match="another context"):
        TestClient(api).post("/plain")
    assert TestClient(api).post("/async").json() == "gone"
