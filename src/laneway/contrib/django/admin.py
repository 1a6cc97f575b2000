"""Links from Django's admin to the dashboard's pages, where `urls.py` includes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from laneway.contrib.django.models import DeadJobs, ScheduleList
from laneway.contrib.django.project import read_settings

__all__ = ["DashboardLink"]

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin  # it takes no parameter, its type does


class DashboardLink(ModelAdmin):
    """An entry of the admin's list that leads elsewhere."""

    page = ""  #: of the dashboard

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show the entry to those who may use the dashboard."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django gives it
        """Return whether a user may use the dashboard, and there is one."""
        permission, user = read_settings().permission, cast("Any", request.user)
        may = user.has_perm(permission) if permission else getattr(user, "is_staff", False)
        return bool(may) and _address() is not None

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """Nothing is added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nothing is changed here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nothing is deleted here."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:  # noqa: ARG002
        """Lead to the page."""
        return HttpResponseRedirect(f"{_address() or ''}{self.page}")


def _address() -> str | None:
    try:
        return reverse("laneway:dashboard")
    except NoReverseMatch:
        return None


@admin.register(DeadJobs)
class DeadJobsLink(DashboardLink):
    """To the dead jobs."""

    page = "jobs?state=dead"


@admin.register(ScheduleList)
class SchedulesLink(DashboardLink):
    """To the schedules."""

    page = "schedules"
