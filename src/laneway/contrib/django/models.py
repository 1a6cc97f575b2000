"""Entries of Django's admin that lead to the dashboard. There are no tables behind them."""

from __future__ import annotations

from django.db import models

__all__ = ["DeadJobs", "NoRows", "ScheduleList"]


class NoRows(models.Manager[models.Model]):
    """Finds nothing, and asks no database: `dumpdata` reads every model."""

    def get_queryset(self) -> models.QuerySet[models.Model]:
        """Return no rows."""
        return super().get_queryset().none()


class AdminEntry(models.Model):
    """No table, and no rights of its own."""

    objects = NoRows()

    class Meta:
        """What all entries have in common."""

        abstract = True
        managed = False
        default_permissions = ()
        base_manager_name = "objects"


class DeadJobs(AdminEntry):
    """Jobs that failed for good."""

    class Meta(AdminEntry.Meta):
        """How it is shown."""

        verbose_name_plural = "dead jobs"


class ScheduleList(AdminEntry):
    """Calls that run by themselves."""

    class Meta(AdminEntry.Meta):
        """How it is shown."""

        verbose_name_plural = "schedules"
