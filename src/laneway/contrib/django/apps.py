"""The Django app: finds the tasks when Django starts, checks the settings, and makes its tables when Django does."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

__all__ = ["LanewayConfig"]


class LanewayConfig(AppConfig):
    """`laneway.contrib.django` in INSTALLED_APPS."""

    name = "laneway.contrib.django"
    label = "laneway"
    verbose_name = "Laneway"

    def ready(self) -> None:
        """Import every app's `tasks.py`: a task that was not imported cannot be enqueued by name, nor shown."""
        from laneway.contrib.django.checks import check_settings  # noqa: PLC0415 - it needs apps that are loaded
        from laneway.contrib.django.project import make_tables  # noqa: PLC0415 - the same

        register(check_settings, "laneway")
        post_migrate.connect(make_tables, sender=self)
        autodiscover_modules("tasks")
