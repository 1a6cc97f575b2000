"""`laneway queues`, `workers`, `schedules`, `migrate`, `top`, and completion."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import unstyle

import postgresbench
import redisbench
from clidesk import CTRL_C, Desk, open_desk, runner
from conftest import Bench, Clock, old_store
from laneway.cli import COMMANDS, laneway
from laneway.cli.live import divide
from laneway.cli.table import Column, aligned
from laneway.cli.table import _fit as fit  # pyright: ignore[reportPrivateUsage]
from laneway.store.contract import WorkerInfo
from laneway.store.inspection import Filter
from laneway.store.sqlite.schema import MIGRATIONS, VERSION
from laneway.worker import Worker


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


# -- queues ------------------------------------------------------------------------------------------------------


def test_queues_are_listed_paused_and_resumed(desk: Desk) -> None:
    desk.task("send").enqueue("ada")
    assert desk.run("queues", "pause", "mail", "billing") == "paused mail, billing\n"  # billing has had no job yet
    rows = [line.split() for line in desk.run("queues", "list").splitlines()]
    assert rows[0] == ["queue", "scheduled", "ready", "retrying", "blocked", "running", "dead", "counts", "paused"]
    assert ["mail", "0", "1", "0", "0", "0", "0", "jobs", "yes"] in rows
    assert desk.json("queues", "resume", "mail") == [{"name": "mail", "paused": False}]
    paused = {queue["name"]: queue["paused_by"] is not None for queue in desk.json("queues", "list")}
    assert paused == {"billing": True, "mail": False}


def test_a_queue_is_paused_before_the_store_is_made(desk: Desk) -> None:
    assert desk.run("queues", "pause", "mail") == "paused mail\n"
    desk.task("send").enqueue("ada")
    desk.work()
    assert [(queue["name"], queue["paused"], queue["counts"]["ready"]) for queue in desk.json("queues", "list")] == [
        ("mail", True, 1)
    ]


def test_a_queue_that_no_task_uses_is_paused_with_a_hint(desk: Desk) -> None:
    desk.task("send").enqueue("ada")
    done = desk.call("queues", "pause", "mial", "mail")
    assert (done.exit_code, done.stdout) == (0, "paused mial, mail\n")
    hint = 'queue "mial" has had no job yet, and no known task uses it. Did you mean "mail"? It is paused now\n'
    assert done.stderr == hint
    assert desk.call("queues", "pause", "mial").stderr == ""  # it is known now
    assert "is not a name for a queue" in desk.mistake("queues", "pause", "no queue")


def test_an_unknown_queue_is_one_line(desk: Desk) -> None:
    desk.task("send").enqueue("ada")
    for action in ("resume", "clear"):
        assert 'Did you mean "mail"' in desk.mistake("queues", action, "mial", code=1)
    assert 'no command "puase". Did you mean "pause"' in desk.mistake("queues", "puase")


def test_clear_removes_what_waits_after_a_yes(desk: Desk) -> None:
    for _ in range(3):
        desk.task("send").enqueue("ada")
    assert "Remove 3 jobs of queue mail (3 ready)?" in desk.mistake("queues", "clear", "mail")
    assert desk.run("queues", "clear", "mail", "--dry-run") == "3 jobs of queue mail would be removed; nothing was changed\n"
    assert desk.json("queues", "clear", "mail", "--yes") == {"matched": 3, "changed": 3, "dry_run": False}


# -- long names --------------------------------------------------------------------------------------------------

LONG = """
@app.task(name="warehouse.reconciliation.nightly.inventory.recount_of_shelves_in_the_north", queue="warehouse-inventory-recount-in-the-north", schedule="0 3 * * *")
def north() -> None: raise ValueError("no shelves")

