"""Learning: which tasks compute, and which wait. Pure: no clock, no threads.

CPU time divided by wall time misleads: a task that only computes shows 0.95 alone, and 0.04 beside 24 others, since they take
turns on one interpreter. So two situations are kept apart.

* **At leisure** (uncontended): the process was not busy, or had as much CPU time as all threads wanted. Then CPU time divided by
  wall time gives the task's kind.
* **In a crowd** (contended): threads waited for the interpreter. Then a run's CPU time is compared with what its thread could
  have had: the CPU time of the process, divided by the number of threads that wanted some. A task that used most of its part is
  CPU-bound, a task that did not is I/O-bound.

Measurements at leisure decide. Those in a crowd count only for a task that has no others: many runs that wait a little look like
many that only compute. But a task that is classified as CPU-bound runs alone, and is then measured at leisure.

The measurements are a few plain numbers per task (`Seen`), and they are merged by adding them: those of two workers, or of one
before and after a restart, in any order.

Enters: runs, and once a second how busy the process was.  Leaves: "cpu", "io" or None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

__all__ = ["Kind", "Learner", "Seen", "kind_of_queue", "merge"]

Kind = Literal["cpu", "io"]

#: Of one task, at leisure and in a crowd: runs, CPU seconds that were available to them, and that they used.
Seen = tuple[float, float, float, float, float, float]

NOTHING: Seen = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

#: A task that uses more than the first part of the available CPU computes, below the second it waits. In between it keeps its
#: kind; a task without one waits, if it was measured at leisure.
CPU_ABOVE, IO_BELOW = 0.65, 0.5
#: The least to be measured: runs, or seconds in all; and never below the third, since the clocks are too coarse.
RUNS, SECONDS, LEAST = 5, 5.0, 0.001
#: The most that is remembered, runs and seconds: later measurements count more.
MEMORY, AT_LEAST = 200, 1.0
#: Below the first part of a core the process has time left; above the second it has none. In between nothing is learned.
LEISURE, TAKEN = 0.7, 0.9
#: The only run of its task counts as alone if this much of a core was available to it.
NEARLY_ALONE = 0.3
#: A run whose CPU time was this part of the process's was alone.
ALONE = 0.8
#: Up to this many computing threads do not slow each other down.
FEW = 1.5


def merge(*seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """Add up measurements."""
    total: dict[str, Seen] = {}
    for one in seen:
        for task, figures in one.items():
            total[task] = _add(total.get(task, NOTHING), figures)
    return total


class Learner:
    """Learns from one process's runs, beginning with earlier measurements."""

    def __init__(self, known: Mapping[str, Seen] | None = None) -> None:
        self._seen = {task: _limited(figures) for task, figures in (known or {}).items()}
        self.kinds: dict[str, Kind] = {}  #: the kinds of tasks; a task that is missing was not measured enough
        self._runs: dict[str, list[float]] = {}  # of this second: runs, seconds, CPU seconds, those of the process, the longest
        self._leisure = -1.0  # how long the process has surely been at leisure, seconds
        self._news: dict[str, Seen] = {}
        for task in self._seen:
            self._judge(task)

    def ran(self, task: str, seconds: float, cpu: float, around: float) -> None:
        """Note a run that ended in a thread of its own: wall and CPU seconds, and those of the process meanwhile."""
        if seconds < 0 or cpu < 0:
            return  # a clock was set back
        runs = self._runs.get(task)
        if runs is None:
            runs = self._runs[task] = [0.0, 0.0, 0.0, 0.0, 0.0]
        runs[0] += 1
        runs[1] += seconds
        runs[2] += cpu
        runs[3] += around
        runs[4] = max(runs[4], seconds)

    def second(self, busy: float, running: Iterable[str], speed: float = 1.0, elapsed: float = 1.0) -> None:
        """Weigh the runs since the last call. `busy`: CPU seconds of the process per second; `running`: the tasks that run now.

        Call it once a second (`elapsed`: the real time since the last call). The tasks that run now are taken for those that
        ran meanwhile; but many short runs may just have ended together: the sum of their seconds says how many there were at a
        time. `speed`: where other processes want the cores too, the part of the time that a thread of this process really ran
        when it was not waiting for anything else.
        """
        now = Counter(running)
        counts: dict[str, float] = defaultdict(float, now)
        for task, (_, seconds, _, _, longest) in self._runs.items():
            counts[task] = max(counts[task], (seconds - longest) / elapsed)
        wanted = sum([number * self._wants(task) for task, number in counts.items()])
        self._leisure = self._leisure + 1 if self._fair(busy, wanted, speed)[1] else -1
        for task, (runs, seconds, cpu, around, longest) in self._runs.items():
            # The process may have been busy only while these runs were active.
            then = max(busy, around / seconds) if seconds else busy
            has_time, is_taken = then < LEISURE * speed, then >= TAKEN * speed
            fair, is_calm = self._fair(then, wanted, speed)
            at_leisure = is_calm and (has_time or wanted <= 1 or counts[task] <= 1)
            if not has_time and not now[task] and cpu < ALONE * around:
                at_leisure = False  # none of them runs now, so `running` says nothing about the time of these runs
            if (longest > self._leisure) if at_leisure else (not is_taken or wanted <= 1):
                continue  # some runs began in a crowd, or the load is between the two limits
            figures = (runs, seconds * fair, cpu)
            new: Seen = (*figures, 0, 0, 0) if at_leisure else (0, 0, 0, *figures)
            self._seen[task] = _limited(_add(self._seen.get(task, NOTHING), new))
            self._news[task] = _add(self._news.get(task, NOTHING), new)
            self._judge(task)
        self._runs.clear()

    def _fair(self, busy: float, wanted: float, speed: float) -> tuple[float, bool]:
        """Return how much of a core was available to a run, and whether that was as good as all of it."""
        ours = 1.0 if wanted > FEW else speed  # `speed` means nothing if threads of this process slow each other down
        fair = ours if busy < LEISURE * speed or wanted <= 1 else min(busy / wanted, ours)
        return fair, fair >= NEARLY_ALONE * ours

    def news(self) -> dict[str, Seen]:
        """Return the measurements since the last call: to be added to what is stored."""
        news, self._news = self._news, {}
        return news

    def _wants(self, task: str) -> float:
        """Return how much of a core a run of a task would use if it were alone; 1 for an unknown task."""
        used = _used(self._seen.get(task, NOTHING))
        return 1.0 if used is None else min(used, 1.0)

    def _judge(self, task: str) -> None:
        seen = self._seen[task]
        used = _used(seen)
        if used is None:
            return
        at_leisure = _used((*seen[:3], 0, 0, 0)) is not None
        if used >= CPU_ABOVE:
            self.kinds[task] = "cpu"
        elif used <= IO_BELOW or (at_leisure and task not in self.kinds):
            self.kinds[task] = "io"


