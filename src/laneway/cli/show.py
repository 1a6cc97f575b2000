"""What commands show in plain text: times, ids, sparklines, and a worker's log.

On a terminal a worker's log is one line for each run, made from the DEBUG records that running leaves on the logger "laneway"; a
failure has its reason below. Elsewhere it is plain log lines for whoever collects them. Workers use
this: no rich here.

Enters: log records.  Leaves: lines on stderr.  Called by: `worker`, `status`, `demo`.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

import click

from laneway.context import JobContext
from laneway.instant import SECOND
from laneway.logs import log, visible
from laneway.outcome import Dead, Outcome, Retrying, Snoozed

__all__ = [
    "OUTCOME_COLOURS", "JobLines", "clip", "clip_name", "clock", "duration", "short_id", "sparkline", "wants_colour",
]  # fmt: skip

OUTCOME_COLOURS = {"done": "green", "retrying": "yellow", "snoozed": "cyan", "dead": "red", "cancelled": "magenta"}
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
SEVERITY = ("done", "cancelled", "snoozed", "retrying", "dead")
BLOCKS = "▁▂▃▄▅▆▇█"
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "worker", "")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def wants_colour(stream: TextIO) -> bool:
    """Say whether to use colours: on a terminal that can, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def clock(seconds: float) -> str:
    """Return a moment as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


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


def short_id(id_: str) -> str:
    """Return enough of an id to tell it from its neighbours: made ones differ at the end, those of users are mostly short."""
    return id_ if len(id_) <= 8 else f"…{id_[-7:]}"


def clip(text: str, width: int) -> str:
    """Return a text in exactly so many columns."""
    return f"{text:{width}}" if len(text) <= width else f"{text[: width - 1]}…"


def clip_name(name: str, width: int) -> str:
    """Return a name in exactly so many columns. It is cut in the middle: long names mostly differ at their end.

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


class JobLines(logging.Handler):
    """A worker's log on a terminal: a line for each run."""

    def __init__(self, stream: TextIO, tasks: Sequence[str]) -> None:
        super().__init__()
        self._stream = stream
        self._colour = wants_colour(stream)
        self._task_width = min(max((len(name) for name in tasks), default=12), 28)
        self._started: dict[int, float] = {}  # by token
        self._others = [handler for handler in logging.getLogger().handlers if not _on_terminal(handler)]
        self._others_level = log.getEffectiveLevel()
        self.outcomes: Counter[str] = Counter()

    def install(self) -> None:
        """Take the place of what a program has set up for terminals; its log files still get what they got."""
        log.disabled = False  # logging.config switches off loggers that it does not name
        log.propagate = False
        log.addHandler(self)
        log.setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, or leave it."""
        try:
            job: JobContext | None = getattr(record, "laneway_job", None)
            outcomes: tuple[Outcome, ...] = getattr(record, "laneway_outcomes", ())
            if job is not None and record.levelno == logging.DEBUG:
                if outcomes:
                    self._finished(job, outcomes, record.created)
                else:
                    self._started[job.token] = record.created
            elif record.levelno >= logging.INFO and not _is_told_by_its_run(record):
                self._say(record)
            for handler in self._others:
                if record.levelno >= max(handler.level, self._others_level):
                    handler.handle(record)
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written must not stop a job
            self.handleError(record)

    def _finished(self, job: JobContext, outcomes: tuple[Outcome, ...], at: float) -> None:
        outcome = _worst(outcomes)
        self.outcomes[outcome.name] += 1
        seconds = at - self._started.pop(job.token, at)
        parts = (
            click.style(clock(at), dim=True),
            clip_name(visible(job.task), self._task_width),
            click.style(clip(short_id(visible(job.id)) if len(job.lanes) < 2 else "-", 8), dim=True),
            clip_name(visible(job.lane or (f"{len(job.lanes)} lanes" if job.lanes else "-")), 12),
            click.style(clip(outcome.name, 9), fg=OUTCOME_COLOURS[outcome.name]),
            f"{duration(seconds):>8}",
        )
        self._write("  ".join(parts))
        for line in _reason(job, outcome):
            self._write(click.style(f"          {visible(line)}", fg=OUTCOME_COLOURS[outcome.name], dim=line.startswith(" ")))

    def _say(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelname in LEVEL_COLOURS:
            text = click.style(text, fg=LEVEL_COLOURS[record.levelname])
        if record.exc_text:
            text += "\n" + record.exc_text
        elif record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + record.stack_info
        self._write(f"{click.style(clock(record.created), dim=True)}  {text}")

    def _write(self, line: str) -> None:
        click.echo(line, file=self._stream, color=self._colour)


def _worst(outcomes: tuple[Outcome, ...]) -> Outcome:
    """Return what a run meant; of one that meant something else for each of its lanes what somebody must see first."""
    return max(outcomes, key=lambda outcome: SEVERITY.index(outcome.name))


def _reason(job: JobContext, outcome: Outcome) -> list[str]:
    """Return the lines below a run that was not done."""
    if isinstance(outcome, Snoozed):
        return [f"again in {duration(outcome.after / SECOND)}"]
    if not isinstance(outcome, Retrying | Dead):
        return []
    error = outcome.error
    said = f"{error.kind}: {' '.join(error.message.split())}"
    if isinstance(outcome, Dead):
        return [f"attempt {job.attempt}, the last: {said}", *_frames(error.traceback)]
    places = _PLACE.findall(error.traceback)
    where = f" ({os.path.basename(places[-1][0])}:{places[-1][1]})" if places else ""
    return [f"attempt {job.attempt}, again in {duration(outcome.after / SECOND)}: {said}{where}"]


def _frames(text: str) -> list[str]:
    """Return a traceback's lines without ours at its top, its underlines, and the error that is told already."""
    lines: list[str] = []
    ours = False
    for line in text.splitlines():
        if place := _PLACE.search(line):
            ours = place[1].startswith(_OURS)
        if line.startswith("  ") and not ours and line.strip(" ^~"):
            lines.append(line)
    return lines


def _is_told_by_its_run(record: logging.LogRecord) -> bool:
    """Say whether a record is about a failed run, which has its line already."""
    return hasattr(record, "laneway_outcomes")


def _on_terminal(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return stream is not None and hasattr(stream, "isatty") and bool(stream.isatty())
