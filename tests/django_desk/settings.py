"""The example's settings, and more apps. DESK_LANEWAY is the setting LANEWAY, as JSON."""

import importlib
import importlib.util
import json
import os

globals().update({name: value for name, value in vars(importlib.import_module("shop.settings")).items() if name.isupper()})
INSTALLED_APPS = [*globals()["INSTALLED_APPS"], "django_desk"]
LANEWAY = json.loads(os.environ.get("DESK_LANEWAY", "{}"))
DATABASES = globals()["DATABASES"]
DATABASES["default"]["CONN_MAX_AGE"] = int(os.environ.get("DESK_MAX_AGE", "0"))
DATABASES["default"]["CONN_HEALTH_CHECKS"] = "DESK_HEALTH_CHECKS" in os.environ
if "DESK_POOL" in os.environ:
    DATABASES["default"]["OPTIONS"] = {"pool": json.loads(os.environ["DESK_POOL"])}
if "DESK_OTHER" in os.environ:
    DATABASES["other"] = {**DATABASES["default"], "NAME": os.environ["DESK_OTHER"]}
HAS_TASKS = importlib.util.find_spec("django.tasks") is not None
if not HAS_TASKS:
    INSTALLED_APPS += ["django_tasks"]
TASKS = {
    "default": {"BACKEND": "laneway.contrib.django.tasks.LanewayBackend", "QUEUES": ["default", "mail"]},
    "dummy": {"BACKEND": f"{'django.tasks' if HAS_TASKS else 'django_tasks'}.backends.dummy.DummyBackend"},
}
