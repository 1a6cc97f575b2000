"""Looks at Laneway in a Django project, in a process of its own, and prints what it saw as JSON.

Takes the name of a function here: settings are global to a process, and so is the project's app.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from asgiref.sync import async_to_sync

# ruff: noqa: E402 - Django is set up before what needs it is imported
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_desk.settings")
django.setup()

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import close_old_connections, connection, connections, transaction
from django.test import Client, modify_settings

from django_desk import tasks
from laneway import Worker
from laneway.contrib.django import project
from laneway.contrib.django.checks import check_settings

app = project.project_app()
IMMEDIATE = {"transaction_mode": "IMMEDIATE"}


def said(call: Callable[[], object]) -> str:
    """Return the message of the error that a call raises."""
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - which one is what is asked
        return f"{type(error).__name__}: {error}"
    return "nothing"


def work() -> None:
    Worker(app, slots=2).run(burst=True)


def sessions() -> int:
    """Return the sessions of this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def connected() -> dict[str, Any]:
    """Lose a connection between jobs that use one; fork, with a connection open."""
    before = tasks.orders().count()
    Worker(app, slots=1).run(burst=True)  # declares what there is
    jobs = [tasks.count.enqueue(), tasks.lose_the_connection.enqueue(), *[tasks.count.enqueue() for _ in range(3)]]
    Worker(app, slots=1).run(burst=True)
    states = [job.state() for job in jobs]
    alone = tasks.count_alone.enqueue()
    alike = [tasks.acount.enqueue() for _ in range(4)]
    work()
    return {
        "states": states, "alone": alone.state(), "async": [job.state() for job in alike], "before": before,
        "after": tasks.orders().count(), "sessions": sessions() if connection.vendor == "postgresql" else 0,
    }  # fmt: skip