@app.task(name="warehouse.reconciliation.nightly.inventory.recount_of_shelves_in_the_south", queue="warehouse-inventory-recount-in-the-south", schedule="0 3 * * *")
def south() -> None: raise ValueError("no shelves")
"""  # noqa: E501 - names that are too long are what it is about


@pytest.fixture
def long_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk with two queues, tasks and lanes whose long names differ at their end only."""
    for desk in open_desk(tmp_path, monkeypatch, LONG):
        for end in ("north", "south"):
            task = desk.app.declared[f"warehouse.reconciliation.nightly.inventory.recount_of_shelves_in_the_{end}"]
            for _ in range(2):
                task.using(lane=f"customers-of-the-warehouses-of-the-far-and-cold-{end}").enqueue()  # type: ignore[attr-defined]
        yield desk


@pytest.mark.parametrize("command", ["queues list", "lanes list", "jobs list", "schedules list", "status"])
def test_names_that_differ_at_their_end_look_different(long_names: Desk, command: str) -> None:
    shown = unstyle(long_names.paint(*command.split(), until="ware"))
    named = [line for line in shown.splitlines() if "ware" in line]
    assert max(map(len, named)) <= 80
    for end in ("north", "south"):
        assert any(re.search(rf"\bware\S*…\S*{end}\b", line) for line in named), shown


def test_the_last_runs_of_a_status_are_told_apart(long_names: Desk) -> None:
    long_names.work()
    shown = unstyle(long_names.paint("status", until="last runs"))
    runs = shown.partition("last runs")[2]
    for end in ("north", "south"):
        assert re.search(rf"\bware\S*…\S*{end} .*\bcust\S*…\S*{end}\b", runs), shown
    assert max(map(len, runs.splitlines())) <= 80


