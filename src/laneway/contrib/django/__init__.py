"""Laneway in Django: `INSTALLED_APPS = [..., "laneway.contrib.django"]`.

The project's one app is made of the setting `LANEWAY`. Tasks are declared in every Django app's `tasks.py`::

    from laneway.contrib.django import app

    @app.task
    def ship(order_id: int) -> None: ...

`manage.py laneway worker` runs them; inside of `atomic()` an enqueue takes part in the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.desk.app import App

    app: App  #: the project's app, made on first use

__all__ = ["app"]


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from laneway.contrib.django.project import project_app  # noqa: PLC0415 - Django imports this package before it is set up

    return project_app()
