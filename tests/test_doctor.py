"""`app.inspect.examine()`, what is examined on every store and of SQLite files, and `laneway doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import redisbench
from clidesk import Desk, open_desk
from conftest import Bench
from laneway import App
from laneway.clock import now_micros
from laneway.core.job import Job
from laneway.core.outcome import Dead, ErrorInfo, Settled
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.findings import LEVELS, Finding
from laneway.store.sqlite.checks import check_disk, check_library, check_space, file_system

#: The system's own programs.
DF, MOUNT, UMOUNT = (shutil.which(name) or name for name in ("df", "mount", "umount"))


def job(queue: str = "default", body: bytes = b"[[1],{}]") -> Job:
    return Job(new_id(), "app.task", queue, body)


def worker(id_: str = "w1", queues: tuple[str, ...] = (), tasks: tuple[str, ...] = (), phase: str = "working") -> WorkerInfo:
    return WorkerInfo(id_, host="one", pid=7, queues=queues, slots=4, tasks=tasks, phase=phase)


@pytest.fixture
def over(bench: Bench) -> Iterator[App]:
    """An app over a store whose clock the test moves."""
    bench.clock.now = now_micros()
    made = App("sqlite://", dead_max=10)
    made.swap_stores((bench.store, bench.inspect))
    yield made
    made.swap_stores(None)


def found(app: App, *, deep: bool = False) -> dict[str, Finding]:
    """Examine; return the findings by what they are about, the worst where there are several."""
    findings = sorted(app.inspect.examine(deep=deep), key=lambda finding: LEVELS.index(finding.level), reverse=True)
    return {finding.what: finding for finding in findings}


# -- on every store ------------------------------------------------------------------------------------------------


def test_where_workers_serve_all_queues_the_work_is_well(over: App, bench: Bench) -> None:
    bench.store.push([job()])
    bench.store.beat([worker()])

    seen = found(over)

    assert {what: seen[what].level for what in ("workers", "beats", "queues", "lag", "dead", "clock", "layout")} == dict.fromkeys(
        ("workers", "beats", "queues", "lag", "dead", "clock", "layout"), "ok"
    )
    assert seen["workers"].found == "1 live, 0 of 4 slots busy"
    assert "paused" not in seen
    assert all(finding.found and not finding.found.endswith(".") for finding in seen.values())
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in seen.values())


def test_due_jobs_that_no_worker_serves_are_a_problem(over: App, bench: Bench) -> None:
    bench.store.push([job("mail"), job("mail"), job("billing")])
    seen = found(over)
    assert (seen["workers"].level, seen["queues"].level) == ("warning", "problem")
    assert {"billing (1)", "mail (2)"} == set(seen["queues"].found.partition(": ")[2].split(", "))

    bench.store.beat([worker(queues=("billing",)), worker("w2", phase="quiet")])
    seen = found(over)
    assert (seen["workers"].level, seen["queues"].level) == ("ok", "problem")
    assert seen["queues"].found.endswith(": mail (2)")

    over.inspect.pause("mail")
    seen = found(over)
    assert (seen["queues"].level, seen["paused"].level) == ("ok", "note")
    assert seen["paused"].found.endswith(": mail (2)")


def test_workers_that_are_all_quiet_are_said_to_be(over: App, bench: Bench) -> None:
    bench.store.beat([worker(phase="quiet")])
    assert (found(over)["workers"].level, found(over)["queues"].level) == ("warning", "ok")
    bench.store.push([job()])
    assert found(over)["queues"].level == "problem"


def test_a_silent_worker_with_jobs_is_a_problem_until_another_lives(over: App, bench: Bench) -> None:
    bench.store.push([job()])
    bench.store.beat([worker()])
    [_] = bench.store.exchange("w1", [], [ClaimRequest("default", 1)], 1).claims
    bench.clock.advance(9)
    assert found(over)["beats"].level == "warning"
    assert "the last heartbeat of worker w1 (pid 7 on one) is 9 s old" in found(over)["beats"].found

    bench.clock.advance(7)
    silent = found(over)["beats"]
    assert silent.level == "problem"
    assert silent.found == "no heartbeat for more than 15 s from worker w1 (pid 7 on one); jobs that wait for it: 1"
    assert "Start a worker" in silent.advice

    bench.store.beat([worker("w2")])
    assert found(over)["beats"].level == "warning"
    bench.store.recover("w1", "it is gone")
    assert found(over)["beats"].level == "ok"


def test_a_job_that_waits_too_long_is_warned_of(over: App, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.store.push([job("mail")])
    bench.clock.advance(301)
    bench.store.beat([worker()])
    assert found(over)["lag"].level == "warning"
    assert found(over)["lag"].found == "a due job of queue mail has waited 5m 1s, more than 5m (health_lag)"

    monkeypatch.setenv("LANEWAY_HEALTH_LAG", "1h")
    assert found(over)["lag"].level == "ok"


def test_a_schedule_in_the_store_needs_a_live_worker_that_knows_its_task(over: App, bench: Bench) -> None:
    knowing = App("sqlite://")
    knowing.swap_stores((bench.store, bench.inspect))

    @knowing.task(name="shop.report")
    def report() -> None: ...

    knowing.inspect.set_schedule("nightly", report, "@daily")
    bench.store.beat([worker()])
    for app in (over, knowing):  # who knows the task itself is no worker
        assert found(app)["schedules"].level == "warning"
        assert 'schedule "nightly" does not fire: no live worker knows the task "shop.report"' in found(app)["schedules"].found

    bench.store.beat([worker("w2", tasks=("shop.report",))])
    assert found(over)["schedules"].level == "ok"
    bench.clock.advance(16)
    assert found(over)["schedules"].level == "warning"
    over.inspect.pause_schedule("nightly")
    assert found(over)["schedules"].level == "ok"
    bench.inspect.set_schedule("broken", b"\xff")
    assert "the entry cannot be read" in found(over)["schedules"].found
    knowing.swap_stores(None)


def test_a_declared_schedule_needs_a_live_worker_that_knows_its_task(over: App, bench: Bench) -> None:
    assert "schedules" not in found(over)

    @over.task(name="shop.report", schedule="@daily")
    def _report() -> None: ...

    bench.store.beat([worker()])
    assert found(over)["schedules"].level == "warning"
    bench.store.beat([worker(tasks=("shop.report",))])
    assert found(over)["schedules"].level == "ok"


def test_dead_jobs_near_their_limit_are_warned_of(over: App, bench: Bench) -> None:
    def die(number: int) -> None:
        bench.store.push([job() for _ in range(number)])
        claims = bench.store.exchange("w1", [], [ClaimRequest("default", number)], number).claims
        settled = [Settled(claim, (Dead(ErrorInfo("E", "no")),)) for claim in claims]
        assert bench.store.exchange("w1", settled, [], 0).refused == []

    die(8)
    assert (found(over)["dead"].level, found(over)["dead"].found) == ("ok", "dead jobs: 8 of at most 10")
    die(1)
    assert found(over)["dead"].level == "warning"


@pytest.mark.parametrize(("apart", "level"), [(1, "ok"), (30, "note"), (3600, "warning")])
def test_a_store_whose_clock_is_ahead_is_noticed(over: App, bench: Bench, apart: int, level: str) -> None:
    bench.clock.advance(apart)
    bench.store.push([job()])
    bench.clock.now -= apart * 1_000_000  # a file's time does not go back, and a server's clock is its own
    if apart > 1 and type(bench.store).__name__ == "RedisStore":
        bench.clock.advance(apart)

    clock = found(over)["clock"]

    assert clock.level == level
    assert level == "ok" or "ahead of this machine's" in clock.found


def test_a_store_whose_clock_is_behind_is_noticed(over: App, bench: Bench) -> None:
    bench.clock.advance(-600)
    assert re.search(r"the store's clock is (10m|9m 5\ds) behind this machine's", found(over)["clock"].found)
    assert found(over)["clock"].level == "warning"


def test_an_examination_can_be_awaited(app: App) -> None:
    names = [finding.what for finding in asyncio.run(_awaited(app))]
    assert names == [finding.what for finding in app.inspect.examine()]
    assert {"version", "layout", "workers"} <= set(names)


async def _awaited(app: App) -> list[Finding]:
    return await app.ainspect.examine()


def test_a_finding_is_plain() -> None:
    finding = Finding("disk", "note", "the disk is small", "Buy a larger one")
    assert finding.as_dict() == {"what": "disk", "level": "note", "found": "the disk is small", "advice": "Buy a larger one"}
    assert str(finding) == "the disk is small. Buy a larger one"


# -- a file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app_of(path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{path}")
    made.enqueue("app.task")
    yield made
    made.close()


def test_a_store_in_memory_is_said_to_be_lost_with_its_process(app: App) -> None:
    seen = found(app, deep=True)
    assert (seen["disk"].level, seen["integrity"].level) == ("note", "ok")
    assert {"space", "journal", "synchronous"}.isdisjoint(seen)


def test_a_healthy_file(app_of: App) -> None:
    seen = found(app_of)
    assert {seen[what].level for what in ("layout", "space", "journal", "pages")} == {"ok"}
    assert seen["synchronous"].level == "note"
    assert "integrity" not in seen, "reading all of a file takes long"
    assert found(app_of, deep=True)["integrity"].level == "ok"


def test_a_file_that_waits_for_the_disk(path: Path) -> None:
    with contextlib.closing(App(f"sqlite:///{path}?synchronous=full")) as app:
        assert found(app)["synchronous"].level == "ok"


def test_a_file_in_memory_is_lost_with_its_machine() -> None:
    if not Path("/dev/shm").is_dir():  # noqa: S108 - it is the folder that is meant
        pytest.skip("this system has no folder in memory")
    file = Path("/dev/shm", f"laneway-doctor-{os.getpid()}.db")  # noqa: S108
    try:
        with contextlib.closing(App(f"sqlite:///{file}")) as app:
            app.enqueue("app.task")
            disk = found(app)["disk"]
        assert (disk.level, disk.found) == ("warning", "the file is in memory (tmpfs): when the machine stops, all jobs are lost")
    finally:
        for rest in file.parent.glob(f"{file.name}*"):
            for inside in rest.iterdir() if rest.is_dir() else ():
                inside.unlink()
            rest.rmdir() if rest.is_dir() else rest.unlink()


@pytest.mark.parametrize("place", ["/", "/proc/self", "/dev", "/dev/shm"])  # noqa: S108
def test_the_kind_of_a_disk_is_the_one_that_the_system_tells(place: str) -> None:
    told = subprocess.run([DF, "--output=fstype", place], capture_output=True, text=True, timeout=10, check=True)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert file_system(str(Path(place).resolve()), mounts) == told.stdout.split()[-1]


MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /srv/jobs rw,relatime shared:1 master:2 - nfs4 store:/jobs rw,vers=4.2
31 22 0:41 / /srv/jobs\040old rw - fuse.sshfs ada@store:/jobs rw
32 22 0:42 / /srv/over rw - tmpfs none rw
33 22 0:43 / /srv/over rw - xfs /dev/vdb rw
""".strip()


