"""Laneway in a Django project: the example under real servers, and what a project meets, each in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from conftest import SOAK, often
from redisbench import free_port
from test_shops import EXAMPLES, ROOT, Programs, answers, needs_linux, opened, workers_of
from workbench import until

httpx = pytest.importorskip("httpx")
pytest.importorskip("django")
SHOP = EXAMPLES / "django_shop"
SIX = runpy.run_path(str(ROOT / "scripts" / "django6"))
CUSTOMERS = ("ada", "ben", "cy", "dee")
PATHS = os.pathsep.join(str(path) for path in (ROOT / "src", SHOP, ROOT / "tests"))


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a project's programs."""
    ours = ("LANEWAY_", "PG", "SHOP_", "DJANGO_", "PYTEST_", "PYTHONDONTWRITEBYTECODE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, "PYTHONPATH": PATHS, "DJANGO_SETTINGS_MODULE": "shop.settings", **more}


def run(*command: str, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [python, "-W", "error", *command], env=environment(**more), capture_output=True, text=True, timeout=120, check=False,
        cwd=SHOP,
    )  # fmt: skip


def ran(*command: str, python: str = sys.executable, **more: str) -> str:
    """Run a program that ends well; return what it says."""
    done = run(*command, python=python, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def looked(what: str, *, python: str = sys.executable, **more: str) -> Any:
    """Return what the program beside sees."""
    with tempfile.NamedTemporaryFile() as answer:
        more = {"DJANGO_SETTINGS_MODULE": "django_desk.settings", **more}
        ran("-m", "django_desk.program", what, answer.name, python=python, **more)
        return json.loads(Path(answer.name).read_text(encoding="utf-8"))


@functools.cache
def empty_shop() -> bytes:
    """A shop's database of SQLite, with its tables."""
    with tempfile.TemporaryDirectory() as folder:
        ran("-m", "django", "migrate", SHOP_FOLDER=folder)
        return Path(folder, "shop.sqlite3").read_bytes()


def in_postgres(name: str) -> dict[str, str]:
    """Return how programs find a database of PostgreSQL."""
    port = str(postgresbench.server().port)
    return {"SHOP_DATABASE": "postgresql", "PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": "postgres", "PGDATABASE": name}


@functools.cache
def empty_template() -> str:
    """A shop's database of PostgreSQL, with its tables, for others to be made of."""
    postgresbench.server().ask("CREATE DATABASE shop_template")
    ran("-m", "django", "migrate", **in_postgres("shop_template"))
    return "shop_template"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A shop's database: how its programs find it. SQLite, unless a test says otherwise."""
    if getattr(request, "param", "sqlite") == "sqlite":
        (tmp_path / "shop.sqlite3").write_bytes(empty_shop())
        yield {"SHOP_FOLDER": str(tmp_path)}
        return
    server, name = postgresbench.server(), f"shop_{os.getpid()}_{free_port()}"
    server.ask(f"CREATE DATABASE {name} TEMPLATE {empty_template()}")
    yield in_postgres(name)
    server.ask(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def six() -> str:
    """A Python that has Django 6."""
    folder = Path(sys.prefix, "django6")  # made by make test
    made = subprocess.run(
        [sys.executable, SIX["__file__"], str(folder)], capture_output=True, text=True, timeout=580, check=False
    )
    if made.returncode == SIX["NO_PYTHON"]:
        pytest.skip("Django 6 needs Python 3.12, and there is none here")
    if made.returncode == SIX["UNREACHABLE"]:
        why = f"no package index can be reached: {made.stderr.strip().splitlines()[-1:]}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


only_long = [pytest.mark.soak, pytest.mark.skipif(not SOAK, reason="make soak runs it")]


# -- the shop --------------------------------------------------------------------------------------------------


SERVERS = {
    "wsgi": ("gunicorn", "shop.wsgi:application", "--threads", "4", "--bind"),
    "asgi": ("uvicorn", "shop.asgi:application", "--log-level", "warning", "--port"),
}
FACTS = """
import json
from orders.models import Order, Parcel
from laneway.contrib.django import app
print(json.dumps({
    "orders": list(Order.objects.order_by("pk").values_list("pk", "customer")),
    "parcels": list(Parcel.objects.order_by("pk").values_list("order_id", "order__customer", "number_of_customer")),
    "unshipped": Order.objects.filter(shipped_at=None).count(),
    "states": sorted({job.state for job in app.inspect.jobs(limit=1000)}),
    "done": app.stats.totals()["processed"], "enqueued": app.stats.totals()["enqueued"],
}))
"""
PLACE = """
from orders.models import Order
from orders.tasks import ship
ship.enqueue("ada", Order.objects.create(customer="ada", total=1).pk)
"""
PEOPLE = """
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("boss", password="secret")
"""


class DjangoShop(Programs):
    """The programs of the example."""

    def __init__(self, folder: Path, place: dict[str, str], python: str) -> None:
        super().__init__(folder, "")
        self.python = python
        self._environment = environment(**place)


def log_in(client: Any, path: str) -> None:
    """Log in as a browser does."""
    form = client.get(path, follow_redirects=True)
    assert form.url.path == "/admin/login/"
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[0]
    sent = {"csrfmiddlewaretoken": token, "username": "boss", "password": "secret"}
    assert client.post(str(form.url), data=sent, headers={"Referer": str(form.url)}).status_code == 302


def sessions(place: dict[str, str]) -> int:
    """Return how many sessions a shop's database has."""
    if "PGDATABASE" not in place:
        return 0
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
    return int(postgresbench.server().ask(asked, place["PGDATABASE"])[0][0])


def sell(client: Any, customer: str) -> list[int]:
    """Place a customer's orders, one after the other; every seventh fails. Return those that were placed."""
    placed = []
    for number in range(8):
        fails = number % 7 == 0
        answer = client.post("/orders/", json={"customer": customer, "total": number, "fails": fails})
        assert answer.status_code == (500 if fails else 201), answer.text
        placed += [] if fails else [int(answer.json()["order"])]
    return placed


def look(client: Any, port: int, server: str) -> None:
    """Use the dashboard as the staff does."""
    log_in(client, "/jobs/")
    assert "Overview" in client.get("/jobs/").text
    pause, here = "/jobs/api/v1/queues/default/pause", {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    assert client.post(pause, headers=here).status_code == 403
    token = client.get("/jobs/api/v1/session").json()["csrf_token"]
    assert client.post(pause, headers={**here, "X-CSRF-Token": token}).status_code == 200
    assert client.post(pause, headers={"Origin": "http://evil.example", "X-CSRF-Token": token}).status_code == 403
    if server == "wsgi":
        assert client.get("/jobs/api/v1/live").status_code == 204
        return
    with client.stream("GET", "/jobs/api/v1/live") as live:
        assert live.headers["content-type"].startswith("text/event-stream")
        assert json.loads(next(line for line in live.iter_lines() if line.startswith("data:")).removeprefix("data:"))


def served(place: dict[str, str], folder: Path, server: str, python: str = sys.executable) -> None:
    """Sell, while workers are killed; then look at the dashboard. Everything agrees in the end."""
    port, most = free_port(), 0
    placed: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}
    with opened(DjangoShop(folder, place, python)) as shop:
        shop.start("web", *SERVERS[server], f"127.0.0.1:{port}" if server == "wsgi" else str(port))
        fleet = shop.start("fleet", "django", "laneway", "worker", "-p", "2", "-s", "2", "--beat", "0.2")
        ran("-m", "django", "shell", "-c", PEOPLE, **place)
        client = shop.client(port)
        until(lambda: answers(client, "/orders/1/"))
        until(lambda: len(workers_of(fleet.pid)) >= 2)
        with ThreadPoolExecutor(len(CUSTOMERS)) as people:
            for _ in range(often(2, 20)):
                begun = {customer: people.submit(sell, client, customer) for customer in CUSTOMERS}
                os.kill(workers_of(fleet.pid)[0], signal.SIGKILL)
                for customer, one in begun.items():
                    placed[customer] += one.result()
                most = max(most, sessions(place))
                until(lambda: len(workers_of(fleet.pid)) >= 2)
        numbers = sorted(number for theirs in placed.values() for number in theirs)
        until(lambda: all(client.get(f"/orders/{number}/").json()["shipped"] for number in numbers))
        look(client, port, server)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(60) == 0
    facts = json.loads(run("-m", "django", "shell", "-v", "0", "-c", FACTS, **place).stdout)
    assert [number for number, _ in facts["orders"]] == numbers
    assert sorted(number for number, _, _ in facts["parcels"]) == numbers
    assert (facts["unshipped"], facts["states"]) == (0, [])  # of those that are not done
    assert (facts["enqueued"], facts["done"]) == (len(numbers), len(numbers))
    for customer in CUSTOMERS:
        theirs = sorted((place_in_line, number) for number, whose, place_in_line in facts["parcels"] if whose == customer)
        assert theirs == list(enumerate(placed[customer], 1))
    assert most <= 40


@needs_linux
@pytest.mark.parametrize(
    ("place", "server"),
    [
        ("sqlite", "wsgi"), ("postgresql", "asgi"),
        pytest.param("sqlite", "asgi", marks=only_long), pytest.param("postgresql", "wsgi", marks=only_long),
    ],
    indirect=["place"],
)  # fmt: skip
def test_a_shop_with_django(place: dict[str, str], tmp_path: Path, server: str) -> None:
    served(place, tmp_path, server)


@needs_linux
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "server"),
    [
        ("postgresql", "wsgi"), pytest.param("sqlite", "asgi", marks=only_long),
        pytest.param("sqlite", "wsgi", marks=only_long), pytest.param("postgresql", "asgi", marks=only_long),
    ],
    indirect=["place"],
)  # fmt: skip
def test_a_shop_with_django_6(place: dict[str, str], tmp_path: Path, server: str, six: str) -> None:
    served(place, tmp_path, server, six)


@needs_linux
@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="make soak runs it")
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_shop_with_an_outbox(place: dict[str, str], tmp_path: Path, jobs: str) -> None:
    ran("-m", "django", "migrate", SHOP_JOBS=jobs, **place)
    served({**place, "SHOP_JOBS": jobs}, tmp_path, "asgi")


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


@pytest.fixture
def jobs() -> str:
    """A store elsewhere."""
    if why := redisbench.why_not():
        pytest.skip(why)
    return redisbench.emptied().url


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_with_an_outbox_rows_go_with_atomic_blocks_and_become_jobs(place: dict[str, str], jobs: str) -> None:
    check_boxed(place, jobs)


def check_boxed(place: dict[str, str], jobs: str, python: str = sys.executable) -> None:
    seen = looked("boxed", python=python, DESK_LANEWAY=json.dumps({"URL": jobs, "ATOMIC": "outbox"}), **place)
    assert seen["missing"].endswith("has no table laneway_outbox: run manage.py migrate")
    assert (seen["created"], seen["rows"], seen["inside"]) == (None, 6, 1)
    assert seen["ran"] == ["async", "at once", "inner", "manual", "many", "more", "outer"]
    assert (seen["left"], seen["checks"]) == (0, [])


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


KEPT: tuple[dict[str, str], ...] = (
    {}, {"DESK_MAX_AGE": "600", "DESK_HEALTH_CHECKS": "1"}, {"DESK_POOL": "true", "DESK_HEALTH_CHECKS": "1"},
)  # fmt: skip


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


@pytest.mark.parametrize("permission", ["", "orders.view_order"])
def test_the_dashboard_is_for_those_who_may(place: dict[str, str], permission: str) -> None:
    seen = looked("shown", DESK_LANEWAY=json.dumps({"PERMISSION": permission} if permission else {}), **place)
    assert seen["nobody"][:2] == [302, 302]
    assert seen["login"] == "/admin/login/?next=/jobs/"
    assert seen["plain"][:2] == [403, 403]
    refused, shown = ([403, 403, 200], [False, False]), ([200, 204, 200], [True, True])
    assert (seen["staff"], seen["staff sees"]) == tuple(refused if permission else shown)
    assert (seen["allowed"], seen["allowed sees"]) == ([200, 204, 200], [True, True])
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
    assert (seen["flags"], seen["checks"]) == ([True] * 4, [])
    signals = [tuple(one) for one in seen["signals"]]
    assert signals.count(("finished", "laned", "SUCCESSFUL")) == 1
    assert signals.count(("started", "laned", "RUNNING")) == 2
    assert signals.count(("finished", "fail", "FAILED")) == 1
    assert signals.count(("enqueued", "add", "READY")) == 4


def test_the_package_django_tasks(place: dict[str, str]) -> None:
    pytest.importorskip("django_tasks")
    check_tasks(looked("tasked", **place))


@pytest.mark.timeout(600)
def test_the_tasks_of_django_6(place: dict[str, str], six: str) -> None:
    check_tasks(looked("tasked", python=six, **place))


@pytest.mark.timeout(600)
def test_the_own_tests_of_djangos_tasks_pass(place: dict[str, str], six: str) -> None:
    own = Path(six).parent.parent / "own"
    if not own.exists():
        pytest.skip("the source of Django could not be fetched")
    desk = {"DJANGO_SETTINGS_MODULE": "django_desk.settings", **place}
    said = ran("-m", "django_desk.interface", str(own), python=six, **desk)
    [number] = re.findall(r"Ran (\d+) tests", said)
    assert int(number) > 70


def test_the_example_has_all_its_migrations(place: dict[str, str]) -> None:
    assert "No changes" in ran("manage.py", "makemigrations", "--check", "--dry-run", **place)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_project_with_django_6(place: dict[str, str], tmp_path: Path, jobs: str, six: str) -> None:
    check_own_tests(in_postgres("example_6"), tmp_path, python=six)
    check_pooled(place, six)
    check_boxed(place, jobs, six)
