"""A stop always ends, whatever process of the fleet does not answer: zygote, worker, isolated run, store."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import redisbench
from fleetbench import signal_all
from fleetharm import Fleet, Yard, open_yard
from laneway import App
from laneway.fleet.member import Member
from laneway.fleet.messages import Ended, Fork, MessageSocket
from laneway.fleet.settings import FleetSettings
from laneway.fleet.supervisor import LAST_WRITES
from laneway.fleet.zygote_handle import UNKILLABLE
from laneway.store.contract import BeatReply
from workbench import until

#: What a stop may take beyond its timeout, on a machine that is busy, seconds.
GRACE = 8.0
#: How long "at once" may take there.
AT_ONCE = 6.0


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as made:
        yield made


def freeze(fleet: Fleet, *titles: str) -> list[int]:
    """Stop processes of a fleet, and see that they stand."""
    pids = [pid for title in titles for pid in fleet.titled(title)]
    assert len(pids) >= len(titles), fleet.members()
    signal_all(pids, signal.SIGSTOP)
    until(lambda: {p.state for p in fleet.members() if p.pid in pids} == {"T"}, "their standing still")
    return pids


def with_pending_fork(yard: Yard, *options: str) -> Fleet:
    """Return a fleet whose zygote stands still and was asked for a worker."""
    fleet = yard.start(*options, processes=1)
    yard.until_done([yard.enqueue("neighbour")])  # so that the next worker is asked for at once
    (worker,) = fleet.workers
    freeze(fleet, "zygote")
    os.kill(worker, signal.SIGKILL)
    fleet.until_said(r"worker 1 \(pid \d+\) ended with")
    until(lambda: shared_files(fleet), "the wish for another worker")
    return fleet


def shared_files(fleet: Fleet) -> int:
    """Return how many files in memory the supervisor has: some for each worker that it has, or has asked for."""
    links: list[str] = []
    for entry in os.scandir(f"/proc/{fleet.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(entry.path))
    return sum("memfd:laneway" in link for link in links)


def test_a_zygote_that_does_not_answer_while_a_fork_is_pending_does_not_keep_a_fleet_from_stopping(yard: Yard) -> None:
    fleet = with_pending_fork(yard, "--shutdown-timeout", "0.5")

    assert fleet.stop() < 0.5 + GRACE
    fleet.until_said(r"zygote \(pid \d+\) did not fork worker 1 before its deadline; sending SIGKILL")


def test_a_second_signal_ends_at_once_though_the_zygote_does_not_answer(yard: Yard) -> None:
    fleet = with_pending_fork(yard)

    fleet.process.send_signal(signal.SIGTERM)
    fleet.until_said("SIGTERM: stopping")

    assert fleet.stop() < AT_ONCE


@pytest.mark.parametrize("signals", [1, 2])
def test_a_fleet_whose_processes_all_stand_still_stops(yard: Yard, signals: int) -> None:
    fleet = yard.start("--shutdown-timeout", "0.5" if signals == 1 else "60")
    handles = [yard.enqueue(task, "go") for task in ("hold", "hold_isolated")]
    yard.until_mark("holding", times=2)
    freeze(fleet, "zygote", "worker", "isolated")

    if signals == 2:
        fleet.process.send_signal(signal.SIGTERM)
        fleet.until_said("SIGTERM: stopping")
    took = fleet.stop()

    assert took < (0.5 + GRACE if signals == 1 else AT_ONCE)
    assert {handle.state() for handle in handles} == {"ready"}
    assert {yard.job(handle).attempt for handle in handles} == {0}


def test_a_zygote_that_stands_still_before_it_has_loaded_the_app_does_not_keep_a_fleet_from_stopping(yard: Yard) -> None:
    path = yard.write("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    fleet = yard.start(app_name=str(path), ready=False)
    until(lambda: "T" in {process.state for process in fleet.members()}, "its standing still")

    assert fleet.stop() < AT_ONCE


def test_a_new_zygote_that_stands_still_does_not_keep_a_fleet_from_stopping(yard: Yard) -> None:
    path = yard.write("")
    fleet = yard.start("--reload", processes=1, app_name=str(path))
    yard.write("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    until(lambda: "T" in {process.state for process in fleet.members()}, "its standing still")

    assert fleet.stop() < AT_ONCE


#: In the supervisor: as if the kernel did not let go of a process, which no test can bring about.
NO_KILL = """
import sys
if "worker" in sys.argv:
    import laneway.fleet.member
    laneway.fleet.member.Process.kill = lambda self, number=9: None