@pytest.mark.parametrize(
    ("file", "kind", "level"),
    [
        ("/srv/jobs/x.db", "nfs4", "problem"), ("/srv/jobsx/x.db", "ext4", "ok"), ("/srv/jobs old/x.db", "fuse.sshfs", "problem"),
        ("/srv/over/x.db", "xfs", "ok"), ("/home/x.db", "ext4", "ok"),
    ],
)  # fmt: skip
def test_a_file_on_a_network_disk_is_a_problem(file: str, kind: str, level: str) -> None:
    assert file_system(file, MOUNTS) == kind
    assert check_disk(kind).level == level


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("cifs", "problem"), ("fuse.glusterfs", "problem"), ("fuse.rclone", "problem"), ("9p", "warning"),
        ("virtiofs", "warning"), ("fuseblk", "warning"), ("fuse.mine", "warning"), ("overlay", "note"), ("btrfs", "ok"),
    ],
)  # fmt: skip
def test_disks_are_judged_by_their_kind(kind: str, level: str) -> None:
    assert (check_disk(kind).level, kind in check_disk(kind).found) == (level, True)


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [(99, 1, "problem"), (101, 1, "warning"), (999, 1, "warning"), (1001, 1000, "ok"), (2000, 3000, "note")],
)
def test_little_space_is_warned_of(free: int, size: int, level: str) -> None:
    assert check_space(free * 1_000_000, size * 1_000_000).level == level


