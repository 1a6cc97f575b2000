"""Learning: which tasks compute, and which wait. Pure: no clock, no threads.

CPU time against wall time alone misleads: a task that only computes shows 0.95 alone, and 0.04 beside 24 others, since they take
turns on one interpreter. So two things are kept apart.

* **At leisure**: the process had time left, or as much CPU as all who wanted some. Then a run got what it asked for, and its CPU
  time over its wall time says what the task is like.
* **In a crowd**: the interpreter was taken. Then a run's CPU time is measured by what its thread could have had: the CPU time of
  the whole process, divided by those who wanted some. Who used most of its part computes, who left it waits.

What was seen at leisure decides. What was seen in a crowd only tells apart who has never been seen otherwise: it cannot tell a
task that computes from one that waits a little, if there are many. But a task that is taken for one that computes runs alone, and
then it is seen at leisure.

What was seen is a few plain numbers per task (`Seen`), and adding them up is the way to merge: what two workers saw, or what one
saw before and after a restart, in any order.

Enters: runs, and once a second how busy the process was.  Leaves: "cpu", "io" or None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

__all__ = ["Kind", "Learner", "Seen", "kind_of_queue", "merge"]

Kind = Literal["cpu", "io"]

#: Of one task, at leisure and in a crowd: runs, CPU seconds that they could have had, and that they used.
Seen = tuple[float, float, float, float, float, float]

NOTHING: Seen = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

#: Who uses more than this of what it can have computes, who uses less than the second waits. Between them it stays what it was;
#: who was nothing waits, if that was seen at leisure.
CPU_ABOVE, IO_BELOW = 0.65, 0.5
#: So much must have been seen: runs, or seconds in all; and never less than the last, or the clocks are too coarse.
RUNS, SECONDS, LEAST = 5, 5.0, 0.001
#: More than this is not remembered, runs and seconds: what comes later counts more.
MEMORY, AT_LEAST = 200, 1.0
#: Below this part of a core the process has time left; above the second it has none. Between them nothing is learned.
LEISURE, TAKEN = 0.7, 0.9
#: The only run of its task that could have had this much of a core is as good as alone.
NEARLY_ALONE = 0.3
#: Whose CPU time was this part of the process's was alone.
ALONE = 0.8
#: So many threads that compute are not yet in each other's way.
FEW = 1.5


def merge(*seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """Add up what was seen."""
    total: dict[str, Seen] = {}
    for one in seen:
        for task, figures in one.items():
            total[task] = _add(total.get(task, NOTHING), figures)
    return total


class Learner:
    """Learns from one process's runs, beginning with what is known already."""

    def __init__(self, known: Mapping[str, Seen] | None = None) -> None:
        self._seen = {task: _limited(figures) for task, figures in (known or {}).items()}
        self._kinds: dict[str, Kind] = {}
        self._runs: dict[str, list[float]] = {}  # of this second: runs, seconds, CPU seconds, those of the process, the longest
        self._leisure = -1.0  # for how long the process has surely been at leisure, seconds
        self._news: dict[str, Seen] = {}
        for task in self._seen:
            self._judge(task)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """What tasks are; who is not in it has not been seen enough."""
        return self._kinds

    def ran(self, task: str, seconds: float, cpu: float, around: float) -> None:
        """Take note of a run that has ended in a thread of its own: wall and CPU seconds, and those of the process meanwhile."""
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

        To be called once a second (`elapsed`: how long it really was). Who runs now stands for who ran meanwhile; but many short
        ones may just have ended together: all their seconds say how many there were at a time. `speed`: where other processes
        want the cores too, how much of the time a thread of ours really ran in which it was not waiting for anything else.
        """
        now = Counter(running)
        counts: dict[str, float] = defaultdict(float, now)
        for task, (_, seconds, _, _, longest) in self._runs.items():
            counts[task] = max(counts[task], (seconds - longest) / elapsed)
        wanted = sum([number * self._wants(task) for task, number in counts.items()])
        self._leisure = self._leisure + 1 if self._fair(busy, wanted, speed)[1] else -1
        for task, (runs, seconds, cpu, around, longest) in self._runs.items():
            # In a second that was calm, its runs may all have come at once.
            then = max(busy, around / seconds) if seconds else busy
            has_time, is_taken = then < LEISURE * speed, then >= TAKEN * speed
            fair, is_calm = self._fair(then, wanted, speed)
            at_leisure = is_calm and (has_time or wanted <= 1 or counts[task] <= 1)
            if not has_time and not now[task] and cpu < ALONE * around:
                at_leisure = False  # none of them runs now: who runs does not stand for who ran then
            if (longest > self._leisure) if at_leisure else (not is_taken or wanted <= 1):
                continue  # some of them began when there was a crowd; or it is neither the one nor the other
            figures = (runs, seconds * fair, cpu)
            new: Seen = (*figures, 0, 0, 0) if at_leisure else (0, 0, 0, *figures)
            self._seen[task] = _limited(_add(self._seen.get(task, NOTHING), new))
            self._news[task] = _add(self._news.get(task, NOTHING), new)
            self._judge(task)
        self._runs.clear()

    def _fair(self, busy: float, wanted: float, speed: float) -> tuple[float, bool]:
        """Return how much of a core a run could have had, and whether that was as good as all of it."""
        ours = 1.0 if wanted > FEW else speed  # it says nothing, if they are in each other's way
        fair = ours if busy < LEISURE * speed or wanted <= 1 else min(busy / wanted, ours)
        return fair, fair >= NEARLY_ALONE * ours

    def news(self) -> dict[str, Seen]:
        """Return what was seen since the last call: to be added to what is stored."""
        news, self._news = self._news, {}
        return news

    def _wants(self, task: str) -> float:
        """Return how much of a core a run of a task would use, if it were alone; unknown ones would use all of it."""
        used = _used(self._seen.get(task, NOTHING))
        return 1.0 if used is None else min(used, 1.0)

    def _judge(self, task: str) -> None:
        seen = self._seen[task]
        used = _used(seen)
        if used is None:
            return
        at_leisure = _used((*seen[:3], 0, 0, 0)) is not None
        if used >= CPU_ABOVE:
            self._kinds[task] = "cpu"
        elif used <= IO_BELOW or (at_leisure and task not in self._kinds):
            self._kinds[task] = "io"


def kind_of_queue(queue: str, tasks: Mapping[str, float], kinds: Mapping[str, Kind]) -> Kind | None:
    """Say what a queue is like, by its name or by its tasks: each with how much of the queue's runs it has.

    One whose jobs wait, most of them, is for many slots; one whose jobs all compute is for one. Others are neither.
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
    """Return how much of what it could have a task has used; None if too little was seen."""
    for runs, could, cpu in (seen[:3], seen[3:]):
        if could >= LEAST and (runs >= RUNS or could >= SECONDS):
            return cpu / could
    return None


def _add(one: Seen, other: Seen) -> Seen:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4], one[5] + other[5])


def _limited(seen: Seen) -> Seen:
    """Let what was seen long ago count less."""
    leisure, crowd = [
        min(max(MEMORY / runs, AT_LEAST / could), 1.0) if runs > MEMORY and could > AT_LEAST else 1.0
        for runs, could in ((seen[0], seen[1]), (seen[3], seen[4]))
    ]
    return (seen[0] * leisure, seen[1] * leisure, seen[2] * leisure, seen[3] * crowd, seen[4] * crowd, seen[5] * crowd)
