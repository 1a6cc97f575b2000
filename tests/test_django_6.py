"""Laneway with Django 6, which needs Python 3.12: its tasks framework, and what a project meets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from djangobench import in_postgres, looked, ran
from test_django import check_boxed, check_own_tests, check_pooled, check_tasks

pytest.importorskip("django")
pytest_plugins = ("django_fixtures",)
pytestmark = pytest.mark.timeout(600)  # the environment may have to be made


def test_the_tasks_of_django_6(place: dict[str, str], six: str) -> None:
    check_tasks(looked("tasked", python=six, **place))


def test_the_own_tests_of_djangos_tasks_pass(place: dict[str, str], six: str) -> None:
    own = Path(six).parent.parent / "own"
    if not own.exists():
        pytest.skip("the source of Django could not be fetched")
    desk = {"DJANGO_SETTINGS_MODULE": "django_desk.settings", **place}
    said = ran("-m", "django_desk.interface", str(own), python=six, **desk)
    [number] = re.findall(r"Ran (\d+) tests", said)
    assert int(number) > 70


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_project_with_django_6(place: dict[str, str], tmp_path: Path, jobs: str, six: str) -> None:
    check_own_tests(in_postgres("example_6"), tmp_path, python=six)
    check_pooled(place, six)
    check_boxed(place, {"URL": jobs, "ATOMIC": "outbox"}, six)