def kind_of_queue(queue: str, tasks: Mapping[str, float], kinds: Mapping[str, Kind]) -> Kind | None:
    """Return the kind of a queue, by its name or by its tasks: each with its part of the queue's runs.

    A queue whose jobs mostly wait is for many slots; one whose jobs all compute is for one. Others are neither.
    """
    if queue.endswith("-io"):
        return "io"
    total = sum(tasks.values())
    waits = sum([runs for task, runs in tasks.items() if kinds.get(task) == "io"])
    computes = sum([runs for task, runs in tasks.items() if kinds.get(task) == "cpu"])
    if total and waits >= total / 2:
        return "io"
    return "cpu" if total and computes >= 0.95 * total else None


def _used(seen: Seen) -> float | None:
    """Return the part of the available CPU that a task has used; None if too little was measured."""
    for runs, could, cpu in (seen[:3], seen[3:]):
        if could >= LEAST and (runs >= RUNS or could >= SECONDS):
            return cpu / could
    return None


def _add(one: Seen, other: Seen) -> Seen:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4], one[5] + other[5])


def _limited(seen: Seen) -> Seen:
    """Let old measurements count less."""
    leisure, crowd = [
        min(max(MEMORY / runs, AT_LEAST / could), 1.0) if runs > MEMORY and could > AT_LEAST else 1.0
        for runs, could in ((seen[0], seen[1]), (seen[3], seen[4]))
    ]
    return (seen[0] * leisure, seen[1] * leisure, seen[2] * leisure, seen[3] * crowd, seen[4] * crowd, seen[5] * crowd)