"""


def test_a_process_that_does_not_even_end_when_killed_is_left_behind(yard: Yard) -> None:
    (yard.folder / "sitecustomize.py").write_text(NO_KILL)
    fleet = yard.start(processes=1, PYTHONPATH=str(yard.folder))
    freeze(fleet, "worker")

    fleet.process.send_signal(signal.SIGTERM)
    fleet.until_said("SIGTERM: stopping")
    assert fleet.stop() < UNKILLABLE + AT_ONCE

    fleet.until_said(r"worker 1 \(pid \d+\) did not exit after SIGKILL; leaving it")


# -- a wire that nobody reads ------------------------------------------------------------------------------------


def test_a_worker_that_does_not_read_keeps_nobody_waiting_and_hears_every_command_when_it_reads() -> None:
    member = Member(FleetSettings(slots=1), 1, "w", "1.0")
    assert member._theirs is not None
    theirs = MessageSocket(member._theirs[1])
    for number in range(20_000):
        member.tell(BeatReply(known=True, marks={"j": "cancel"}, commands=("quiet",) if number == 10_000 else ()))
    member.tell(BeatReply(known=False, marks={}, commands=()))
    member.stop("drain", float("inf"))

    heard: list[BeatReply] = []
    while new := theirs.read():
        heard += [message for message in new if isinstance(message, BeatReply)]
        member.go_on_telling()

    assert {command for one in heard for command in one.commands} == {"quiet", "drain"}
    assert [one.known for one in heard].count(False) == 1
    assert heard[0].marks == {"j": "cancel"}
    member.close()


@pytest.fixture
def wire() -> Iterator[tuple[MessageSocket, MessageSocket]]:
    ours, end = MessageSocket.pair()
    theirs = MessageSocket(end)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_message_that_is_larger_than_a_wire_holds_goes_in_portions(wire: tuple[MessageSocket, MessageSocket]) -> None:
    ours, theirs = wire
    plan = FleetSettings(queues=tuple(f"queue-{number}" for number in range(50_000)))

    assert ours.post(plan)
    assert not ours.post(FleetSettings(loop="second"))
    read: list[object] = []
    while not read:
        read += theirs.read()
        ours.read()

    assert read == [plan]
    assert ours.post(FleetSettings(loop="second"))
    assert theirs.read() == [FleetSettings(loop="second")]


def test_a_worker_that_a_full_wire_had_no_room_for_is_asked_for_later(wire: tuple[MessageSocket, MessageSocket]) -> None:
    ours, theirs = wire
    member = Member(FleetSettings(slots=1), 1, "w", "1.0")
    while ours.post(Ended(1, 0)):
        pass

    member.fork(ours)
    theirs.read()
    member.fork(ours)
    member.fork(ours)

    assert theirs.read() == [Fork("w", 1)]
    board, stacks, end = theirs.take_fds(3)
    member.close()
    for fd in (board, stacks, end):
        os.close(fd)


# -- a store that does not answer --------------------------------------------------------------------------------


ON_REDIS = """
import os, time
app = App({url!r})
@app.task
def hold() -> None:
    open({mark!r}, "w").close()
    time.sleep(600)
"""


#: In the supervisor: a shorter wait for what the store did not answer.
SHORT_WAIT = """
import sys
if "worker" in sys.argv:
    import laneway.fleet.supervisor
    laneway.fleet.supervisor.LAST_WRITES = 1.5
"""


@pytest.fixture
def holding(yard: Yard) -> Iterator[Fleet]:
    """A fleet that runs a job, and whose store stands still."""
    server = redisbench.Server()
    path = yard.write(ON_REDIS.format(url=server.url, mark=str(yard.gate("held"))))
    (yard.folder / "sitecustomize.py").write_text(SHORT_WAIT)
    options = ("--shutdown-timeout", "0")
    fleet = yard.start(*options, processes=1, app_name=str(path), ready=False, PYTHONPATH=str(yard.folder))
    app = App(server.url)
    app.enqueue("app.hold")
    until(yard.gate("held").exists, "the start of the job")
    assert server._process is not None
    server._process.send_signal(signal.SIGSTOP)
    yield fleet
    app.close()
    server.remove()


def test_a_store_that_does_not_answer_does_not_keep_a_fleet_from_stopping(holding: Fleet) -> None:
    assert 1.5 <= holding.stop() < 1.5 + GRACE
    assert LAST_WRITES <= 5
    holding.until_said("fleet ended, and could not report that to the store")


def test_a_second_signal_ends_at_once_though_the_store_does_not_answer(holding: Fleet) -> None:
    holding.process.send_signal(signal.SIGTERM)
    until(lambda: not holding.workers, "the end of its worker")

    assert holding.stop() < AT_ONCE
    holding.until_said("fleet ended, and could not report that to the store")
