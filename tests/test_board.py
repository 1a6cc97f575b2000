"""The board, and what a supervisor reads off it."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from laneway.fleet.overdue import STACKS_WITHIN, Overdue, late
from laneway.worker.board import ASYNC, IN_THREAD, ISOLATED, Board, Entry
from workbench import DEADLINE

SECOND = 1_000_000
GRACE = 2 * SECOND
NOW = 100 * SECOND


@pytest.fixture
def board() -> Board:
    return Board(3)


# -- late --------------------------------------------------------------------------------------------------------


def run(token: int, deadline: int = 0, where: int = IN_THREAD) -> Entry:
    return Entry(token, started=1, deadline=deadline, where=where)


OVER = NOW - GRACE - 1
JUST_NOT = NOW - GRACE

LATE: dict[str, tuple[list[Entry], bool, set[int], bool]] = {
    # what runs, whether the event loop is blocked, who is late, whether others go on
    "nothing runs": ([], False, set(), False),
    "no timeout": ([run(1)], False, set(), True),
    "in time": ([run(1, NOW + SECOND)], False, set(), True),
    "within the grace": ([run(1, NOW - SECOND)], False, set(), True),
    "the very moment": ([run(1, JUST_NOT)], False, set(), True),
    "a microsecond later": ([run(1, OVER)], False, {1}, False),
    "one late, one without a timeout": ([run(1, OVER), run(2)], False, {1}, True),
    "one late, one in time": ([run(1, OVER), run(2, NOW + SECOND)], False, {1}, True),
    "one late, one within its grace": ([run(1, OVER), run(2, JUST_NOT)], False, {1}, True),
    "all late": ([run(1, OVER), run(2, OVER, ASYNC)], False, {1, 2}, False),
    "isolated runs are not late": ([run(1, OVER, ISOLATED)], False, set(), True),
    "an isolated run goes on beside a late one": ([run(1, OVER), run(2, OVER, ISOLATED)], False, {1}, True),
    "a late coroutine on a loop that turns": ([run(1, OVER, ASYNC), run(2, 0, ASYNC)], False, {1}, True),
    "a late coroutine on a loop that is blocked": ([run(1, OVER, ASYNC), run(2, 0, ASYNC)], True, {1}, False),
    "a thread beside a loop that is blocked": ([run(1, OVER, ASYNC), run(2)], True, {1}, True),
    "a late thread beside a loop that is blocked": ([run(1, OVER), run(2, 0, ASYNC)], True, {1}, False),
    "a loop that is blocked without a timeout": ([run(1, 0, ASYNC)], True, set(), False),
}


@pytest.mark.parametrize(("entries", "blocked", "tokens", "others"), LATE.values(), ids=list(LATE))
def test_who_is_late(entries: list[Entry], blocked: bool, tokens: set[int], others: bool) -> None:
    found = late(entries, blocked, NOW, GRACE)

    assert (set(found.tokens), found.others) == (tokens, others)


def test_a_worker_may_settle_what_ran_beside_a_late_run_before_it_is_ended(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=lambda: round(now[0] * 1e9))
    monkeypatch.setattr("laneway.fleet.overdue.time", clock)
    overdue = Overdue()

    def may_be_ended(after: float) -> bool:
        now[0] += after
        found = overdue.look(board, GRACE)
        overdue.are_new(found.tokens)
        return overdue.may_be_ended(found)

    board.enter(1, 1, round(now[0] * SECOND))
    neighbour = board.enter(2, 1)
    assert not may_be_ended(1)
    assert not may_be_ended(5)
    assert overdue.tokens == {1}
    board.leave(neighbour)
    assert not may_be_ended(0.1)  # the neighbour has ended, and its outcome may be on its way
    assert not may_be_ended(0.8)
    assert may_be_ended(0.2)


def test_a_worker_whose_only_run_is_late_is_ended_when_its_stacks_are_told(board: Board) -> None:
    overdue = Overdue()
    board.enter(1, 1, 1)
    found = overdue.look(board, 0)
    assert overdue.are_new(found.tokens)
    assert not overdue.may_be_ended(found)
    overdue.since -= STACKS_WITHIN
    assert overdue.may_be_ended(found)
    assert not overdue.are_new(found.tokens)


# -- rows --------------------------------------------------------------------------------------------------------


def test_a_new_board_is_empty(board: Board) -> None:
    assert (board.phase, board.idle, board.loop, board.entries()) == ("starting", 0, 0, [])
    assert set(board.counts.values()) == {0}


def test_runs_come_and_go(board: Board) -> None:
    first = board.enter(7, 1000, 2000, ASYNC)
    second = board.enter(8, 1001)
    assert sorted(board.entries(), key=lambda entry: entry.token) == [Entry(7, 1000, 2000, ASYNC), Entry(8, 1001, 0, IN_THREAD)]

    board.leave(first)
    assert board.entries() == [Entry(8, 1001, 0, IN_THREAD)]
    board.leave(second)
    assert board.entries() == []


def test_rows_are_used_again_and_hold_nothing_of_who_had_them(board: Board) -> None:
    for token in range(1, 50):
        rows = [board.enter(3 * token + n, token, token * 2, ISOLATED) for n in range(3)]
        assert len(set(rows)) == 3
        for row in rows:
            board.leave(row)
    board.enter(999, 5)

    assert board.entries() == [Entry(999, 5, 0, IN_THREAD)]


def test_the_largest_numbers_fit(board: Board) -> None:
    board.enter(2**63 - 1, 2**63 - 1, 2**63 - 1)

    assert board.entries() == [Entry(2**63 - 1, 2**63 - 1, 2**63 - 1, IN_THREAD)]


@pytest.mark.parametrize("phase", ["starting", "working", "quiet", "stopping"])
def test_the_phase_is_what_was_said_last(board: Board, phase: str) -> None:
    board.set_phase("stopping")
    board.set_phase(phase)

    assert board.phase == phase


def test_idle_is_odd_and_another_number_each_time(board: Board) -> None:
    seen: list[int] = []
    for idle in (True, True, False, False, True):
        board.set_idle(idle)
        seen.append(board.idle)

    assert seen == [1, 1, 2, 2, 3]


def test_outcomes_are_counted(board: Board) -> None:
    board.count("done", 5)
    board.count("done")
    board.count("dead")

    assert board.counts == {"done": 6, "retrying": 0, "snoozed": 0, "dead": 1, "cancelled": 0}


def test_the_event_loops_turn_is_noted(board: Board) -> None:
    board.set_loop(12345)
    assert board.loop == 12345
    board.set_loop(0)
    assert board.loop == 0


# -- two processes -----------------------------------------------------------------------------------------------


def test_another_process_reads_it_after_the_writers_death() -> None:
    fd = os.memfd_create("board")
    os.ftruncate(fd, Board.size(4))
    ours = Board(4, fd)
    pid = os.fork()
    if not pid:
        theirs = Board(4, fd)
        theirs.enter(42, 7, 8, ASYNC)
        theirs.set_phase("working")
        theirs.count("done", 3)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(fd)

    assert ours.entries() == [Entry(42, 7, 8, ASYNC)]
    assert (ours.phase, ours.counts["done"]) == ("working", 3)
    ours.close()


def test_a_reader_never_sees_one_run_with_the_times_of_another() -> None:
    """Each run's times follow from its token, so a mixture would be seen."""
    board = Board(2)
    over = threading.Event()

    def write() -> None:
        token = 1
        while not over.is_set():
            row = board.enter(token, token * 10, token * 100, token % 3)
            board.leave(row)
            token += 1

    writer = threading.Thread(target=write)
    writer.start()
    end = time.monotonic() + DEADLINE
    seen = 0
    try:
        while seen < 2_000 and time.monotonic() < end:
            for entry in board.entries():
                seen += 1
                assert (entry.started, entry.deadline, entry.where) == (entry.token * 10, entry.token * 100, entry.token % 3)
    finally:
        over.set()
        writer.join()
    assert seen >= 2_000