def restarted() -> dict[str, Any]:
    """Use the database before and after its server is started anew, in requests and in the same threads of a worker."""
    client = Client()

    def order() -> Any:
        close_old_connections()  # as a server does: Django's client for tests leaves it out
        return client.post("/orders/", {"customer": "ada", "total": 5}, content_type="application/json").status_code

    def ran(task: Any) -> Any:
        jobs.append(task.enqueue())
        return jobs[-1].result(timeout=60)

    jobs: list[Any] = []
    worker = Worker(app, slots=1)
    thread = threading.Thread(target=worker.run, daemon=True)  # a failure ends this program
    thread.start()
    answers = [order(), ran(tasks.count), ran(tasks.acount)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    answers += [ran(tasks.count), order(), ran(tasks.acount)]
    worker.stop()
    thread.join(60)
    return {"answers": answers, "failed": [error.message for job in jobs for error in job.info().errors]}


def pooled() -> dict[str, Any]:
    """Run isolated tasks while this process has a pool of connections."""
    ours = {tasks.session()}
    connection.close()  # back into the pool
    alike = [tasks.session_of_a_run.enqueue() for _ in range(3)]
    alone = [tasks.session_alone.enqueue() for _ in range(3)]
    work()
    ours |= {job.result(timeout=0) for job in alike}
    theirs = {job.result(timeout=0) for job in alone}
    after = {tasks.session()}
    return {"ours": len(ours | after), "theirs": len(theirs), "shared": len((ours | after) & theirs)}


def checked() -> list[Any]:
    """Check settings, one after the other; return the ids of what the checks say, or the error of the settings."""
    found: list[Any] = []
    folder = os.environ["SHOP_FOLDER"]
    inside = f"sqlite:///{folder}/shop.sqlite3"
    for given, options in (
        ({}, IMMEDIATE), ({}, {}), ({"ATOMIC": "commit"}, {}), ({"URL": inside}, IMMEDIATE), ({"URL": inside}, {}),
        ({"URL": f"sqlite:///{folder}/jobs.db"}, {}), ({"URL": "redis://localhost:1/0"}, {}),
        ({"URL": "redis://localhost:1/0", "ATOMIC": "commit"}, {}), ({"URL": "redis://localhost:1/0", "ATOMIC": "join"}, {}),
        ({"ATOMIC": "outbox"}, IMMEDIATE), ({"URL": inside, "ATOMIC": "outbox"}, IMMEDIATE),
        ({"URL": "redis://localhost:1/0", "ATOMIC": "outbox"}, IMMEDIATE),
        ({"URL": "redis://localhost:1/0", "ATOMIC": "outbox"}, {}),
        ({"ULR": "redis://localhost:1/0"}, {}), ({"ATOMIC": "perhaps"}, {}), ({"DATABASE": "other"}, {}), ("redis://x", {}),
        ({"URL": "nonsense://"}, {}), ({"DEAD_DAYS": -1}, {}),
    ):  # fmt: skip
        settings.LANEWAY = given
        connections.settings["default"]["OPTIONS"] = options
        connection.settings_dict["OPTIONS"] = options
        project._made.cache_clear()
        messages = check_settings()
        found.append([f"{one.id}: {one.msg}" if str(one.id) == "laneway.E001" else one.id for one in messages])
    return found


def rows() -> int:
    """Return how many rows wait in the outbox."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM laneway_outbox")
        return int(cursor.fetchone()[0])


def boxed() -> dict[str, Any]:
    """Enqueue in atomic blocks, of which some are rolled back, with an outbox; run what is left."""
    note = tasks.note

    def outside() -> None:
        with transaction.atomic():
            note.enqueue("no tables")

    missing = said(outside)
    call_command("migrate", verbosity=0)
    with transaction.atomic():
        created = note.enqueue("outer").created
        with transaction.atomic():
            note.enqueue("inner")
        with suppress(ValueError), transaction.atomic():
            note.enqueue("savepoint")
            raise ValueError
        with transaction.atomic():
            note.enqueue("by hand")
            transaction.set_rollback(True)
        async_to_sync(note.aenqueue)("async")
        note.enqueue_many([("many",), ("more",)])
    with suppress(ValueError), transaction.atomic():
        note.enqueue("never")
        raise ValueError
    transaction.set_autocommit(False)
    note.enqueue("manual")
    transaction.commit()
    note.enqueue("manual, never")
    transaction.rollback()
    transaction.set_autocommit(True)
    before = rows()
    note.enqueue("at once")
    inside = app.inspect.count()
    work()
    ran = sorted(tasks.orders().values_list("customer", flat=True))
    with transaction.atomic():
        note.enqueue("flushed")
    call_command("flush", interactive=False, verbosity=0)
    return {
        "missing": missing, "created": created, "rows": before, "inside": inside, "ran": ran, "left": rows(),
        "checks": [str(one.id) for one in check_settings()],
    }  # fmt: skip


def aside() -> dict[str, Any]:
    """Have the jobs in a database that is not the default one."""
    call_command("migrate", database="other", verbosity=0)
    for alias in ("default", "other"):
        with suppress(ValueError), transaction.atomic(using=alias):
            tasks.note.enqueue(alias)
            raise ValueError
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE name LIKE 'laneway%'")
        tables = len(cursor.fetchall())
    return {"left": [job.args for job in app.inspect.jobs()], "url": app.url, "tables": tables}


def commanded() -> dict[str, Any]:
    """Run commands from a program, and give a model as an argument."""
    order = tasks.orders().create(customer="ada", total=5)
    refused = said(lambda: tasks.take.enqueue(order))
    with transaction.atomic():
        tasks.count.enqueue()
        seen_inside = len(list(app.inspect.jobs()))
    listed, dumped = io.StringIO(), io.StringIO()
    call_command("laneway", "jobs", "list", "--json", stdout=listed)
    call_command("laneway", "worker", "--burst", stdout=io.StringIO())
    call_command("dumpdata", "--all", stdout=dumped)
    wrong = said(lambda: call_command("laneway", "jobs", "nonsense", stdout=io.StringIO()))
    return {
        "refused": refused, "inside": seen_inside, "listed": listed.getvalue(), "dumped": len(json.loads(dumped.getvalue())),
        "wrong": wrong,
    }  # fmt: skip


def shown() -> dict[str, Any]:
    """Ask for the dashboard and the admin as different people, over WSGI, with the permission that the settings name."""
    users: Any = get_user_model().objects
    staff, plain = users.create_user("staff", is_staff=True), users.create_user("plain")
    allowed = users.create_user("allowed", is_staff=True)
    allowed.user_permissions.add(Permission.objects.get(codename="view_order"))
    found: dict[str, Any] = {}
    for name, user in (("nobody", None), ("plain", plain), ("staff", staff), ("allowed", allowed)):
        client = Client()
        if user is not None:
            client.force_login(user)
        answers = [client.get(path) for path in ("/jobs/", "/jobs/api/v1/live", "/admin/")]
        found[name] = [answer.status_code for answer in answers]
        found[f"{name} sees"] = ["Overview" in answers[0].content.decode(), "Dead jobs" in answers[2].content.decode()]
        if name == "nobody":
            found["login"] = answers[0]["Location"]
    client = Client()
    client.force_login(allowed)
    found["links"] = [client.get(f"/admin/laneway/{one}/")["Location"] for one in ("deadjobs", "schedulelist")]
    found["followed"] = [client.get(path).status_code for path in found["links"]]
    return found


def signalled(seen: list[Any]) -> None:
    """Note every signal of Django's tasks."""
    from laneway.contrib.django.interface import task_enqueued, task_finished, task_started  # noqa: PLC0415

    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def note(sender: object, task_result: Any, name: str = name, **_: object) -> None:
            seen.append([name, task_result.task.name, str(task_result.status)])

        signal.connect(note, weak=False)


def tasked() -> dict[str, Any]:
    """Use Django's tasks."""
    signals: list[Any] = []
    signalled(signals)
    results: dict[str, Any] = {
        "add": tasks.add.enqueue(1, 2), "attempt": tasks.attempt.enqueue(words=["a", "b"]), "aadd": tasks.aadd.enqueue(3, 4),
        "fail": tasks.fail.enqueue(), "laned": tasks.laned.enqueue("ada", 1), "again": tasks.laned.enqueue("ada", 1),
        "later": tasks.add.using(run_after=timedelta(seconds=600), priority=5, queue_name="mail").enqueue(5, 6),
        "async": asyncio.run(tasks.add.aenqueue(7, 8)),
    }  # fmt: skip
    backend = tasks.add.get_backend()
    equal = all(backend.get_result(one.id) == one for one in results.values() if one is not results["later"])
    with suppress(ValueError), transaction.atomic():
        rolled_back = tasks.add.enqueue(9, 9)
        raise ValueError
    lane = app.inspect.job(results["laned"].id)
    later = app.inspect.job(results["later"].id)
    work()
    for result in results.values():
        result.refresh()
    asked = asyncio.run(tasks.add.aget_result(results["add"].id))
    with modify_settings(INSTALLED_APPS={"remove": "laneway.contrib.django"}):
        missing = [str(one.id) for one in backend.check()]
    assert lane is not None
    assert later is not None
    return {
        "equal": equal, "missing": missing,
        "worker of each": [len(set(results[name].worker_ids)) for name in ("laned", "fail")],
        "worker in all": results["fail"].worker_ids[0] == results["add"].worker_ids[0] == results["laned"].worker_ids[0],
        "status": {name: str(one.status) for name, one in results.items()},
        "values": {name: one.return_value for name, one in results.items() if str(one.status) == "SUCCESSFUL"},
        "attempts": {name: one.attempts for name, one in results.items()},
        "errors": {name: [error.exception_class.__name__ for error in one.errors] for name, one in results.items()},
        "traceback": "KeyError: 'no'" in results["fail"].errors[0].traceback,
        "moments": all(
            one.enqueued_at <= one.started_at <= one.finished_at for one in results.values() if one.is_finished and not one.errors
        ),
        "workers": all(results["add"].worker_ids), "awaited": asked.return_value,
        "once": results["again"].id == results["laned"].id, "lane": lane.lane, "queue": later.queue, "priority": later.priority,
        "gone": said(rolled_back.refresh), "nobody": said(lambda: backend.get_result("nobody")),
        "other task": said(lambda: tasks.fail.get_result(results["add"].id)),
        "other backend": said(tasks.elsewhere.using(backend="default").enqueue),
        "wrong queue": said(lambda: tasks.add.using(queue_name="nonsense")),
        "argument": said(lambda: tasks.add.enqueue(object(), 1)),
        "flags": [getattr(backend, f"supports_{one}") for one in ("defer", "async_task", "get_result", "priority")],
        "checks": [str(one.id) for one in backend.check()], "signals": signals,
        "kept": app.tasks[tasks.add.module_path].keep_result,
    }  # fmt: skip


if __name__ == "__main__":
    seen = globals()[sys.argv[1]]()
    Path(sys.argv[2]).write_text(json.dumps(seen), encoding="utf-8")