def test_a_disk_that_is_nearly_full_is_a_problem(tmp_path: Path) -> None:
    mounted = subprocess.run([MOUNT, "-t", "tmpfs", "-o", "size=64m", "none", tmp_path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        with contextlib.closing(App(f"sqlite:///{tmp_path}/jobs.db")) as app:
            assert found(app)["space"].level == "problem"
    finally:
        subprocess.run([UMOUNT, tmp_path], check=True)


def test_another_journal_mode_is_warned_of(app_of: App, path: Path) -> None:
    app_of.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = delete")

    assert found(app_of)["journal"].level == "warning"
    app_of.enqueue("app.task")
    assert found(app_of)["journal"].level == "ok"


def test_a_log_that_cannot_be_emptied_and_free_pages_are_noticed(app_of: App, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from sqlite_schema").fetchall()
        for _ in range(8):
            app_of.store.push([job("large", b'[["%b"],{}]' % (b"x" * 900_000)) for _ in range(10)])
        assert found(app_of)["journal"].level == "warning"
        assert re.match(r"its log has \d\d MB, and the file", found(app_of)["journal"].found)

    assert found(app_of)["pages"].level == "ok"
    app_of.inspect.clear("large")
    assert found(app_of)["pages"].level == "note"
    app_of.close()  # with the last program the log goes
    assert found(app_of)["journal"].level == "ok"


def test_a_damaged_file_is_found_by_reading_all_of_it(app_of: App, path: Path) -> None:
    app_of.store.push([job(body=b'[["%b"],{}]' % (b"x" * 1000)) for _ in range(500)])
    app_of.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        table = "select rootpage from sqlite_schema where name = 'laneway_job'"
        [(root,)] = connection.execute(table).fetchall()
        [(size,)] = connection.execute("pragma page_size").fetchall()
    with path.open("r+b") as file:
        file.seek((root - 1) * size + 8)
        file.write(b"\xff" * 100)

    damage = found(app_of, deep=True)["integrity"]

    assert damage.level == "problem"
    assert damage.found.startswith("the file is damaged: ")


@pytest.mark.parametrize(("version", "level"), [((3, 40, 1), "note"), ((3, 51, 2), "note"), ((3, 51, 3), "ok")])
def test_libraries_with_a_known_fault_are_named(version: tuple[int, int, int], level: str) -> None:
    assert check_library(version).level == level


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    if not redisbench.why_not():
        from laneway.store.redis import opening  # noqa: PLC0415 - its driver may be missing

        monkeypatch.setattr(opening, "_warned", {})  # the command suppresses warnings for the rest of its process
    yield from open_desk(tmp_path, monkeypatch)


def test_doctor_prints_the_worst_first_and_exits_with_1_for_a_problem(desk: Desk) -> None:
    desk.task("add").enqueue(1)

    done = desk.call("doctor")

    assert (done.exit_code, done.stderr) == (1, "")
    first, _, *lines, _, last = done.stdout.splitlines()
    assert first == f"store: {desk.url}"
    levels = [words[0] for line in lines if (words := line.split())[0] in LEVELS]
    assert levels == sorted(levels, key=LEVELS.index)
    assert re.fullmatch(r"problem  queues +queues with due jobs that no worker serves: default \(1\)", lines[0])
    assert lines[1].split()[0] == "→"
    assert re.fullmatch(r"1 problem, \d+ warnings?, \d+ notes?", last)


def test_doctor_exits_with_0_if_there_is_no_problem_and_needs_no_app(desk: Desk) -> None:
    desk.task("add").enqueue(1)
    desk.work()
    (desk.folder / "app.py").write_text("raise SystemExit('nobody loads me')")

    document = desk.json("doctor", "--deep", "--store", desk.url)

    assert (document["ok"], document["store"]) == (True, desk.url)
    assert {"integrity", "workers"} <= {finding["what"] for finding in document["findings"]}
    assert all(set(finding) == {"what", "level", "found", "advice"} for finding in document["findings"])


def test_doctor_of_a_store_that_is_not_there(desk: Desk) -> None:
    assert "there is no store" in desk.mistake("doctor", "--store", "sqlite:///none.db", code=1)
    assert "cannot be reached" in desk.mistake("doctor", "--store", "redis://127.0.0.1:1/0", code=1)
    assert "in the memory of one process" in desk.mistake("doctor", "--store", "sqlite://")


def test_doctor_of_tables_of_another_version(desk: Desk) -> None:
    desk.task("add").enqueue(1)
    desk.app.close()
    with contextlib.closing(sqlite3.connect("laneway.db")) as connection, connection:
        connection.execute("update laneway_meta set version = 3")

    done = desk.call("doctor", "--json")

    assert done.exit_code == 1
    [layout] = json.loads(done.stdout)["findings"]
    assert (layout["what"], layout["level"]) == ("layout", "problem")
    assert "run: laneway migrate" in layout["found"]


def test_doctor_says_what_is_unsafe_about_a_server_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    if redisbench.why_not():
        pytest.skip(redisbench.why_not())
    url = redisbench.emptied().url
    command = desk.call("doctor", "--store", url)
    assert command.stdout.count("it keeps nothing on disk") == 1
    assert (command.exit_code, command.stderr, caplog.records) == (1, "", [])
