"""Prefetch: how many jobs to claim ahead. Pure: no store, no clock, no threads.

A worker claims what can start soon: a job for each free slot, and a few more if jobs are too short for a round trip each. At most
about 50 ms of work waits inside a worker. Claims that do not start go back to the store.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LONG", "MOST_BESIDE", "MOST_UNSETTLED", "MOST_WAITING", "SHORT", "WAITING", "RunSizes", "Prefetch"]

#: How much work may wait inside a worker, seconds.
WAITING = 0.05
#: The most claims that wait, however short they are;
MOST_WAITING = 200
#: fewer where jobs run while others are claimed: claiming many would take longer than the jobs that run meanwhile.
MOST_BESIDE = 100
#: How many short jobs of one queue are claimed at a time, if there are as many.
SHARE = 50
#: Jobs shorter than this are settled while the next ones already run.
SHORT = 0.001
#: A queue whose jobs take longer than this, seconds, is not short, whatever others do.
LONG = 0.005
#: Where jobs are very short: how much work may have run and not be settled yet, seconds. A crash repeats it. It is not less,
#: since an exchange of ten such jobs takes far longer than their runs.
UNSETTLED = 0.001
#: The most jobs that may have run and not be settled, however short they are.
MOST_UNSETTLED = 200


class Prefetch:
    """How long jobs take here, and what follows from it."""

    def __init__(self, slots: int, most: int = MOST_WAITING) -> None:
        self._slots = slots
        self._most = most
        self.mean = WAITING  #: of a job, seconds; deliberately slow until something was measured
        self._longest = 0.0  # the mean time of the slowest queue at hand, seconds
        self._conclude()

    def measured(self, seconds: float, jobs: int) -> None:
        """Note how long some jobs took together."""
        if jobs and seconds >= 0:  # a clock may have been set back
            share = min(0.2 * jobs, 1.0)
            self.mean = (1 - share) * self.mean + share * seconds / jobs
            self._conclude()

    def is_at_least(self, seconds: float) -> None:
        """Note that jobs take at least this long."""
        self.mean = max(self.mean, seconds)
        self._conclude()

    def has_longest(self, seconds: float) -> None:
        """Note the mean time of the slowest queue at hand."""
        before, self._longest = self._longest, seconds
        if before != seconds and (before >= LONG or seconds >= LONG):  # shorter ones make no difference
            self._conclude()

    def _conclude(self) -> None:
        """Compute what follows: it is read several times in every exchange, and changes less often."""
        longest = self._longest
        #: Whether jobs are so short here that an exchange takes longer than they do.
        self.short = self.mean < SHORT and longest < LONG
        #: The most jobs that may have started and not be settled: the most that a crash repeats. One for each slot. Where
        #: settling takes longer than running, twice as many, or as many as run in a millisecond.
        self.unsettled = self._slots
        if self.short:
            self.unsettled = max(2 * self._slots, min(int(UNSETTLED / max(self.mean, 1e-6)), MOST_UNSETTLED))
        #: The number of jobs of a queue that are worth asking for.
        self.share = SHARE if self.short else 1
        #: The most claims that may wait besides. Fewer where some jobs are long: claims would wait behind these.
        self.ahead = min(int(WAITING / max(self.mean, longest if longest >= LONG else 1e-6)), self._most)


#: The most lanes of a claim of a queue, and the most payloads of each.
RunSizes = Mapping[str, tuple[int, int]]
