"""Laneway in a Django project: what a project meets, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postgresbench
from djangobench import SHOP, environment, in_postgres, looked, ran, run

pytest.importorskip("django")
pytest_plugins = ("django_fixtures",)
PLACE = """
from orders.models import Order
from orders.tasks import ship
ship.enqueue("ada", Order.objects.create(customer="ada", total=1).pk)
"""


@pytest.mark.parametrize("where", ["in memory", "elsewhere", "postgresql"])
def test_the_examples_own_tests_pass(where: str, tmp_path: Path) -> None:
    elsewhere = {"SHOP_JOBS": f"sqlite:///{tmp_path}/jobs.db", "SHOP_ATOMIC": "commit"}
    given = {"in memory": {}, "elsewhere": elsewhere, "postgresql": {}}[where]
    at_once = "1" if where == "elsewhere" else "2"  # copies of a database are apart, but all have one store elsewhere
    check_own_tests(in_postgres("example") if where == "postgresql" else given, tmp_path, at_once)


def check_own_tests(given: dict[str, str], folder: Path, at_once: str = "2", python: str = sys.executable) -> None:
    said = ran("manage.py", "test", "--noinput", "--parallel", at_once, python=python, SHOP_FOLDER=str(folder), **given)
    assert "no issues" in said
    assert re.search(r"Ran [89] tests", said)


# -- the outbox ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_with_an_outbox_rows_go_with_atomic_blocks_and_become_jobs(place: dict[str, str], jobs: str) -> None:
    check_boxed(place, {"URL": jobs, "ATOMIC": "outbox"})


def check_boxed(place: dict[str, str], desk: dict[str, str], python: str = sys.executable) -> None:
    seen = looked("boxed", python=python, DESK_LANEWAY=json.dumps(desk), **place)
    assert seen["missing"].endswith("has no table laneway_outbox: run manage.py migrate")
    assert (seen["created"], seen["rows"], seen["inside"]) == (None, 6, 1)
    assert seen["ran"] == ["async", "at once", "inner", "manual", "many", "more", "outer"]
    assert (seen["left"], seen["checks"]) == (0, [])


def test_a_setting_outside_of_the_code_names_the_outbox(place: dict[str, str], jobs: str) -> None:
    outside = {"LANEWAY_OUTBOX": f"sqlite:///{place['SHOP_FOLDER']}/shop.sqlite3", "LANEWAY_URL": jobs}
    check_boxed({**place, **outside}, {})


def test_jobs_are_in_the_database_that_the_settings_name(place: dict[str, str], tmp_path: Path) -> None:
    other = {"DESK_OTHER": str(tmp_path / "other.sqlite3"), "DESK_LANEWAY": '{"DATABASE": "other"}'}
    seen = looked("aside", **place, **other)
    assert seen == {"left": [["default"]], "url": f"sqlite:///{tmp_path}/other.sqlite3", "tables": seen["tables"]}


@pytest.mark.parametrize("where", ["in memory", "postgresql"])
def test_tests_of_a_project_with_an_outbox_pass(where: str, tmp_path: Path, jobs: str) -> None:
    given = in_postgres("boxed") if where == "postgresql" else {}
    desk = {"DJANGO_SETTINGS_MODULE": "django_desk.settings", "DESK_LANEWAY": json.dumps({"URL": jobs, "ATOMIC": "outbox"})}
    said = ran("-m", "django", "test", "django_desk", "--noinput", SHOP_FOLDER=str(tmp_path), **given, **desk)
    assert re.search(r"Ran 4 tests", said)


# -- connections -----------------------------------------------------------------------------------------------


# Django takes any connection of SQLite for a good one: with CONN_MAX_AGE it would keep a closed one.
@pytest.mark.parametrize(("place", "max_age"), [("sqlite", "0"), ("postgresql", "0"), ("postgresql", "600")], indirect=["place"])
def test_a_lost_connection_fails_one_run_and_no_other(place: dict[str, str], max_age: str) -> None:
    seen = looked("connected", DESK_MAX_AGE=max_age, **place)
    assert seen["states"] == ["done", "dead", "done", "done", "done"]
    assert (seen["alone"], seen["async"]) == ("done", ["done"] * 4)
    assert seen["before"] == seen["after"] == 0
    assert seen["sessions"] <= 8


KEPT: list[dict[str, str]] = [{}, {"DESK_MAX_AGE": "600", "DESK_HEALTH_CHECKS": "1"}]
if importlib.util.find_spec("psycopg_pool"):
    KEPT.append({"DESK_POOL": "true", "DESK_HEALTH_CHECKS": "1"})


def test_a_server_may_be_started_anew() -> None:
    if why := postgresbench.why_not():
        pytest.skip(why)
    server, programs = postgresbench.Server(), []
    port = {"PGPORT": str(server.port)}
    server.ask("CREATE DATABASE shop")
    ran("-m", "django", "migrate", **{**in_postgres("shop"), **port})
    with ExitStack() as stack:
        stack.callback(server.remove)
        for number, kept in enumerate(KEPT):
            server.ask(f"CREATE DATABASE shop_{number} TEMPLATE shop")
            answer = stack.enter_context(tempfile.NamedTemporaryFile())
            place = {**in_postgres(f"shop_{number}"), **port, "DJANGO_SETTINGS_MODULE": "django_desk.settings"}
            command = [sys.executable, "-m", "django_desk.program", "restarted", answer.name]
            made = stack.enter_context(
                subprocess.Popen(
                    command, env=environment(**place, **kept), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=SHOP
                )
            )
            programs.append((made, Path(answer.name)))
        for made, _ in programs:
            assert made.stdout is not None
            assert made.stdout.readline() == "ready\n"
        server.stop()
        server.start()
        for made, answer_file in programs:
            made.communicate("go on\n", timeout=120)
            seen = json.loads(answer_file.read_text(encoding="utf-8"))
            assert seen == {"answers": [201, 1, 1, 1, 201, 2], "failed": []}


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_an_isolated_run_does_not_use_the_pool_of_its_parent(place: dict[str, str]) -> None:
    pytest.importorskip("psycopg_pool")
    check_pooled(place)


def check_pooled(place: dict[str, str], python: str = sys.executable) -> None:
    seen = looked("pooled", python=python, DESK_POOL='{"min_size": 1, "max_size": 1}', **place)
    assert seen == {"ours": 1, "theirs": 3, "shared": 0}


# -- settings and commands -------------------------------------------------------------------------------------


def test_checks_say_what_atomic_means_here(place: dict[str, str]) -> None:
    seen = looked("checked", **place)
    assert seen[:9] == [
        [], ["laneway.W002"], [], [], ["laneway.W002"], ["laneway.W001"], ["laneway.W001"], [], ["laneway.E002"],
    ]  # fmt: skip
    assert seen[9:12] == [["laneway.E002"], seen[10], []]
    assert "is the store itself" in seen[10][0]
    assert seen[12] == ["laneway.W002"]
    assert seen[13:] == [
        ['laneway.E001: LANEWAY has no key \'ULR\'. Did you mean "URL"? Keys: URL, DATABASE, ATOMIC, PERMISSION, DEAD_DAYS, '
         "DEAD_MAX, DEAD_AFTER, ENQUEUE_TIMEOUT, CONNECTIONS, FORMAT_ERROR"],
        ["laneway.E001: LANEWAY[\"ATOMIC\"] = 'perhaps': use one of 'join', 'outbox', 'commit', or leave it out"],
        ["laneway.E001: LANEWAY[\"DATABASE\"] = 'other': DATABASES has no such alias, only default"],
        ["laneway.E001: LANEWAY = 'redis://x': use a dict, such as {\"URL\": \"redis://localhost:6379/0\"}"],
        seen[17], ["laneway.E001: dead_days=-1: use a number greater than 0"],
    ]  # fmt: skip
    assert "nonsense" in seen[17][0]


def test_programs_run_commands(place: dict[str, str]) -> None:
    seen = looked("commanded", **place)
    assert "Order is a model of Django: pass its primary key (order.pk)" in seen["refused"]
    assert seen["inside"] == 0
    assert "django_desk.tasks.count" in seen["listed"]
    assert seen["dumped"] > 0
    assert seen["wrong"].startswith("SystemExit") or "nonsense" in seen["wrong"]


def test_people_type_commands(place: dict[str, str]) -> None:
    ran("manage.py", "shell", "-c", PLACE, **place)
    assert "orders.tasks.ship" in ran("manage.py", "laneway", "jobs", "list", **place)
    said = ran("manage.py", "laneway", "worker", "--burst", "--settings", "shop.settings", **place)
    assert "1 done" in said
    assert "shop.sqlite3" in ran("manage.py", "laneway", "status", "--settings=shop.settings", **place)
    assert "manage.py laneway" in ran("manage.py", "laneway", "--help", **place)
    refused = run(
        "-m", "django", "laneway", "worker", "--burst", DJANGO_SETTINGS_MODULE="django_desk.settings",
        DESK_LANEWAY='{"URL": "redis://localhost:1/0", "ATOMIC": "join"}', **place,
    )  # fmt: skip
    assert (refused.returncode, "laneway.E002" in refused.stderr) == (1, True)
    lost = run("-m", "laneway", "worker", "laneway.contrib.django:app", DJANGO_SETTINGS_MODULE="", **place)
    assert (lost.returncode, lost.stderr) == (
        2, "laneway: DJANGO_SETTINGS_MODULE is not set: run manage.py laneway, or set it, such as to shop.settings\n",
    )  # fmt: skip
    assert "worker stopped" in ran("-m", "laneway", "worker", "laneway.contrib.django:app", "--burst", **place)


@pytest.mark.parametrize("permission", ["", "orders.view_order"])
def test_the_dashboard_is_for_those_who_may(place: dict[str, str], permission: str) -> None:
    seen = looked("shown", DESK_LANEWAY=json.dumps({"PERMISSION": permission} if permission else {}), **place)
    assert seen["nobody"][:2] == [302, 302]
    assert seen["login"] == "/admin/login/?next=/jobs/"
    assert seen["plain"][:2] == [403, 403]
    refused, shown = ([403, 403, 200], [False, False]), ([200, 200, 200], [True, True])
    assert (seen["staff"], seen["staff sees"]) == tuple(refused if permission else shown)
    assert (seen["allowed"], seen["allowed sees"]) == ([200, 200, 200], [True, True])
    assert seen["links"] == ["/jobs/jobs?state=dead", "/jobs/schedules"]
    assert seen["followed"] == [200, 200]


# -- Django's tasks --------------------------------------------------------------------------------------------


def check_tasks(seen: dict[str, Any]) -> None:
    done = ("add", "attempt", "aadd", "laned", "again", "async")
    assert seen["equal"]
    assert seen["status"] == {**dict.fromkeys(done, "SUCCESSFUL"), "fail": "FAILED", "later": "READY"}
    id_ = seen["values"]["attempt"][1]
    assert seen["values"] == {
        "add": 3, "attempt": [1, id_, [], ["a", "b"]], "aadd": 7, "laned": "ada 1", "again": "ada 1", "async": 15,
    }  # fmt: skip
    assert seen["attempts"] == {**dict.fromkeys(done, 1), "fail": 1, "later": 0, "laned": 2, "again": 2}
    assert {name: kinds for name, kinds in seen["errors"].items() if kinds} == {
        "fail": ["KeyError"], "laned": ["ValueError"], "again": ["ValueError"],
    }  # fmt: skip
    assert (seen["traceback"], seen["moments"], seen["workers"], seen["awaited"]) == (True, True, True, 3)
    assert (seen["once"], seen["lane"], seen["queue"], seen["priority"]) == (True, "ada", "mail", 5)
    assert seen["gone"].startswith("TaskResultDoesNotExist")
    assert seen["nobody"].startswith("TaskResultDoesNotExist")
    assert seen["other task"].startswith("TaskResultMismatch")
    assert "another backend" in seen["other backend"]
    assert "nonsense" in seen["wrong queue"]
    assert seen["argument"].startswith("TypeError")
    assert (seen["flags"], seen["checks"], seen["missing"], seen["kept"]) == ([True] * 4, [], ["laneway.E003"], 86400)
    assert (seen["worker of each"], seen["worker in all"]) == ([1, 1], True)
    signals = [tuple(one) for one in seen["signals"]]
    assert signals.count(("finished", "laned", "SUCCESSFUL")) == 1
    assert signals.count(("started", "laned", "RUNNING")) == 2
    assert signals.count(("finished", "fail", "FAILED")) == 1
    assert signals.count(("enqueued", "add", "READY")) == 4


def test_the_package_django_tasks(place: dict[str, str]) -> None:
    pytest.importorskip("django_tasks")
    check_tasks(looked("tasked", **place))


def test_the_example_has_all_its_migrations(place: dict[str, str]) -> None:
    assert "No changes" in ran("manage.py", "makemigrations", "--check", "--dry-run", **place)