@pytest.fixture
def without_rich(long_names: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk where rich is not installed, neither for this process nor for those it starts."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "rich.py").write_text("raise ModuleNotFoundError('no rich here', name='rich')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delitem(sys.modules, "laneway.cli.live")
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.setitem(sys.modules, name, None)
    return long_names


def test_only_the_live_view_needs_rich(without_rich: Desk) -> None:
    without_rich.work()
    assert "last runs" in unstyle(without_rich.paint("status", until="last runs"))
    assert without_rich.json("top")["counts"]["ready"] == 0
    assert without_rich.mistake("top") == (
        'laneway top needs the package rich: pip install "laneway[top]". Or use laneway status'
    )


def test_the_demo_goes_on_without_the_live_view_and_the_web_and_says_how_to_get_them(without_rich: Desk, tmp_path: Path) -> None:
    (tmp_path / "without" / "starlette.py").write_text("raise ModuleNotFoundError('no starlette here', name='starlette')\n")
    shown = unstyle(without_rich.paint("demo", until=" s  enqueued", keys=CTRL_C))
    first, second, third, *_ = shown.splitlines()
    assert first == 'dashboard: not installed. To see this in a browser: pip install "laneway[web]"'
    assert second == 'live view: not installed. To see more than these lines: pip install "laneway[top]"'
    assert re.match(r" +\d+ s  enqueued +\d+  done", third), shown
    assert "In order:" in shown
    assert "Traceback" not in shown


def test_the_lists_of_a_live_view_are_told_apart(long_names: Desk) -> None:
    long_names.work()
    shown = long_names.run("top")
    queues, _, rest = shown.partition("task ")
    tasks, _, rest = rest.partition("blocked jobs by lane")
    lanes, _, runs = rest.partition("last runs")
    for end in ("north", "south"):
        for name, part in (("ware", queues), ("ware", tasks), ("cust", lanes), ("ware", runs), ("cust", runs)):
            assert re.search(rf"\b{name}\S*…\S*{end[1:]}\b", part), shown


# -- workers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(desk: Desk) -> Iterator[Worker]:
    """A worker in a thread."""
    made = Worker(desk.app, 3, ["mail"])
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        for _ in range(500):
            if desk.app.inspect.workers():
                break
            threading.Event().wait(0.01)
        yield made
    finally:
        made.stop()
        thread.join(10)


def test_workers_are_listed_and_told_by_id_pid_or_all(desk: Desk, worker: Worker) -> None:
    (listed,) = desk.json("workers", "list", "--store", desk.url)
    assert (listed["slots"], listed["queues"], listed["phase"]) == (3, ["mail"], "working")
    assert re.search(rf"{listed['id']} .* {listed['pid']} +working +0/3 +mail", desk.run("workers", "list", "--store", desk.url))
    told = desk.json("workers", "quiet", str(listed["pid"]), "--store", desk.url)
    assert told == [{"id": listed["id"], "told": "quiet"}]
    assert desk.run("workers", "stop", "--all", "--yes", "--store", desk.url).endswith(f"{listed['id']}\n")
    near = listed["id"][:-1] + "!"
    assert f'Did you mean "{listed["id"]}"' in desk.mistake("workers", "stop", near, "--store", desk.url, code=1)
    assert "name workers" in desk.mistake("workers", "stop", "--store", desk.url)


def test_no_workers_is_said_and_no_mistake(desk: Desk) -> None:
    desk.task("add").enqueue(1)
    assert desk.call("workers", "list").stderr == "no worker runs: start one with laneway worker\n"
    assert desk.json("workers", "list") == []


# -- schedules ---------------------------------------------------------------------------------------------------


def test_schedules_are_listed_before_any_worker_ran(desk: Desk) -> None:
    found = {one["task"]: one for one in desk.json("schedules", "list")}
    assert found["app.nightly"]["schedule"] == "0 3 * * * (Europe/Paris)"
    assert found["app.often"]["last_at"] is None
    assert re.search(r"app.nightly +0 3 \* \* \*", desk.run("schedules", "list"))


def test_a_schedule_is_run_paused_and_resumed(desk: Desk) -> None:
    id_ = desk.run("schedules", "run", "app.nightly").strip()
    assert desk.app.inspect.job(id_) is not None
    assert desk.run("schedules", "pause", "app.often", "--store", desk.url) == "paused app.often\n"
    assert {one["task"]: one["paused"] for one in desk.json("schedules", "list")} == {"app.nightly": False, "app.often": True}
    assert desk.json("schedules", "resume", "app.often") == {"name": "app.often", "task": "app.often", "paused": False}
    assert 'Did you mean "app.nightly"' in desk.mistake("schedules", "run", "app.nightlx", code=1)


def test_a_schedule_is_added_with_arguments_and_removed(desk: Desk) -> None:
    assert desk.run("schedules", "add", "bye-ada", "app.send", "5m", "ada", "--kwarg", "template=bye") == "added bye-ada\n"
    shown = {one["name"]: one for one in desk.json("schedules", "list")}["bye-ada"]
    assert (shown["task"], shown["args"], shown["kwargs"]) == ("app.send", ["ada"], {"template": "bye"})
    assert (shown["schedule"], shown["stored"], shown["trouble"]) == ("every 0:05:00", True, None)
    assert re.search(r'bye-ada +every 0:05:00 .*app\.send\("ada", template="bye"\) +store', desk.run("schedules", "list"))
    added = desk.json(
        "schedules", "add", "bye-ada", "app.send", "0 3 * * *", '"42"', "--timezone", "Europe/Paris", "--queue", "x"
    )
    assert (added["args"], added["schedule"]) == (["42"], "0 3 * * * (Europe/Paris)")
    job = desk.app.inspect.job(desk.run("schedules", "run", "bye-ada").strip())
    assert job is not None
    assert (job.queue, job.args) == ("x", ["42"])
    assert desk.run("schedules", "pause", "bye-ada") == "paused bye-ada\n"
    assert desk.json("schedules", "remove", "bye-ada") == {"name": "bye-ada", "removed": True}
    assert 'no schedule "bye-ada"' in desk.mistake("schedules", "remove", "bye-ada", code=1)
    assert "is declared in code" in desk.mistake("schedules", "remove", "app.often")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("app.often app.often 5m", '"app.often" is declared in code'),
        ("x app.send 5m", "missing a required argument"),
        ("x app.send 5m 42", "for the text 42 write"),
        ("x app.sent 5m ada", 'Did you mean "app.send"'),
        ("x app.send 0.5s ada", "at least a second"),
        ("x app.send @dayly ada", 'Did you mean "@daily"'),
        ("x app.send @daily ada --timezone Europe/Pariss", 'Did you mean "Europe/Paris"'),
        ("x app.charge @daily ada --priority 5", "a lane is in order"),
        ("x app.send @daily ada --kwarg template", "NAME=VALUE"),
        ("x app.send @daily ada --catch-up some", "Choose from one, all, none"),
    ],
)
def test_a_schedule_that_cannot_be_is_not_added(desk: Desk, words: str, said: str) -> None:
    done = desk.call("schedules", "add", *words.split())
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not any(one["stored"] for one in desk.json("schedules", "list"))


