"""Rolling up: ten seconds become a minute and a day, and are added to the totals.

Reports and arrivals wait in the open interval of ten seconds that contains the store's now. An interval is complete a little
after its end, and the next client that records something closes it: it is summed, kept for a while as it is, and added to its
minute and its day in the same step. A marker says up to where that was done. So each interval is added once, whether a client
comes at once or in a week, and a reader adds what is still open by itself.

The longest level has a single bucket, which is never dropped: the totals of each queue and task. They only grow.

Enters: open intervals.  Leaves: buckets to be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from laneway.core.buckets import Bucket, Figures, Gauge, Gauges, Key, decode_report
from laneway.core.instant import SECOND

__all__ = [
    "DAY", "EVER", "KEEP", "LEVELS", "MINUTE", "TEN", "TOTALS", "Kept", "Level", "Open", "begin_of", "complete_until", "outdated",
    "roll",
]  # fmt: skip

#: The counters since a store was created.
TOTALS = ("enqueued", "merged", "processed", "failed", "retried", "dead", "cancelled", "recovered", "refused")
#: The length of a level's buckets, microseconds.
Level = int
TEN: Level = 10_000_000
MINUTE: Level = 60_000_000
DAY: Level = 86_400_000_000
#: Longer than any store lives, so that all of it is one bucket, which begins in 1970.
EVER: Level = 100_000 * DAY
LEVELS: tuple[Level, ...] = (TEN, MINUTE, DAY, EVER)
#: How long buckets are kept, microseconds: somewhat longer than promised (1,000 s, a day, 365 days), so that none is cut.
KEEP: dict[Level, int] = {TEN: 1_200 * SECOND, MINUTE: 25 * 60 * MINUTE, DAY: 367 * DAY, EVER: EVER}
#: An interval is complete this long after its end: nodes of a cluster, and a clock that was set, may differ by this.
GRACE = 10 * SECOND


class Open(Struct):
    """Reports and arrivals that are not closed, by the begin of their interval."""

    reports: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    arrived: dict[int, dict[Key, int]] = field(default_factory=dict[int, dict[Key, int]])

    def closed(self, since: int = 0, until: int | None = None) -> dict[int, Bucket]:
        """Return the intervals from `since` to `until`, summed."""
        stretches = sorted({*self.reports, *self.arrived})
        return {
            at: _add_up(self.reports.get(at, ()), self.arrived.get(at, {}))
            for at in stretches
            if at >= since and (until is None or at < until)
        }


class Kept(Struct, frozen=True):
    """Buckets of one level, by when they began; empty ones are left out."""

    now: int  #: the store's time, microseconds
    buckets: dict[int, Bucket]


def begin_of(at: int, level: int) -> int:
    """Return the begin of the bucket that contains a moment."""
    return at - at % level


def complete_until(now: int) -> int:
    """Return the time up to which intervals of ten seconds are complete."""
    return begin_of(now - GRACE, TEN)


def outdated(now: int, level: Level) -> int:
    """Return the time up to which buckets of a level are to be dropped."""
    return begin_of(now - KEEP[level], level)


def roll(closed: Mapping[int, Bucket], now: int) -> dict[tuple[Level, int], Bucket]:
    """Return what is to be added to each bucket of each level, without buckets that would be dropped at once."""
    found: dict[tuple[Level, int], Bucket] = {}
    for at, bucket in closed.items():
        for level in LEVELS:
            key = level, begin_of(at, level)
            if key[1] >= outdated(now, level):
                found.setdefault(key, Bucket()).add(bucket)
    return found


def _add_up(reports: Iterable[bytes], arrived: Mapping[Key, int]) -> Bucket:
    bucket = Bucket()
    gauges: dict[str, Gauge] = {}
    for raw in reports:
        worker, gauge, series = decode_report(raw)
        for key, figures in series.items():
            bucket.at(key).add(figures)
        if gauge is not None:
            gauges.setdefault(worker, Gauge()).add(gauge)
    for key, number in arrived.items():
        bucket.at(key).add(Figures(enqueued=number))
    bucket.gauges = Gauges.of(gauges.values())
    return bucket
