"""A fleet's life: how it starts, stops, replaces its workers, and what it tells."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

import laneway
from fleetbench import signal_all
from fleetharm import Fleet, Yard, open_yard, tell
from laneway import App
from laneway.errors import UnknownWorker
from laneway.fleet.member import Member
from laneway.fleet.position import Position, pause
from laneway.worker.board import Board
from laneway.worker.session import Session
from workbench import ALL_DONE, DEADLINE, SOON, until, url


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# -- starting ----------------------------------------------------------------------------------------------------


BROKEN = {
    "an error": ("raise ValueError('no such thing')", "ValueError: no such thing"),
    "another syntax": ("def broken(:", "SyntaxError"),
    "an exit": ("import sys; sys.exit(3)", "it ends the program"),
    "a crash": ("import ctypes; ctypes.string_at(0)", "its process ended with signal SIGSEGV"),
    "a hard exit": ("import os; os._exit(0)", "its process ended with exit code 0"),
    "a missing module": ("import there_is_no_such_module", "there_is_no_such_module"),
    "an odd exception": ("raise BaseException('odd')", "BaseException: odd"),
}


@pytest.mark.parametrize(("code", "said"), BROKEN.values(), ids=list(BROKEN))
def test_an_app_that_cannot_be_loaded_is_one_line_and_the_end(yard: Yard, code: str, said: str) -> None:
    fleet = yard.start(app_name=str(yard.write(code)), ready=False)

    assert fleet.wait() == 2
    (line,) = fleet.said.splitlines()
    assert line.startswith("laneway: ")
    assert said in line
    fleet.assert_gone()


#: In the supervisor: another Python for its zygotes.
OTHER_PYTHON = """
import sys
if "worker" in sys.argv:
    sys.executable = {!r}
"""


@pytest.mark.parametrize(("python", "said"), [("missing", "No such file or directory"), ("not-executable", "Permission denied")])
def test_a_python_that_cannot_be_started_is_one_line_and_the_end(yard: Yard, python: str, said: str) -> None:
    path = yard.folder / python
    (yard.folder / "not-executable").touch()
    (yard.folder / "sitecustomize.py").write_text(OTHER_PYTHON.format(str(path)))
    fleet = yard.start(ready=False, PYTHONPATH=str(yard.folder))

    assert fleet.wait() == 2
    assert fleet.said == f'laneway: the Python that runs here, "{path}", cannot be started: {said}\n'
    fleet.assert_gone()


def test_a_python_that_is_replaced_while_a_fleet_runs_is_waited_for(yard: Yard) -> None:
    python = yard.folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (yard.folder / "sitecustomize.py").write_text(OTHER_PYTHON.format(str(python)))
    fleet = yard.start(processes=1, PYTHONPATH=str(yard.folder))
    (zygote,) = fleet.titled("zygote")

    python.rename(yard.folder / "away")
    signal_all([zygote], signal.SIGKILL)
    fleet.until_said('python", cannot be started: No such file or directory', times=2)
    (yard.folder / "away").rename(python)
    fleet.until_workers(1)

    fleet.stop()
    assert "Traceback" not in fleet.said


def test_a_pool_that_an_app_uses_while_it_is_loaded_works_in_each_worker_and_is_not_warned_of(yard: Yard) -> None:
    code = """
import threading
from laneway.pool import RoundRobin, WorkerPool

pool = WorkerPool(3, RoundRobin())
assert list(pool.map(abs, range(9))) == list(range(9))
threading.Thread(target=threading.Event().wait, name="stranger", daemon=True).start()

@app.task(keep_result=60)
def add() -> int:
    return sum(pool.map(abs, range(10)))
