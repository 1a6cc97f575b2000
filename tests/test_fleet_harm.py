"""Jobs that harm: whatever one does to its process, its neighbours finish, and it alone is charged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetharm import Yard, open_yard, tell
from laneway import App, JobHandle
from workbench import SOON, until

CRASHED = "laneway.errors.JobCrashed"
TIMED_OUT = "laneway.errors.JobTimeout"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


def check_neighbours(yard: Yard, neighbours: list[JobHandle[Any]], dead_workers: set[int]) -> int:
    """All have finished, in their first attempt, and once unless their worker died under them. Return how many ran again."""
    runs = Counter(mark.job for mark in yard.marks("neighbour"))
    assert runs.keys() == {handle.id for handle in neighbours}
    assert {mark.attempt for mark in yard.marks("neighbour")} == {1}
    repeated = {id_ for id_, number in runs.items() if number > 1}
    first = {mark.job: mark.pid for mark in reversed(yard.marks("neighbour"))}
    assert {first[id_] for id_ in repeated} <= dead_workers, "somebody ran twice whose worker did not die"
    assert max(runs.values()) <= 2
    return len(repeated)


# -- crashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["crash", "crash_async"])
@pytest.mark.parametrize(
    ("how", "cause"), [("exit_now", "exit code 1"), ("segfault", "signal SIGSEGV"), ("kill_self", "signal SIGKILL")]
)
def test_a_job_that_kills_its_worker_is_dead_at_once_and_its_neighbours_finish(
    yard: Yard, task: str, how: str, cause: str
) -> None:
    fleet = yard.start()
    before = set(fleet.workers)

    harmful, neighbours = yard.surround(task, how)
    yard.until_state(harmful, "dead")
    first = yard.until_mark("crashing", harmful)
    took = time.monotonic() - first.at
    yard.until_done(neighbours)

    kind, message = yard.error(harmful)
    assert kind == CRASHED
    assert cause in message
    assert took < SOON, f"it was in dead after {took:.2f} s"  # silent workers are given 15 s
    assert len(yard.marks("crashing", harmful)) == 4  # once among others, then three times alone
    assert [mark.what for mark in yard.marks(job=harmful) if mark.what != "crashing"] == ["died of JobCrashed"]
    again = check_neighbours(yard, neighbours, before)
    assert again <= 4, "more ran again than the dead worker had slots"
    assert yard.app.inspect.counts()["dead"] == 1
    assert yard.app.store_inspect.totals()["crashed"] >= 1
    fleet.until_workers(2)
    tell(f"{task} {how}: dead after {took:.3f} s, {again} neighbours ran again")


GATHERING = """
import os


@app.collector(name="gather", max_lanes=5)
def gather(lanes: dict[str, list[int]]) -> None:
    with open(os.environ["GATHERED"], "a") as file:
        file.writelines(f"{lane} {payload}\\n" for lane, payloads in lanes.items() for payload in payloads if payload != 13)
    if any(13 in payloads for payloads in lanes.values()):
        os._exit(9)
