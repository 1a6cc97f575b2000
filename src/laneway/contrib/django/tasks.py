"""Django's tasks run by Laneway: `TASKS = {"default": {"BACKEND": "laneway.contrib.django.tasks.LanewayBackend"}}`.

Every app's `tasks.py` is imported at start, also in projects that do not use Django's tasks: so this module loads what it offers
only on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.contrib.django.task_backend import LanewayBackend, LanewayTask, task

__all__ = ["LanewayBackend", "LanewayTask", "task"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from laneway.contrib.django import task_backend  # noqa: PLC0415 - it needs Django 6, or the package django-tasks

    return getattr(task_backend, name)