"""
    fleet = yard.start(app_name=str(yard.write(code)))

    assert yard.app.enqueue("app.add").result(timeout=60) == 45
    assert 'have started the thread "stranger"' in fleet.said
    assert "worker_" not in fleet.said


def test_a_store_in_memory_is_refused_in_one_line(yard: Yard) -> None:
    fleet = yard.start("--store", "sqlite://", ready=False)

    assert fleet.wait() == 2
    (line,) = fleet.said.splitlines()
    assert "sqlite:// lives in the memory of one process" in line


def test_a_worker_that_dies_at_its_start_is_started_again_with_a_growing_delay(yard: Yard) -> None:
    fleet = yard.start(processes=1, ready=False, HARM_ON_START="7")

    yard.until_mark("start", times=4)
    starts = [mark.at for mark in yard.marks("start")][:4]
    waited = [later - earlier for earlier, later in pairwise(starts)]
    tell(f"between starts: {', '.join(f'{seconds:.2f} s' for seconds in waited)}")
    chosen = [pause(failures) for failures in (1, 2, 3)]  # a busy machine may add to each
    assert chosen == [0.2, 0.4, 0.8]
    assert all(seconds >= least for seconds, least in zip(waited, chosen, strict=True)), (waited, chosen)
    fleet.until_said(r"worker 1 \(pid \d+\) ended with exit code 7")
    fleet.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_fleet_that_is_told_to_stop_while_it_loads_its_app_ends_cleanly(yard: Yard, number: signal.Signals) -> None:
    path = yard.write(f"import time\nopen({str(yard.gate('loading'))!r}, 'w').close()\ntime.sleep(600)")
    fleet = yard.start(app_name=str(path), ready=False)
    until(yard.gate("loading").exists, "the loading of the app")

    took = fleet.stop(number)

    assert took < SOON
    assert "Traceback" not in fleet.said


def test_processes_say_who_they_are(yard: Yard) -> None:
    fleet = yard.start()
    handle = yard.enqueue("hold_isolated", "go")
    yard.until_mark("holding", handle)

    titles = {process.pid: process.title for process in fleet.members()}

    assert titles.pop(fleet.pid) == f"laneway: supervisor of {yard.app.url}"
    assert sorted(titles.values()) == [
        f"laneway: isolated fleetharm.hold_isolated {handle.id}",
        f"laneway: worker 1 of 2, {yard.app.url}",
        f"laneway: worker 2 of 2, {yard.app.url}",
        f"laneway: zygote of {yard.app.url}",
    ]
    yard.gate("go").touch()
    yard.until_done([handle])


def test_a_thread_that_the_app_starts_when_imported_is_warned_about_by_name(yard: Yard) -> None:
    path = yard.write(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='stray cat', daemon=True).start()"
    )
    fleet = yard.start(app_name=str(path))

    fleet.until_said('have started the thread "stray cat"')


class Started:
    """A worker that a position had, with what its board says."""

    def __init__(self, *, running: bool = False, done: int = 0, ago: float = 0.0) -> None:
        self.board = Board(1)
        self.since = time.monotonic() - ago
        if running:
            self.board.enter(1, 1)
        self.board.count("done", done)


@pytest.mark.parametrize(
    ("life", "surprise", "waits"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"done": 1}, True, False),
        ({"running": True}, True, False),
        ({"ago": 60}, True, False),
    ],
    ids=["came to nothing", "was told", "has run a job", "crashed in its first job", "lived long"],
)
def test_only_after_a_worker_that_came_to_nothing_the_next_one_waits(life: dict[str, Any], surprise: bool, waits: bool) -> None:
    position = Position(1)
    member = position.member = cast("Member", Started(**life))

    position.left(member, surprise)

    assert vars(position)["member"] is None
    assert (position.free_at > time.monotonic()) == waits


def test_pauses_grow_up_to_half_a_minute_however_often_it_fails() -> None:
    position = Position(1)
    pauses: list[float] = []
    for _ in range(1500):  # for half a day
        position.member = cast("Member", Started())
        position.left(position.member, surprise=True)
        pauses.append(position.free_at - time.monotonic())

    assert pauses[0] < 0.3
    assert 29 < max(pauses) <= 30


def test_a_worker_outlasts_a_store_that_is_away_for_hours(tmp_path: Path) -> None:
    app = App(url(tmp_path))
    exchanger = Session(object(), app, 1, None, 1.0, 1.0)._exchanger
    exchanger._failures = 5000

    exchanger.wait_out(deadline=0.0)  # no time to wait here
    app.close()


# -- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_idle_fleet_stops_at_once(yard: Yard, number: signal.Signals) -> None:
    fleet = yard.start()

    took = fleet.stop(number)

    tell(f"{number.name}: an idle fleet stopped within {took:.3f} s")
    assert took < SOON
    assert len(yard.marks("stop")) == 2
    assert yard.app.inspect.workers() == []


def test_running_jobs_may_end_after_a_stop_and_nothing_new_is_claimed(yard: Yard) -> None:
    fleet = yard.start(slots=2)
    running = [yard.enqueue("hold", "go") for _ in range(4)]
    yard.until_mark("holding", times=4)

    fleet.process.send_signal(signal.SIGTERM)
    fleet.until_said("SIGTERM: stopping")
    until(lambda: {worker.phase for worker in yard.app.inspect.workers()} == {"stopping"})
    late = yard.enqueue("neighbour")
    yard.gate("go").touch()

    assert fleet.wait() == 0
    assert [handle.state() for handle in running] == ["done"] * 4
    assert (late.state(), yard.marks("neighbour")) == ("ready", [])


@pytest.mark.parametrize("task", ["hold", "hold_async", "hold_isolated"])
def test_what_does_not_end_in_time_goes_back_uncharged_when_its_process_has_ended(yard: Yard, task: str) -> None:
    fleet = yard.start("--shutdown-timeout", "0.5")
    handle = yard.enqueue(task, "go")
    run = yard.until_mark("holding", handle)

    took = fleet.stop()

    assert 0.4 < took < SOON
    assert handle.state() == "ready"
    assert yard.job(handle).attempt == 0
    with pytest.raises(ProcessLookupError):
        os.kill(run.pid, 0)
    again = yard.start(processes=1)
    second = yard.until_mark("holding", handle, times=2)
    assert second.attempt == 1
    assert (second.pid in again.workers) == (task != "hold_isolated"), "it is no suspect"
    yard.gate("go").touch()
    yard.until_done([handle])
    tell(f"{task}: stopped after {took:.3f} s with --shutdown-timeout 0.5")


def test_jobs_that_wait_inside_a_worker_are_back_at_once(yard: Yard) -> None:
    """Short jobs make it fetch ahead; then a long one blocks the only slot."""
    fleet = yard.start("--beat", "0.1", processes=1, slots=1)
    yard.until_done([yard.enqueue("neighbour") for _ in range(30)])
    sender = App(yard.app.url)
    hold, neighbour = sender.task(name="fleetharm.hold")(_hold), sender.task(name="fleetharm.neighbour")(_neighbour)
    sender.enqueue_many([hold.using(id="held").bind("go"), *(neighbour.using(id=f"n{n}").bind() for n in range(30))])
    sender.close()
    yard.until_mark("holding")

    ahead = yard.app.inspect.counts()["running"] - 1
    fleet.process.send_signal(signal.SIGTERM)
    # While the long one still runs: nobody waits for it.
    until(
        lambda: {worker.phase for worker in yard.app.inspect.workers()} == {"stopping"}
    )  # they may go back before it, and again
    until(lambda: yard.app.inspect.counts() == {**ALL_DONE, "ready": 30, "running": 1}, "their return")
    tell(f"{ahead} prefetched jobs were back")
    yard.gate("go").touch()

    assert fleet.wait() == 0
    assert yard.app.inspect.counts() == {**ALL_DONE, "ready": 30}


def _hold(gate: str) -> None: ...


def _neighbour() -> None: ...


def test_a_second_signal_ends_at_once(yard: Yard) -> None:
    fleet = yard.start()
    handles = [yard.enqueue(task, "go") for task in ("hold", "hold_async", "hold_isolated")]
    yard.until_mark("holding", times=3)

    fleet.process.send_signal(signal.SIGTERM)
    fleet.until_said("SIGTERM: stopping")
    took = fleet.stop()

    tell(f"a second signal: ended within {took:.3f} s")
    assert took < SOON
    assert {handle.state() for handle in handles} == {"ready"}
    assert {yard.job(handle).attempt for handle in handles} == {0}


def test_signals_one_after_another_never_spoil_the_exit_code(yard: Yard) -> None:
    """Somebody impatient presses Ctrl-C until it is over, and it may just have been over."""
    for _ in range(3):
        fleet = yard.start()
        while fleet.process.poll() is None:
            fleet.process.send_signal(signal.SIGINT)
            time.sleep(0.002)
        assert fleet.wait() == 0, fleet.said
        assert "Traceback" not in fleet.said
        fleet.assert_gone()


def test_an_interrupt_of_the_whole_process_group_counts_once(yard: Yard) -> None:
    fleet = yard.start()
    handles = [yard.enqueue(task, "go") for task in ("hold", "hold_async", "hold_isolated")]
    yard.until_mark("holding", times=3)

    os.killpg(fleet.pid, signal.SIGINT)
    fleet.until_said("SIGINT: stopping")
    assert {handle.state() for handle in handles} == {"running"}
    yard.gate("go").touch()

    assert fleet.wait() == 0
    assert {handle.state() for handle in handles} == {"done"}
    assert "again" not in fleet.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_one_worker_lets_it_end_its_jobs_and_be_replaced(yard: Yard, number: signal.Signals) -> None:
    fleet = yard.start(processes=1, slots=2)
    (old,) = fleet.workers
    handle = yard.enqueue("hold", "go")
    yard.until_mark("holding", handle)

    os.kill(old, number)
    until(lambda: len(fleet.workers) == 2, "a new worker beside the old one")
    yard.until_done([yard.enqueue("neighbour")])
    assert handle.state() == "running"
    yard.gate("go").touch()

    yard.until_done([handle])
    until(lambda: old not in fleet.workers, "the old worker's end")
    assert old not in {mark.pid for mark in yard.marks("neighbour")}
    assert len(fleet.until_workers(1)) == 1


def test_a_signal_to_one_worker_with_no_time_left_makes_its_jobs_no_suspects(yard: Yard) -> None:
    fleet = yard.start("--shutdown-timeout", "0", processes=1, slots=2)
    handle = yard.enqueue("hold", "go")
    first = yard.until_mark("holding", handle)

    os.kill(first.pid, signal.SIGTERM)
    second = yard.until_mark("holding", handle, times=2)

    assert second.pid in fleet.workers, "it runs alone, as if it had crashed its worker"
    yard.gate("go").touch()
    yard.until_done([handle])
    assert yard.app.store_inspect.totals().get("crashed", 0) == 0


def test_a_worker_that_hangs_in_its_on_stop_is_ended(yard: Yard) -> None:
    path = yard.write("import time\n@app.on_stop\ndef hang() -> None:\n    time.sleep(600)\n")
    fleet = yard.start("--shutdown-timeout", "0.2", app_name=str(path))

    assert fleet.stop() < SOON


# -- replacing ---------------------------------------------------------------------------------------------------


def test_a_process_runs_exactly_as_many_jobs_as_it_may(yard: Yard) -> None:
    for _ in range(105):
        yard.enqueue("neighbour")
    fleet = yard.start("--max-jobs", "10", "--burst", processes=1, slots=4, ready=False)

    assert fleet.wait() == 0
    per_process = Counter(mark.pid for mark in yard.marks("neighbour"))
    assert yard.app.inspect.counts() == ALL_DONE
    assert sorted(per_process.values()) == [5, *[10] * 10]
    assert len({mark.job for mark in yard.marks("neighbour")}) == 105


def test_replacing_workers_leaves_no_descriptor_open(yard: Yard) -> None:
    fleet = yard.start("--max-jobs", "1", processes=1, slots=1)
    (zygote,) = fleet.titled("zygote")

    def run(number: int) -> None:
        yard.until_done([yard.enqueue("neighbour") for _ in range(number)])
        until(lambda: len(fleet.workers) == 1, "one worker alone")
        fleet.until_workers(1)

    run(3)
    before = (descriptors(fleet.pid), descriptors(zygote))
    run(25)
    until(lambda: max(descriptors(fleet.pid), descriptors(zygote)) <= max(before) + 3, f"as few descriptors as before, {before},")

    assert len({mark.pid for mark in yard.marks("neighbour")}) == 28


def test_isolated_runs_leave_no_descriptor_open(yard: Yard) -> None:
    fleet = yard.start(processes=1, slots=2)
    (zygote,), (worker,) = fleet.titled("zygote"), fleet.workers
    yard.gate("go").touch()
    yard.until_done([yard.enqueue("hold_isolated", "go") for _ in range(4)])
    until(lambda: not fleet.titled("isolated"))

    def now() -> tuple[int, ...]:
        return descriptors(fleet.pid), descriptors(zygote), descriptors(worker)

    before = now()
    yard.until_done([yard.enqueue("hold_isolated", "go") for _ in range(30)])
    until(lambda: max(now()) <= max(before) + 3, f"as few descriptors as before, {before},")


def test_a_burst_of_two_processes_ends_only_when_both_are_idle(yard: Yard) -> None:
    path = yard.write(
        "import os, time\n"
        "@app.task\n"
        "def chain(n: int) -> None:\n"
        "    time.sleep(0.02)\n"
        "    if n: chain.enqueue(n - 1)\n"
        f"    with open({str(yard.folder / 'links')!r}, 'a') as f: f.write(f'{{n}} {{os.getpid()}}\\n')\n"
    )
    for _ in range(3):
        yard.enqueue("app.chain", 15)
    fleet = yard.start("--burst", app_name=str(path), ready=False)

    assert fleet.wait() == 0
    assert yard.app.inspect.counts() == ALL_DONE
    links = [line.split() for line in (yard.folder / "links").read_text().splitlines()]
    assert Counter(number for number, _ in links) == dict.fromkeys(map(str, range(16)), 3)


def test_a_burst_with_nothing_to_do_ends_soon(yard: Yard) -> None:
    fleet = yard.start("--burst", ready=False)

    assert fleet.wait() == 0


def test_a_worker_that_is_stopped_alone_loses_its_jobs_to_others_and_can_change_nothing_afterwards(yard: Yard) -> None:
    """As a debugger does, or somebody with SIGSTOP. Its supervisor lives, and must not speak for it."""
    fleet = yard.start("--beat", "0.1", HARM_DEAD_AFTER="0.5")
    handle = yard.enqueue("hold", "go")
    first = yard.until_mark("holding", handle)

    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = yard.until_mark("holding", handle, times=2)
        tell(f"a stopped worker's job ran again {second.at - first.at:.2f} s after it had started, with dead_after=0.5")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    yard.gate("go").touch()
    yard.until_done([handle])
    yard.until_mark("held", handle, times=2)  # code that was frozen cannot be un-run

    assert second.pid != first.pid
    assert second.attempt == 1
    fleet.until_workers(2)
    yard.until_done([yard.enqueue("neighbour") for _ in range(20)])
    until(lambda: yard.app.store_inspect.totals()["refused"] == 1, "the refusal of the first run's outcome")
    assert yard.app.stats.totals()["processed"] == 21


# -- stacks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["supervisor", "worker"])
def test_a_signal_for_stacks_names_a_file_with_what_runs_and_the_process_lives_on(yard: Yard, who: str) -> None:
    fleet = yard.start()
    handle = yard.enqueue("hold", "go")
    run = yard.until_mark("holding", handle)

    os.kill(fleet.pid if who == "supervisor" else run.pid, signal.SIGTTIN)
    named = fleet.until_said(rf"\(pid {run.pid}\) are in (\S+)")

    text = Path(named[1]).read_text()
    assert re.search(r"in (wait_for|mark)\b", text)
    assert "fleetharm.py" in text
    yard.gate("go").touch()
    yard.until_done([handle])
    assert run.pid in fleet.workers


def test_stacks_can_be_asked_for_while_threads_run(yard: Yard) -> None:
    fleet = yard.start(slots=4)
    handles = [yard.enqueue("call_around", "go") for _ in range(4)]
    run, *_ = [yard.until_mark("holding", handle) for handle in handles]

    for _ in range(500):  # from a signal's own handler, one in some hundred of them crashed the process
        os.kill(run.pid, signal.SIGTTIN)
        time.sleep(0.002)
    yard.gate("go").touch()

    yard.until_done(handles)
    assert run.pid in fleet.workers


def test_a_signal_for_stacks_to_the_whole_group_stops_nobody(yard: Yard) -> None:
    fleet = yard.start()
    handle = yard.enqueue("hold_isolated", "go")
    yard.until_mark("holding", handle)

    os.killpg(fleet.pid, signal.SIGTTIN)
    fleet.until_said(r"the stacks of worker \d \(pid \d+\) are in", times=2)
    yard.gate("go").touch()

    yard.until_done([handle])
    assert {process.state for process in fleet.members()} <= set("SRD")


# -- what the store shows and asks -------------------------------------------------------------------------------


def test_workers_are_shown_with_who_they_are_and_what_they_run(yard: Yard) -> None:
    fleet = yard.start("--beat", "0.1", "-q", "default,mail", slots=3)
    handle = yard.enqueue("hold", "go")
    run = yard.until_mark("holding", handle)
    since = time.time()

    def is_shown() -> bool:
        return any(job.started_at is not None for worker in yard.app.inspect.workers() for job in worker.jobs)

    until(is_shown, "the run in the list of workers")
    first, second = sorted(yard.app.inspect.workers(), key=lambda worker: worker.pid != run.pid)

    assert {first.pid, second.pid} == set(fleet.workers)
    for worker in (first, second):
        assert (worker.host, worker.version, worker.slots) == (os.uname().nodename, laneway.__version__, 3)
        assert worker.queues == ("default", "mail")
        assert worker.phase == "working"
        assert worker.uptime is not None
        assert 0 < worker.uptime < DEADLINE
        assert worker.beat_age is not None
        assert worker.beat_age < SOON
        assert 5 << 20 < worker.pss <= worker.rss < 500 << 20
    assert first.fleet == second.fleet != ""
    (job,) = first.jobs
    assert (job.id, job.task) == (handle.id, "fleetharm.hold")
    assert job.started_at is not None
    assert abs(job.started_at.timestamp() - since) < SOON
    assert second.jobs == []
    yard.gate("go").touch()


def test_a_quiet_worker_claims_nothing_more_and_goes_on_with_what_runs(yard: Yard) -> None:
    fleet = yard.start("--beat", "0.1")
    handle = yard.enqueue("hold", "go")
    run = yard.until_mark("holding", handle)
    (busy,) = [worker for worker in yard.app.inspect.workers() if worker.pid == run.pid]

    yard.app.inspect.quiet(busy)
    until(lambda: "quiet" in {worker.phase for worker in yard.app.inspect.workers() if worker.id == busy.id}, "its quiet")
    yard.until_done([yard.enqueue("neighbour") for _ in range(20)])

    assert run.pid not in {mark.pid for mark in yard.marks("neighbour")}
    assert handle.state() == "running"
    yard.gate("go").touch()
    yard.until_done([handle])
    assert run.pid in fleet.workers


def test_a_worker_that_is_told_to_stop_ends_its_jobs_and_is_not_replaced(yard: Yard) -> None:
    fleet = yard.start("--beat", "0.1")
    handle = yard.enqueue("hold", "go")
    run = yard.until_mark("holding", handle)
    workers = {worker.pid: worker for worker in yard.app.inspect.workers()}

    yard.app.inspect.stop(workers[run.pid])
    fleet.until_said("was told to stop, and is not replaced")
    assert handle.state() == "running"
    yard.gate("go").touch()
    yard.until_done([handle])
    until(lambda: run.pid not in fleet.workers, "its end")
    assert len(fleet.workers) == 1
    until(lambda: len(yard.app.inspect.workers()) == 1, "the store to forget it")
    with pytest.raises(UnknownWorker):
        yard.app.inspect.stop(workers[run.pid])

    (last,) = yard.app.inspect.workers()
    yard.app.inspect.stop(last)
    assert fleet.wait() == 0  # a fleet without workers is over


def test_a_cancelled_job_is_cancelled_where_it_runs(yard: Yard) -> None:
    path = yard.write(
        "import asyncio, os, time\n"
        "from pathlib import Path\n"
        f"folder = Path({str(yard.folder)!r})\n"
        "@app.task\n"
        "async def on_the_loop() -> None:\n"
        "    (folder / 'loop').touch()\n"
        "    await asyncio.sleep(600)\n"
        "@app.task(isolate=True)\n"
        "def apart() -> None:\n"
        "    (folder / 'apart.new').write_text(str(os.getpid()))\n"
        "    (folder / 'apart.new').rename(folder / 'apart')\n"
        "    time.sleep(600)\n"
        "@app.task\n"
        "def in_a_thread() -> None:\n"
        "    (folder / 'thread').touch()\n"
        "    while not current_job().cancelled: time.sleep(0.01)\n"
        "    current_job().log('never written')\n"
    )
    fleet = yard.start("--beat", "0.1", app_name=str(path))
    handles = [yard.enqueue(f"app.{name}") for name in ("on_the_loop", "apart", "in_a_thread")]
    for name in ("loop", "apart", "thread"):
        until(yard.gate(name).exists, f"the start in {name}")
    pid = int(yard.gate("apart").read_text())
    workers = set(fleet.workers)

    since = time.monotonic()
    for handle in handles:
        assert handle.cancel()
    for handle in handles:
        yard.until_state(handle, "cancelled")

    tell(f"cancelled within {time.monotonic() - since:.3f} s, with a beat of 0.1 s")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert set(fleet.workers) == workers


# -- reloading ---------------------------------------------------------------------------------------------------

VERSION = """
import time
from pathlib import Path
folder = Path({folder!r})
@app.task
def tell(name: str) -> None:
    with (folder / "told").open("a") as f: f.write(f"{{name}} {version}\\n")
