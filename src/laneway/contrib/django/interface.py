"""Django's tasks framework, wherever it is: `django.tasks` since Django 6, the package `django_tasks` before.

Enters: whichever of the two is installed.  Leaves: its names.
"""

# pyright: reportMissingModuleSource=false
# Django 5.2 is what developers have installed; the types are of Django 6.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from laneway.errors import ConfigError

if TYPE_CHECKING:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    AnyTask: TypeAlias = Task[..., Any]
    AnyContext: TypeAlias = TaskContext[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    try:
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import Task as AnyTask
        from django.tasks.base import TaskContext as AnyContext
        from django.tasks.base import TaskError, TaskResultStatus
        from django.tasks.base import TaskResult as AnyResult
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
        from django.utils.json import normalize_json
    except ModuleNotFoundError:  # Django 5.2
        try:
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import Task as AnyTask
            from django_tasks.base import TaskContext as AnyContext
            from django_tasks.base import TaskError, TaskResultStatus
            from django_tasks.base import TaskResult as AnyResult
            from django_tasks.exceptions import InvalidTaskError as InvalidTask
            from django_tasks.exceptions import TaskResultDoesNotExist
            from django_tasks.signals import task_enqueued, task_finished, task_started
            from django_tasks.utils import normalize_json
        except ModuleNotFoundError as missing:
            raise ConfigError("Django's tasks need Django 6, or the package django-tasks: pip install django-tasks") from missing

__all__ = [
    "AnyContext", "AnyResult", "AnyTask", "BaseTaskBackend", "InvalidTask", "TaskError", "TaskResultDoesNotExist",
    "TaskResultStatus", "normalize_json", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip
