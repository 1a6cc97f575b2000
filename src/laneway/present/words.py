"""Words for people: numbers of things, durations, moments, names that fit a column; what a job, a lane or an error is called."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from laneway.core.instant import SECOND

if TYPE_CHECKING:
    from laneway.core.outcome import ErrorInfo
    from laneway.store.inspection import JobInfo, LaneInfo
    from laneway.store.runs import Run

__all__ = [
    "ago", "clip", "clip_name", "cut", "digits", "due_word", "duration", "job_type", "lane_state", "plural", "score_words",
    "seconds_of", "share_of", "short_id", "sparkline", "summary", "trimmed",
]  # fmt: skip

BLOCKS = "▁▂▃▄▅▆▇█"

#: How far a score may be from now to be taken for a time: ten years, in seconds.
ERA = 10 * 366 * 86_400


def plural(number: int, noun: str) -> str:
    """Return a number of things.

    >>> plural(1, "lane"), plural(2000, "lane")
    ('1 lane', '2,000 lanes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration in at most eight characters.

    >>> [duration(s) for s in (0.00042, 0.042, 4.2, 250, 9000, 950_400)]
    ['420 µs', '42 ms', '4.2 s', '4m 10s', '2h 30m', '11d 00h']
    """
    if seconds < 0.9995:
        millis = max(seconds, 0) * 1000
        return f"{millis * 1000:.0f} µs" if millis < 1 else f"{millis:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds >= 2 * 86_400:
        days, hours = divmod(round(seconds / 3600), 24)
        return f"{days}d {hours:02}h"
    large, small = divmod(round(seconds if seconds < 3600 else seconds / 60), 60)
    return f"{large}m {small:02}s" if seconds < 3600 else f"{large}h {small:02}m"


def ago(then: datetime, now: datetime | None = None) -> str:
    """Return how far a moment is: "in 5m 00s" or "3.0 s ago"."""
    seconds = (then - (now or datetime.now(then.tzinfo))).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else f"{duration(-seconds)} ago"


def short_id(id_: str) -> str:
    """Return enough of an id to tell it from its neighbours: made ones differ at the end, those of users are mostly short."""
    return id_ if len(id_) <= 8 else f"…{id_[-7:]}"


def cut(text: str, most: int) -> str:
    """Return as much of a text as is shown."""
    return text if len(text) <= most else f"{text[:most]}…"


def digits(number: float) -> str:
    """Return three digits that count, and all before the point.

    >>> digits(1234.5), digits(99.97), digits(1.234), digits(2.0)
    ('1,234', '100', '1.23', '2')
    """
    return trimmed(f"{number:,.{0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2}f}")


def trimmed(text: str) -> str:
    """Return a number without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def clip(text: str, width: int) -> str:
    """Return a text in exactly this many columns."""
    return f"{text:{width}}" if len(text) <= width else f"{text[: width - 1]}…"


def clip_name(name: str, width: int) -> str:
    """Return a name in exactly this many columns. It is cut in the middle: long names mostly differ at their end.

    >>> clip_name("shop.orders.send_invoice_reminder", 20), clip_name("mail", 6)
    ('shop.order…_reminder', 'mail  ')
    """
    end = (width - 1) // 2
    return clip(name, width) if len(name) <= width else f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def sparkline(values: Sequence[float]) -> str:
    """Return a row of small bars, the highest value as a full one.

    >>> sparkline([0, 1, 4, 8])
    '▁▂▅█'
    """
    top = max([*values, 1])
    return "".join(BLOCKS[min(int(value / top * (len(BLOCKS) - 1) + 0.5), len(BLOCKS) - 1)] for value in values)


def job_type(job: JobInfo) -> str:
    """Return what a job is: a job, a collector's lane, or a payload that is dead."""
    return "lane" if job.payloads is not None else "payload" if job.score is not None else "job"


def lane_state(lane: LaneInfo) -> str:
    """Return where a lane stands: one that a dead job keeps from going on is halted."""
    return "halted" if lane.state == "dead" else lane.state


def due_word(state: str) -> str:
    """Return what the due time of a job or lane is called."""
    return {"dead": "died", "running": "was due", "done": "ended", "cancelled": "ended"}.get(state, "due")


def share_of(done: float, total: float) -> float:
    """Return how much of a job is done, as its run told: 0 to 1."""
    return min(max(done / total if total else 0.0, 0.0), 1.0)


def seconds_of(run: Run) -> float | None:
    """Return how long a run took; None: it never ran."""
    return (run.finished - run.started) / SECOND if run.started else None


def score_words(score: float) -> tuple[str, str]:
    """Return a score exactly, and as a moment if it is one."""
    near = abs(score - time.time()) < ERA
    return repr(score).removesuffix(".0"), ago(datetime.fromtimestamp(score, UTC)) if near else ""


def summary(error: ErrorInfo) -> str:
    """Return an error in one line."""
    return f"{error.kind}: {' '.join(error.message.split())}"