@app.task
def hold() -> None:
    (folder / "held").touch()
    while not (folder / "go").exists(): time.sleep(0.01)
    with (folder / "told").open("a") as f: f.write("hold {version}\\n")
"""


def test_a_changed_file_is_loaded_and_the_old_worker_ends_its_job(yard: Yard) -> None:
    def write(version: int) -> Path:
        path = yard.write(VERSION.format(folder=str(yard.folder), version=version))
        os.utime(path, (1e9, 1e9))  # compiled code is known by a second and a size: both versions have the same
        return path

    def told(name: str) -> str:
        yard.until_done([yard.enqueue("app.tell", name)])
        return (yard.folder / "told").read_text().splitlines()[-1]

    fleet = yard.start("--reload", processes=1, slots=2, app_name=str(write(1)))
    (old,) = fleet.workers
    held = yard.enqueue("app.hold")
    until(yard.gate("held").exists, "the start of the job")
    assert told("a") == "a 1"

    write(2)
    fleet.until_said(r"app\.py has changed: loading the app again")
    until(lambda: len(fleet.workers) == 2, "a new worker beside the old one")
    until(lambda: told("b") == "b 2", "the new code")
    assert held.state() == "running"

    yard.write("def broken(:")
    failed = fleet.until_said("^.* ERROR .*SyntaxError.*$")
    assert "app.py, line 3" in failed[0]
    assert told("c") == "c 2"

    write(3)
    fleet.until_said("has changed: loading the app again", times=3)
    until(lambda: told("d") == "d 3", "the code that works again")
    yard.gate("go").touch()
    yard.until_done([held])
    until(lambda: old not in fleet.workers and len(fleet.workers) == 1, "the end of the old ones")
    assert "hold 1" in (yard.folder / "told").read_text().splitlines()
    until(lambda: len(fleet.titled("zygote")) == 1, "the end of the old zygotes")
    assert "Traceback" not in fleet.said


def test_a_changed_file_that_crashes_when_loaded_is_told_of_and_the_old_code_goes_on(yard: Yard) -> None:
    path = yard.write(VERSION.format(folder=str(yard.folder), version=1))
    fleet = yard.start("--reload", processes=1, app_name=str(path))

    yard.write("import ctypes; ctypes.string_at(0)")
    fleet.until_said("has changed: loading the app again")

    fleet.until_said(r"ERROR .*cannot be loaded.*signal SIGSEGV")
    yard.until_done([yard.enqueue("app.tell", "a")])


# -- what the zygote meets ---------------------------------------------------------------------------------------


def test_a_fork_that_fails_harms_neither_the_fleet_nor_its_jobs(yard: Yard) -> None:
    """No memory or too many processes, for a moment."""
    path = yard.write(
        "import errno, os, time\n"
        "from pathlib import Path\n"
        f"folder = Path({str(yard.folder)!r})\n"
        "fork = os.fork\n"
        "def tight() -> int:\n"
        "    if (folder / 'tight').exists():\n"
        "        (folder / 'tight').unlink()\n"
        "        raise OSError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "    return fork()\n"
        "os.fork = tight\n"
        "@app.task\n"
        "def hold() -> None:\n"
        "    (folder / 'held').touch()\n"
        "    with (folder / 'starts').open('a') as f: f.write('.')\n"
        "    while not (folder / 'go').exists(): time.sleep(0.01)\n"
        "@app.task(isolate=True)\n"
        "def apart() -> None: ...\n"
    )
    fleet = yard.start(app_name=str(path), processes=1)
    (worker,) = fleet.workers
    held = yard.enqueue("app.hold")
    until(yard.gate("held").exists, "the start of the job")

    yard.gate("tight").touch()
    isolated = yard.enqueue("app.apart")
    yard.until_done([isolated])
    yard.gate("go").touch()
    yard.until_done([held])

    assert fleet.workers == [worker], "the whole fleet was lost for one fork"
    assert yard.gate("starts").read_text() == "."


def test_nothing_of_a_fleet_is_left_when_its_supervisor_is_killed(yard: Yard) -> None:
    fleet = yard.start()
    handles = [yard.enqueue(task, "go") for task in ("hold", "hold_async", "hold_isolated")]
    yard.until_mark("holding", times=3)

    signal_all([fleet.pid], signal.SIGKILL)

    fleet.wait()
    until(lambda: not fleet.members(), "the end of all its processes")
    other = yard.start(processes=1)
    yard.gate("go").touch()
    yard.until_done(handles)
    _assert_healthy(other)


def _assert_healthy(fleet: Fleet) -> None:
    assert not re.search("Traceback|ERROR", fleet.said), fleet.said
