"""The board: the runs of a worker, in memory that its supervisor can read.

Both processes map the memory: a few words about the worker, and a row for each run with its claim, its start and its deadline. A
thread in the worker could not watch while a job holds the interpreter lock, and a dead worker cannot be asked; its board can be
read in both cases. Writing a row takes a fraction of a microsecond.

Enters: runs.  Leaves: their rows, in another process.
"""

from __future__ import annotations

import mmap

import msgspec
from msgspec import Struct

from laneway.core.outcome import Done
from laneway.events import RunsSettled
from laneway.store.contract import WorkerInfo

__all__ = ["ASYNC", "IN_THREAD", "ISOLATED", "Board", "Entry", "with_runs"]

#: Where a run runs: in a thread, on the event loop, or in a process of its own.
IN_THREAD, ASYNC, ISOLATED = range(3)
#: The phases of a worker. A starting one has not claimed yet.
PHASES = ("starting", "working", "quiet", "stopping")
#: The counted outcomes, by name.
OUTCOMES = ("done", "retrying", "snoozed", "dead", "cancelled")

_WORD = 8
_PHASE, _IDLE, _LOOP, _FIRST_COUNT = range(4)
_HEADER = _FIRST_COUNT + len(OUTCOMES)
_TOKEN, _STARTED, _DEADLINE, _WHERE = range(4)
_ROW = 4


class Entry(Struct, frozen=True):
    """One row: a run."""

    token: int
    started: int  #: microseconds, by the clock
    deadline: int  #: microseconds, by the monotonic clock that all processes of a host share; 0: none
    where: int  #: IN_THREAD, ASYNC or ISOLATED


class Board:
    """A board with `rows` rows. Only its worker writes; `fd` maps a board that another process made."""

    def __init__(self, rows: int, fd: int = -1) -> None:
        self._memory = mmap.mmap(fd, self.size(rows))
        self._words = memoryview(self._memory).cast("Q")
        self._free = list(range(_HEADER, _HEADER + rows * _ROW, _ROW))
        self._rows = rows

    @staticmethod
    def size(rows: int) -> int:
        """Return the number of bytes that a board needs."""
        return (_HEADER + rows * _ROW) * _WORD

    # -- the worker writes -----------------------------------------------------------------------------------

    def enter(self, token: int, started: int, deadline: int = 0, where: int = IN_THREAD) -> int:
        """Write down a run; return its row."""
        row = self._free.pop()
        words = self._words
        words[row + _STARTED] = started
        words[row + _DEADLINE] = deadline
        words[row + _WHERE] = where
        words[row] = token  # last: a row without a token is empty
        return row

    def leave(self, row: int) -> None:
        """Clear the row of a run that ended."""
        self._words[row] = 0
        self._free.append(row)

    def count(self, outcome: str, number: int = 1) -> None:
        """Add to the count of an outcome."""
        self._words[_FIRST_COUNT + OUTCOMES.index(outcome)] += number

    def count_settled(self, event: RunsSettled) -> None:
        """Count the outcomes of runs. Most are `done`: these are added in one step."""
        done = 0
        for item in event.settled:
            for outcome in item.outcomes:
                if type(outcome) is Done:
                    done += 1
                else:
                    self.count(outcome.name)
        self.count("done", done)

    def set_phase(self, phase: str) -> None:
        """Set the worker's phase."""
        self._words[_PHASE] = PHASES.index(phase)

    def set_idle(self, idle: bool) -> None:
        """Mark the worker as idle. Before it asks the store again, mark it as not idle: it may get jobs."""
        if self._words[_IDLE] % 2 != idle:
            self._words[_IDLE] += 1

    def set_loop(self, at: int) -> None:
        """Write when the event loop last turned, by the monotonic clock in microseconds; 0: nothing is on it."""
        self._words[_LOOP] = at

    # -- any process reads -----------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """The worker's phase."""
        return PHASES[self._words[_PHASE]]

    @property
    def idle(self) -> int:
        """An odd number while the worker is idle; a new one each time it becomes idle."""
        return self._words[_IDLE]

    @property
    def loop(self) -> int:
        """When the event loop last turned, by the monotonic clock in microseconds; 0: nothing is on it."""
        return self._words[_LOOP]

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs with each outcome."""
        return {name: self._words[_FIRST_COUNT + number] for number, name in enumerate(OUTCOMES)}

    def entries(self) -> list[Entry]:
        """Return the current runs."""
        words = self._words
        found: list[Entry] = []
        for row in range(_HEADER, _HEADER + self._rows * _ROW, _ROW):
            token = words[row]
            if token:
                entry = Entry(token, words[row + _STARTED], words[row + _DEADLINE], words[row + _WHERE])
                if words[row] == token:  # else it ended during this read
                    found.append(entry)
        return found

    def close(self) -> None:
        """Unmap the memory."""
        self._words.release()
        self._memory.close()


def with_runs(worker: WorkerInfo, board: Board, used: tuple[int, int]) -> WorkerInfo:
    """Return a worker with its phase, its current runs and its memory: RSS and PSS in bytes."""
    runs = tuple((entry.token, entry.started) for entry in board.entries())
    phase = "working" if board.phase == "starting" else board.phase
    return msgspec.structs.replace(worker, runs=runs, phase=phase, rss=used[0], pss=used[1])
