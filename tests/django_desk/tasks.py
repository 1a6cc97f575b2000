"""Tasks that use Django's database, and tasks of Django's own interface."""
# mypy: disable-error-code=untyped-decorator

import importlib
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection

from laneway import Retry
from laneway.contrib.django import app
from laneway.contrib.django import tasks as backend

plain_task: Any = importlib.import_module("django.tasks" if settings.HAS_TASKS else "django_tasks").task
task: Any = backend.task


def orders() -> Any:
    """Return the manager of the orders."""
    return apps.get_model("orders", "Order").objects


@app.task(keep_result=600)
def count() -> int:
    return int(orders().count())


@app.task(keep_result=600)
async def acount() -> int:
    return int(await orders().acount())


@app.task(keep_result=600, isolate=True)
def count_alone() -> int:
    return int(orders().count())


def session() -> int:
    """Return the number of this connection's session at its server."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@app.task(keep_result=600)
def session_of_a_run() -> int:
    return session()


@app.task(keep_result=600, isolate=True)
def session_alone() -> int:
    return session()


@app.task(keep_result=600, retry=Retry(times=0))
def lose_the_connection() -> int:
    """End the connection from the other side, and use it."""
    orders().count()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    else:
        connection.connection.close()
    return int(orders().count())


@app.task
def note(name: str) -> None:
    """Leave a trace."""
    orders().create(customer=name, total=0)


@app.task
def take(order: Any) -> None:
    """Take what cannot travel."""


@task
def add(a: int, b: int) -> int:
    return a + b


@task(takes_context=True)
def attempt(context: Any, words: list[str]) -> list[Any]:
    return [context.attempt, context.task_result.id, context.task_result.args, words]


@task
async def aadd(a: int, b: int) -> int:
    return a + b + 0 * int(await orders().acount())


@task
def fail() -> None:
    raise KeyError("no")


@task(lane="customer", retry=Retry(times=2, backoff=0), takes_context=True, unique=True)
def laned(context: Any, customer: str, number: int) -> str:
    if context.attempt == 1:
        raise ValueError("again")
    return f"{customer} {number}"


@plain_task(backend="dummy")
def elsewhere() -> None:
    """Declared for another backend."""
