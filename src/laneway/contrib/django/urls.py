"""The dashboard's addresses: `path("jobs/", include("laneway.contrib.django.urls"))`."""

from __future__ import annotations

from django.urls import path

from laneway.contrib.django.views import dashboard

__all__ = ["app_name", "urlpatterns"]

app_name = "laneway"
urlpatterns = [path("", dashboard, name="dashboard"), path("<path:rest>", dashboard, name="page")]
