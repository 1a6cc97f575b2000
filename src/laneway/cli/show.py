"""What commands show in plain text: times, ids, sparklines, and a worker's log.

On a terminal a worker's log is one line for each run, with the reason of a failure below it, and between them what else is
logged. Elsewhere it is plain log lines, for a log collector. Workers use this module: no rich here.

Enters: events and log records.  Leaves: lines on stderr.
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

from laneway.core.instant import SECOND
from laneway.core.outcome import Dead, Outcome, Retrying, Snoozed
from laneway.desk.context import JobContext
from laneway.events import Events, RunEnded
from laneway.logs import log, runs_log, visible
from laneway.present.words import clip, clip_name, duration, short_id, summary

__all__ = ["OUTCOME_COLOURS", "JobLines", "clock", "wants_colour"]  # fmt: skip

OUTCOME_COLOURS = {"done": "green", "retrying": "yellow", "snoozed": "cyan", "dead": "red", "cancelled": "magenta"}
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
SEVERITY = ("done", "cancelled", "snoozed", "retrying", "dead")
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "worker", "")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def wants_colour(stream: TextIO) -> bool:
    """Say whether to use colours: on a terminal that can, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def clock(seconds: float) -> str:
    """Return a moment as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


class JobLines(logging.Handler):
    """A worker's log on a terminal: a line for each run."""

    def __init__(self, stream: TextIO, tasks: Sequence[str], level: int = logging.INFO) -> None:
        super().__init__()
        self._level = level
        self._stream = stream
        self._colour = wants_colour(stream)
        self._task_width = min(max((len(name) for name in tasks), default=12), 28)
        self._others = [handler for handler in logging.getLogger().handlers if not _on_terminal(handler)]
        self._others_level = log.getEffectiveLevel()
        self.outcomes: Counter[str] = Counter()

    def install(self) -> None:
        """Take the place of what a program has set up for terminals; its log files still get what they got."""
        log.propagate = False
        log.addHandler(self)
        log.setLevel(min(self._others_level, self._level))

    def listen(self, events: Events) -> None:
        """Show a line for each run."""
        events.listen(RunEnded, self._run_ended)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, unless it is about a run: that has its line."""
        try:
            if record.levelno >= self._level and record.name != runs_log.name:
                self._say(record)
            for handler in self._others:
                if record.levelno >= max(handler.level, self._others_level):
                    handler.handle(record)
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written must not stop a job
            self.handleError(record)

    def _run_ended(self, event: RunEnded) -> None:
        job, outcome, at = event.job, _worst(event.outcomes), event.finished / SECOND
        self.outcomes[outcome.name] += 1
        parts = (
            click.style(clock(at), dim=True),
            clip_name(visible(job.task), self._task_width),
            click.style(clip(short_id(visible(job.id)) if len(job.lanes) < 2 else "-", 8), dim=True),
            clip_name(visible(job.lane or (f"{len(job.lanes)} lanes" if job.lanes else "-")), 12),
            click.style(clip(outcome.name, 9), fg=OUTCOME_COLOURS[outcome.name]),
            f"{duration((event.finished - event.started) / SECOND):>8}",
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


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a run; if its lanes have different outcomes, the most severe."""
    return max(outcomes, key=lambda outcome: SEVERITY.index(outcome.name))


def _reason(job: JobContext, outcome: Outcome) -> list[str]:
    """Return the lines below a run that was not done."""
    if isinstance(outcome, Snoozed):
        return [f"again in {duration(outcome.after / SECOND)}"]
    if not isinstance(outcome, Retrying | Dead):
        return []
    error = outcome.error
    said = summary(error)
    if isinstance(outcome, Dead):
        return [f"attempt {job.attempt}, the last: {said}", *_frames(error.traceback)]
    places = _PLACE.findall(error.traceback)
    where = f" ({os.path.basename(places[-1][0])}:{places[-1][1]})" if places else ""
    return [f"attempt {job.attempt}, again in {duration(outcome.after / SECOND)}: {said}{where}"]


def _frames(text: str) -> list[str]:
    """Return a traceback's lines without ours at its top, its underlines, and the error that is shown already."""
    lines: list[str] = []
    ours = False
    for line in text.splitlines():
        if place := _PLACE.search(line):
            ours = place[1].startswith(_OURS)
        if line.startswith("  ") and not ours and line.strip(" ^~"):
            lines.append(line)
    return lines


def _on_terminal(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return stream is not None and hasattr(stream, "isatty") and bool(stream.isatty())