"""


def test_of_a_collectors_lanes_only_the_payload_that_kills_its_worker_is_charged(yard: Yard) -> None:
    path, gathered, app = yard.write(GATHERING), yard.folder / "gathered", yard.app

    @app.collector(name="gather")
    def gather(lanes: dict[str, list[int]]) -> None: ...

    gather.enqueue_many([("a", 1), ("bad", 13), ("bad", 14), ("c", 3)])
    yard.start(app_name=str(path), ready=False, GATHERED=str(gathered))
    until(lambda: app.inspect.counts()["dead"] == sum(app.inspect.counts().values()) == 1)

    (dead,) = app.inspect.jobs("dead")
    assert (dead.lane, dead.args, dead.errors[-1].kind) == ("bad", [13], CRASHED)
    assert {line.split()[0] for line in gathered.read_text().splitlines()} == {"a", "bad", "c"}
    assert app.stats.totals()["processed"] == 3


@pytest.mark.parametrize("how", ["exit_now", "segfault", "kill_self"])
def test_an_isolated_job_that_crashes_harms_no_worker(yard: Yard, how: str) -> None:
    fleet = yard.start()
    workers = set(fleet.until_workers(2))

    harmful, neighbours = yard.surround("crash_isolated", how)
    yard.until_state(harmful, "dead")
    took = time.monotonic() - yard.marks("crashing", harmful)[0].at
    yard.until_done(neighbours)

    assert yard.error(harmful)[0] == CRASHED
    assert len(yard.marks("crashing", harmful)) == 3
    assert check_neighbours(yard, neighbours, set()) == 0
    assert set(fleet.workers) == workers
    assert took < SOON
    tell(f"isolated {how}: dead after {took:.3f} s")


def test_a_job_that_crashes_its_worker_once_and_then_runs_alone_is_done(yard: Yard) -> None:
    fleet = yard.start()
    before = set(fleet.workers)

    harmful, neighbours = yard.surround("crash_first", "segfault")
    yard.until_done([harmful, *neighbours])

    assert len(yard.marks("crashing", harmful)) == 2
    assert yard.marks("survived", harmful)[0].attempt == 1  # a crash among others is not counted
    assert yard.marks("survived", harmful)[0].pid not in {*before, *fleet.workers}  # it ran alone
    assert yard.app.inspect.counts()["dead"] == 0
    check_neighbours(yard, neighbours, before)


def test_two_suspects_in_one_worker_are_told_apart(yard: Yard) -> None:
    """The one that held still is done, the one that crashed is dead."""
    yard.start(processes=1, slots=2)
    innocent = yard.enqueue("hold", "go")
    yard.until_mark("holding", innocent)

    guilty = yard.enqueue("crash", "kill_self")
    yard.until_state(guilty, "dead")
    yard.until_mark("holding", innocent, times=2)
    yard.gate("go").touch()

    yard.until_done([innocent])
    assert {mark.attempt for mark in yard.marks(job=innocent)} == {1}


def test_a_crash_in_a_lane_lets_the_lane_go_on_in_order(yard: Yard) -> None:
    path = yard.write(
        "import os\nfrom pathlib import Path\n"
        "@app.task(lane='lane')\n"
        "def step(lane: str, n: int) -> None:\n"
        f"    with open({str(yard.folder / 'order')!r}, 'a') as f: f.write(f'{{n}} ')\n"
        "    if n == 2: os._exit(3)\n"
    )
    fleet = yard.start(app_name=str(path), ready=False)
    sender = App(yard.app.url)
    task = sender.task(name="app.step", lane="lane")(_step)
    handles = [task.enqueue("a", n) for n in range(5)]
    sender.close()

    yard.until_state(handles[2], "dead")
    yard.until_done([handles[4]])

    assert (yard.folder / "order").read_text().split() == ["0", "1", "2", "2", "2", "2", "3", "4"]
    fleet.until_workers(2)


def _step(lane: str, n: int) -> None: ...


# -- memory ------------------------------------------------------------------------------------------------------


def test_memory_beyond_a_limit_inside_a_job_is_an_ordinary_failure(yard: Yard) -> None:
    fleet = yard.start()
    workers = set(fleet.workers)

    harmful, neighbours = yard.surround("eat_limited")
    yard.until_state(harmful, "dead")
    yard.until_done(neighbours)

    assert yard.error(harmful)[0] == "MemoryError"
    assert check_neighbours(yard, neighbours, set()) == 0
    assert set(fleet.workers) == workers


def test_a_worker_with_too_much_memory_is_replaced_after_its_jobs_and_never_amid_one(yard: Yard) -> None:
    fleet = yard.start("--max-memory", "200M", "--beat", "0.1", processes=1)
    (old,) = fleet.workers
    yard.until_done([yard.enqueue("neighbour")])  # one that has done nothing would be followed by its like

    harmful = yard.enqueue("eat", 200, "go")
    yard.until_mark("holding", harmful)
    fleet.until_said(r"has \d+ MiB, more than --max-memory allows")
    until(lambda: len(fleet.workers) == 2, "a new worker beside the old one")
    until(lambda: "stopping" in [w.phase for w in yard.app.inspect.workers() if w.pid == old], "the old one to claim no more")
    assert harmful.state() == "running"
    neighbours = [yard.enqueue("neighbour") for _ in range(40)]
    yard.until_done(neighbours)
    assert old in fleet.workers
    assert old not in {mark.pid for mark in yard.marks("neighbour")[1:]}
    yard.gate("go").touch()

    yard.until_done([harmful])
    until(lambda: old not in fleet.workers, "the old worker's end")
    assert len(yard.marks("holding", harmful)) == len(yard.marks("held", harmful)) == 1


# -- forks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["fork_and_return", "fork_async"])
def test_a_child_that_returns_from_a_job_ends_and_the_job_is_its_parents(yard: Yard, task: str) -> None:
    fleet = yard.start()

    harmful, neighbours = yard.surround(task)
    yard.until_done([harmful, *neighbours])

    assert len(yard.marks("parent", harmful)) == 1
    assert check_neighbours(yard, neighbours, set()) == 0
    assert len(fleet.members()) == 4


def test_a_child_that_raises_in_a_job_ends_with_1_and_the_job_is_its_parents(yard: Yard) -> None:
    fleet = yard.start()

    harmful, neighbours = yard.surround("fork_and_raise")
    yard.until_done([harmful, *neighbours])

    assert len(yard.marks("child 1", harmful)) == 1
    assert check_neighbours(yard, neighbours, set()) == 0
    assert len(fleet.members()) == 4


# -- the interpreter held ----------------------------------------------------------------------------------------


def test_a_job_that_holds_the_interpreter_for_longer_than_the_limits_is_not_taken_for_dead(yard: Yard) -> None:
    fleet = yard.start("--beat", "0.2", processes=1, slots=2, HARM_DEAD_AFTER="1")
    observer = yard.start("--beat", "0.2", processes=1, HARM_DEAD_AFTER="1")
    for seconds in (4, 8, 16):  # on a busy machine its neighbours may need longer
        harmful = yard.enqueue("hold_the_interpreter", seconds)
        yard.until_mark("holding", harmful)
        neighbours = [yard.enqueue("neighbour") for _ in range(40)]
        yard.until_done(neighbours)
        if not yard.marks("held", harmful):
            break
    else:
        pytest.fail("this showed nothing: it had let go before its neighbours were done")
    yard.until_done([harmful])

    assert len(yard.marks("holding", harmful)) == len(yard.marks("held", harmful)) == 1
    held = yard.marks("held", harmful)[0].at - yard.marks("holding", harmful)[0].at
    assert held > 0.9 * seconds
    assert yard.app.store_inspect.totals()["recovered"] == 0
    for each in (fleet, observer):
        assert "taken for dead" not in each.said
        assert "is dead" not in each.said
