"""Finds the tasks of a Django project: sets Django up if that was not done, and imports every app's `tasks.py`.

Imported, not called: it is one of the modules that the project's app loads before its tasks are needed.
"""

from __future__ import annotations

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

__all__: list[str] = []

if not apps.ready and not apps.loading:
    django.setup()
if apps.ready:
    autodiscover_modules("tasks")