def test_schedules_in_the_store_need_no_app(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run("schedules", "add", "bye-ada", "app.send", "5m", "ada")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    store = ("--store", desk.url)
    [shown] = desk.json("schedules", "list", *store)
    assert (shown["name"], shown["args"]) == ("bye-ada", ["ada"])
    assert "no live worker knows" in shown["trouble"]
    assert "use an app that declares it" in desk.mistake("schedules", "run", "bye-ada", *store)
    assert "neither this app nor a live worker knows" in desk.mistake("schedules", "add", "x", "app.send", "5m", *store)
    desk.app.store.beat([WorkerInfo("w", host="h", pid=7, tasks=("app.send",))])
    assert desk.run("schedules", "add", "x", "app.send", "5m", *store) == "added x\n"
    assert {one["name"]: one["trouble"] for one in desk.json("schedules", "list", *store)} == {"bye-ada": None, "x": None}
    assert desk.run("schedules", "remove", "bye-ada", *store) == "removed bye-ada\n"


# -- migrate -----------------------------------------------------------------------------------------------------


def test_migrate_says_what_it_did(desk: Desk) -> None:
    assert desk.json("migrate", "--dry-run") == {"from": None, "to": VERSION, "steps": [], "dry_run": True}
    assert not (desk.folder / "laneway.db").exists()
    assert desk.run("migrate") == f"there is no store yet: one of version {VERSION} was made\n"
    assert desk.run("migrate") == f"the tables have version {VERSION} already: nothing to do\n"


def test_migrate_brings_older_tables_forward(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.run("migrate")
    monkeypatch.setattr("laneway.store.sqlite.schema.VERSION", VERSION + 1)
    monkeypatch.setattr("laneway.store.sqlite.schema.MIGRATIONS", {VERSION: ("do nothing", lambda _: None)})
    newer = VERSION + 1
    assert f"version {VERSION}, and this Laneway uses version {newer}" in desk.mistake("status", "--store", desk.url, code=1)
    assert desk.run("migrate", "--dry-run", "--store", desk.url) == (
        f"the tables would go from version {VERSION} to {newer}:\n  do nothing\n"
    )
    assert desk.json("migrate", "--store", desk.url) == {"from": VERSION, "to": newer, "steps": ["do nothing"], "dry_run": False}


def migrates(desk: Desk, old: Bench, url: str, found: int, expected: int, steps: list[str]) -> None:
    """Bring a store of before forward: each step is named, first without doing it; then its jobs are there."""
    old.store.close()
    named = "".join(f"\n  {step}" for step in steps)
    assert f"version {found}, and this Laneway uses version {expected}" in desk.mistake("status", "--store", url, code=1)
    said = f"the tables would go from version {found} to {expected}:{named}\n"
    assert desk.run("migrate", "--dry-run", "--store", url) == said
    assert desk.run("migrate", "--dry-run", "--store", url) == said  # it did nothing
    known = {"from": found, "to": expected, "steps": steps, "dry_run": True}
    assert desk.json("migrate", "--dry-run", "--store", url) == known
    assert desk.run("migrate", "--store", url) == f"the tables went from version {found} to {expected}:{named}\n"
    assert desk.run("migrate", "--store", url) == f"the tables have version {expected} already: nothing to do\n"
    counts = old.inspect.counts()
    assert (sum(counts.values()), counts["blocked"], counts["running"], counts["dead"]) == (18, 3, 3, 2)
    assert [job.id for job in old.inspect.jobs(Filter(state="dead"), 9, None)] == ["dead", "halts"]
    old.store.close()


def test_migrate_names_each_step_for_a_file_of_before(desk: Desk, tmp_path: Path) -> None:
    old = old_store("sqlite", "old_jobs.json", tmp_path, Clock(1_001_000_000), migrate=False)
    steps = [what for version, (what, _) in sorted(MIGRATIONS.items()) if version >= 2]
    assert len(steps) == VERSION - 2

    migrates(desk, old, f"sqlite:///{tmp_path}/jobs.db", 2, VERSION, steps)


@pytest.mark.parametrize(("kind", "found"), [("postgres", 4), ("postgres-1", 1)])
def test_migrate_names_each_step_for_a_database_of_before(desk: Desk, tmp_path: Path, kind: str, found: int) -> None:
    old = old_store(kind, "old_jobs.json", tmp_path, Clock(), migrate=False)
    from laneway.store.postgres import schema  # noqa: PLC0415 - its driver may be missing

    steps = [what for version, what in sorted(schema.MIGRATIONS.items()) if version > found]
    assert len(steps) == schema.VERSION - found

    migrates(desk, old, postgresbench.server().url, found, schema.VERSION, steps)


def test_migrate_names_each_step_for_keys_of_before(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = old_store("redis", "old_jobs.json", tmp_path, Clock(1_001_000_000))
    from laneway.store.redis import opening  # noqa: PLC0415 - its driver may be missing

    server = redisbench.server()
    versions: list[bytes] = []

    def note_version(_: object) -> None:
        versions.append(server.ask("GET", "laneway:{store}:version"))

    monkeypatch.setattr(opening, "VERSION", 3)
    monkeypatch.setattr(opening, "MIGRATIONS", {2: ("move a key", note_version), 1: ("add a key", note_version)})

    migrates(desk, old, server.url, 1, 3, ["add a key", "move a key"])

    assert versions == [b"1", b"2"]
    assert server.ask("GET", "laneway:{store}:version") == b"3"


def test_tables_of_a_newer_version_are_one_line(desk: Desk) -> None:
    desk.run("migrate")
    desk.app.close()
    with sqlite3.connect(desk.folder / "laneway.db") as connection:
        connection.execute("update laneway_meta set version = 99")
    connection.close()
    for arguments in (["status"], ["jobs", "list"], ["enqueue", "app.add", "1"], ["migrate"]):
        assert "upgrade Laneway here" in desk.mistake(*arguments, "--store", desk.url, code=1)


# -- top ---------------------------------------------------------------------------------------------------------


def test_top_fills_a_terminal_until_q(desk: Desk) -> None:
    desk.task("charge").enqueue("ada")
    desk.work()
    desk.task("send").enqueue("ada")
    seen = desk.paint("top", "--every", "0.1", until="last runs", keys="q")
    assert all(
        part in seen for part in ("q ends it", "enqueued 2", "billing", "mail", "dead, the latest", "no money", "app.charge")
    )


def test_top_looks_once_where_nobody_sees_it(desk: Desk) -> None:
    desk.task("send").enqueue("ada")
    assert "blocked jobs by lane" in desk.run("top")
    assert desk.json("top", "--store", desk.url)["counts"]["ready"] == 1


def test_a_screen_is_divided_among_its_lists() -> None:
    assert divide({"queues": 3, "tasks": 6, "workers": 0, "lanes": 4}, 20, 0) == (
        {"queues": 3, "tasks": 6, "workers": 0, "lanes": 4}, 3,
    )  # fmt: skip
    lines, runs = divide({"queues": 8, "tasks": 6, "workers": 6, "lanes": 4}, 20, 0)
    assert (sum(lines.values()) + 5 + runs, runs) == (20, 3)
    assert min(lines.values()) >= 2
    assert divide({"queues": 8, "tasks": 6, "workers": 6, "lanes": 4}, 3, 0)[1] == 1


def test_a_table_is_fitted_to_its_window() -> None:
    columns = [Column("id", whole=True), Column("n", spare=1), Column("text"), Column("empty")]
    rows = [["x" * 20, "1", "y" * 60, ""]]
    assert fit(columns, rows, 100) == [20, 1, 60, 0]
    assert fit(columns, rows, 60) == [20, 1, 35, 0]
    assert fit(columns, rows, 33) == [20, 0, 11, 0]
    assert aligned(["a", "b"], [["1", ""], ["22", "x\ny"]], [True, False]) == [" a  b", " 1  -", r"22  x\ny"]


# -- completion --------------------------------------------------------------------------------------------------


def complete(words: str) -> list[str]:
    """Return what the shell is offered after these words."""
    env = {"COMP_WORDS": f"laneway {words}", "COMP_CWORD": str(len(f"laneway {words}".split(" ")) - 1)}
    done = runner().invoke(laneway, [], env={**env, "_LANEWAY_COMPLETE": "bash_complete"}, prog_name="laneway")
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    return re.findall(r"^plain,(.*)$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("", list(COMMANDS)),
        ("jobs re", ["retry", "reschedule"]),
        ("enqueue app.c", ["app.charge"]),
        ("jobs list --queue m", ["mail"]),
        ("worker -q mail,b", ["mail,billing"]),
        ("jobs show ma", ["mail-1"]),
        ("schedules pause app.", ["app.nightly", "app.often"]),
        ("schedules run k", ["kept"]),
        ("schedules remove ", ["kept"]),
        ("lanes show ", ["ada"]),
        ("jobs list --state re", ["ready", "retrying"]),
    ],
)
def test_the_shell_is_offered_names(desk: Desk, words: str, offered: list[str]) -> None:
    desk.task("send").using(id="mail-1").enqueue("ada")
    desk.task("charge").enqueue("ada")
    desk.app.inspect.set_schedule("kept", desk.task("flaky"), "@daily")
    assert complete(words) == offered


@pytest.mark.parametrize("app", [None, "print('noise')\n1 / 0", "from laneway import App\napp = App(imports=['nothing'])"])
def test_completion_without_a_usable_app_offers_nothing(desk: Desk, app: str | None) -> None:
    file = desk.folder / "app.py"
    file.unlink() if app is None else file.write_text(app)
    for words in ("enqueue ", "jobs list --queue ", "jobs show ", "workers stop ", "schedules run "):
        assert complete(words) == []


def test_tasks_are_offered_before_there_is_a_store(desk: Desk) -> None:
    assert complete("enqueue app.a") == ["app.add"]
    assert not (desk.folder / "laneway.db").exists()


# -- help --------------------------------------------------------------------------------------------------------


def every_command() -> list[list[str]]:
    found: list[list[str]] = []
    for name in COMMANDS:
        command = laneway.get_command(None, name)  # type: ignore[arg-type]
        found += [[name], *([name, inner] for inner in getattr(command, "commands", {}))]
    return found


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_examples_that_it_takes(words: list[str]) -> None:
    seen = runner().invoke(laneway, [*words, "--help"], prog_name="laneway").stdout
    lines = re.findall(r"^  (laneway .*)$", seen.split("Examples:\n")[1], re.MULTILINE)
    assert lines
    assert all(line.startswith(f"laneway {' '.join(words)}") for line in lines)
    assert max(map(len, seen.splitlines())) <= 100
    leaf = len(words) > 1 or not seen.count("COMMAND [ARGS]")
    if leaf and words[0] not in ("worker", "health", "store", "demo") and words not in (["outbox", "init"], ["outbox", "relay"]):
        assert all(option in seen for option in ("-A, --app", "--store URL", "--json"))


def test_the_front_door_has_the_exit_codes() -> None:
    seen = runner().invoke(laneway, ["--help"], prog_name="laneway").stdout
    assert all(re.search(rf"^  {code} +\w", seen, re.MULTILINE) for code in (0, 1, 2, 130))
