"""The board: what runs in a worker, written where its supervisor can read it.

Memory that both processes map: a few words about the worker, and a row for each run with its claim, when it started, and by
when it must have ended. A thread in the worker could not watch while the interpreter is held, and a dead worker cannot be asked;
its board can be read all the same. A row is written in a fraction of a microsecond.

Enters: runs.  Leaves: the same, in another process.
"""

from __future__ import annotations

import mmap

import msgspec
from msgspec import Struct

from laneway.core.outcome import Done
from laneway.events import RunsSettled
from laneway.store.contract import WorkerInfo

__all__ = ["ASYNC", "IN_THREAD", "ISOLATED", "Board", "Entry", "with_runs"]

#: Where a run takes place: in a thread, on the event loop, or in a process of its own.
IN_THREAD, ASYNC, ISOLATED = range(3)
#: What a worker is doing. One that starts has not claimed yet.
PHASES = ("starting", "working", "quiet", "stopping")
#: What is counted: the outcomes by name.
OUTCOMES = ("done", "retrying", "snoozed", "dead", "cancelled")

_WORD = 8
_PHASE, _IDLE, _LOOP, _FIRST_COUNT = range(4)
_HEADER = _FIRST_COUNT + len(OUTCOMES)
_TOKEN, _STARTED, _DEADLINE, _PLACE = range(4)
_ROW = 4


class Entry(Struct, frozen=True):
    """One row: a run."""

    token: int
    started: int  #: microseconds, by the clock
    deadline: int  #: microseconds, by the monotonic clock that all processes of a host share; 0: none
    place: int  #: IN_THREAD, ASYNC or ISOLATED


class Board:
    """A board with so many rows. Only its worker writes; `at` maps one that somebody else made."""

    def __init__(self, rows: int, fd: int = -1) -> None:
        self._memory = mmap.mmap(fd, self.size(rows))
        self._words = memoryview(self._memory).cast("Q")
        self._free = list(range(_HEADER, _HEADER + rows * _ROW, _ROW))
        self._rows = rows

    @staticmethod
    def size(rows: int) -> int:
        """Return how many bytes a board needs."""
        return (_HEADER + rows * _ROW) * _WORD

    # -- the worker writes -----------------------------------------------------------------------------------

    def enter(self, token: int, started: int, deadline: int = 0, place: int = IN_THREAD) -> int:
        """Write down a run; return its row."""
        row = self._free.pop()
        words = self._words
        words[row + _STARTED] = started
        words[row + _DEADLINE] = deadline
        words[row + _PLACE] = place
        words[row] = token  # last: a row without a token is empty
        return row

    def leave(self, row: int) -> None:
        """The run has ended."""
        self._words[row] = 0
        self._free.append(row)

    def count(self, outcome: str, number: int = 1) -> None:
        """Add to the count of an outcome."""
        self._words[_FIRST_COUNT + OUTCOMES.index(outcome)] += number

    def count_settled(self, event: RunsSettled) -> None:
        """Count the outcomes of runs. Most are done: these are added at once."""
        done = 0
        for item in event.settled:
            for outcome in item.outcomes:
                if type(outcome) is Done:
                    done += 1
                else:
                    self.count(outcome.name)
        self.count("done", done)

    def set_phase(self, phase: str) -> None:
        """Say what the worker is doing."""
        self._words[_PHASE] = PHASES.index(phase)

    def set_idle(self, idle: bool) -> None:
        """Say that the worker has found nothing to do, or, before it looks again, that it may have."""
        if self._words[_IDLE] % 2 != idle:
            self._words[_IDLE] += 1

    def set_loop(self, at: int) -> None:
        """Say that the event loop turns, by the monotonic clock in microseconds; 0: nothing is on it."""
        self._words[_LOOP] = at

    # -- anybody reads ---------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """What the worker is doing."""
        return PHASES[self._words[_PHASE]]

    @property
    def idle(self) -> int:
        """An odd number while the worker is idle; another one each time it becomes so."""
        return self._words[_IDLE]

    @property
    def loop(self) -> int:
        """When the event loop last turned, by the monotonic clock in microseconds; 0: nothing is on it."""
        return self._words[_LOOP]

    @property
    def counts(self) -> dict[str, int]:
        """How many runs had which outcome."""
        return {name: self._words[_FIRST_COUNT + number] for number, name in enumerate(OUTCOMES)}

    def entries(self) -> list[Entry]:
        """Return what runs."""
        words = self._words
        found: list[Entry] = []
        for row in range(_HEADER, _HEADER + self._rows * _ROW, _ROW):
            token = words[row]
            if token:
                entry = Entry(token, words[row + _STARTED], words[row + _DEADLINE], words[row + _PLACE])
                if words[row] == token:  # else it ended while we read
                    found.append(entry)
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._memory.close()


def with_runs(worker: WorkerInfo, board: Board, used: tuple[int, int]) -> WorkerInfo:
    """Return a worker with what it does just now, and how much memory it uses: RSS and PSS in bytes."""
    runs = tuple((entry.token, entry.started) for entry in board.entries())
    phase = "working" if board.phase == "starting" else board.phase
    return msgspec.structs.replace(worker, runs=runs, phase=phase, rss=used[0], pss=used[1])
