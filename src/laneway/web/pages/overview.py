"""The overview: how much goes through, in which queues, with how much memory; what fails, and where it is stored.

All figures were counted when things happened; nothing here looks at jobs. What a queue does is told over the last minutes, long
enough to be calm and short enough to be now.

Enters: a `WebRequest`, and a snapshot of the store.  Leaves: plain values.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from laneway.desk.stats import Point, Stats, Summary
from laneway.present.actions import waiting
from laneway.present.snapshot import Snapshot, working_of
from laneway.store.inspection import QueueInfo
from laneway.web.health import serving_of
from laneway.web.pages.frame import slots_of
from laneway.web.pages.points import row_at, spark
from laneway.web.request import WebRequest, bad

__all__ = ["drain", "overview", "queue_rows"]

#: Rates, times and errors of queues are of the last so many seconds.
LATELY = 300
#: What the charts can show.
RANGES = {"15m": "15 minutes", "3h": "3 hours", "24h": "24 hours"}
#: So many queues are shown.
QUEUES = 200
#: So many kinds of failures are shown.
ERRORS = 5


def overview(ask: WebRequest, seen: Snapshot) -> dict[str, Any]:
    """Show how it goes."""
    stats = ask.app.stats
    span = ask.given.get("range", "15m")
    if span not in RANGES:
        raise bad(f"range: there are {', '.join(RANGES)}")
    points = _points(stats, span)
    busy, slots = slots_of(seen.workers)
    return {
        "range": span,
        "ranges": RANGES,
        "throughput": [row_at(at, [done, failed], with_day=span != "15m") for at, done, failed, _ in points],
        "memory": [row_at(at, [memory], with_day=span != "15m") for at, _, _, memory in points],
        "queues": queue_rows(seen, stats.queues(LATELY), stats.series(900, by_queue=True)),
        "other_queues": max(len(seen.queues) - QUEUES, 0),
        "lately": LATELY // 60,
        "errors": stats.errors(ERRORS),
        "store": ask.app.store_inspect.about(),
        "crew": {"count": len(seen.workers), "busy": busy, "slots": slots, "memory": sum(one.rss for one in seen.workers)},
        "new": not seen.queues,
    }


# -- the charts --------------------------------------------------------------------------------------------------

Plotted = tuple[Any, float, float, float | None]


def _points(stats: Stats, span: str) -> list[Plotted]:
    """Return (begin, done a second, failed a second, memory) for each point."""
    # The last one is left out while it has only begun: a rate over a moment jumps.
    points = (stats.series(910) if span == "15m" else stats.minutes(3 if span == "3h" else 24))[:-1]
    if span != "24h":
        return [_plotted([point]) for point in points]
    by_clock = itertools.groupby(points, key=lambda point: int(point.at.timestamp()) // 600)  # ten minutes each
    return [_plotted(list(some)) for _, some in by_clock]


def _plotted(points: Sequence[Point]) -> Plotted:
    seconds = sum(point.seconds for point in points)
    told = [point.memory for point in points if point.workers]
    memory = sum(told) / len(told) if told else None
    done, failed = (sum(getattr(point, name) for point in points) / seconds for name in ("processed", "failed"))
    return points[0].at, done, failed, memory


# -- the queues --------------------------------------------------------------------------------------------------


def queue_rows(seen: Snapshot, lately: Mapping[str, Summary], series: Mapping[str, Sequence[Point]]) -> list[dict[str, Any]]:
    """Return the table of queues by name: those in which most waits, if there are many."""
    shown = heapq.nlargest(QUEUES, seen.queues, key=lambda queue: waiting(queue.counts))
    return [
        _row(one, seen, lately.get(one.name), series.get(one.name, ())) for one in sorted(shown, key=lambda queue: queue.name)
    ]


def _row(queue: QueueInfo, seen: Snapshot, sums: Summary | None, points: Sequence[Point]) -> dict[str, Any]:
    counts, rates = queue.counts, _rates(sums)
    return {
        "name": queue.name, "collects": queue.collects, "paused": queue.paused, "paused_by": queue.paused_by,
        "unserved": not serving_of(queue.name, working_of(seen.workers)), "length": waiting(counts), "ready": counts["ready"],
        "running": counts["running"], "dead": counts["dead"], "lag": queue.lag, **rates,
        "drain": drain(counts["ready"] + counts["blocked"], rates["in_rate"], rates["ended"], collects=queue.collects),
        "spark": spark([point.processed for point in points[:-1]]),
    }  # fmt: skip


def _rates(sums: Summary | None) -> dict[str, Any]:
    """Return what came, went and ended in a second, the share of runs that failed (None: nothing ran), and how long runs took.

    Of a collector payloads come and go, and lanes end.
    """
    if sums is None:
        return {"in_rate": 0.0, "out_rate": 0.0, "ended": 0.0, "errors": None, "p50": None, "p95": None}
    runs = sums.wait.count  # of a collector's run each lane
    return {
        "in_rate": sums.enqueued / sums.seconds,
        "out_rate": (sums.processed + sums.dead + sums.cancelled) / sums.seconds,
        "ended": (runs - sums.retried - sums.snoozed) / sums.seconds,
        "errors": sums.failed / runs if runs else None,
        "p50": sums.run.p50 if sums.run.count else None,
        "p95": sums.run.p95 if sums.run.count else None,
    }


def drain(waiting: int, in_rate: float, out_rate: float, *, collects: bool = False) -> float | None:
    """Return in how many seconds nothing due waits any more, if it goes on so; None: it does not get less.

    Of a collector payloads come in, and it is lanes that wait and go out, so what comes is not taken off.

    >>> drain(0, 5, 1), drain(100, 1, 2), drain(100, 2, 2), drain(100, 9, 5, collects=True)
    (0.0, 100.0, None, 20.0)
    """
    if not waiting:
        return 0.0
    spare = out_rate if collects else out_rate - in_rate
    return waiting / spare if spare > 0 else None
