"""The log: where `laneway worker` writes it, and the form of every record.

Names of tasks and lanes, ids and errors may come from outside. So every record passes `tidy`, whichever handler shows it: the
values in a message cannot break its line. Only tracebacks and stacks have lines of their own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from laneway.core.outcome import ErrorInfo
    from laneway.events import Events

__all__ = ["log", "runs_log", "some", "start_logging", "visible"]

log = logging.getLogger("laneway")
#: Single runs; on a terminal each has a line of its own instead.
runs_log = log.getChild("runs")

#: Control characters, those that end a line, set a direction or are invisible, and lone surrogates.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    r"""Return a text in which characters are escaped that would break its line, move the cursor, hide or reorder others.

    >>> visible("a\nb\x1b[2J"), visible("a\nb", keep="\n")
    ('a\\nb\\x1b[2J', 'a\nb')
    """
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


def some(names: Sequence[str]) -> str:
    """Return some names, and the number of further ones."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def tidy(record: logging.LogRecord) -> bool:
    """Make a record's values fit into one line, and set the text below it: a stored error, or stacks."""
    if isinstance(record.args, tuple):
        record.args = tuple([visible(str(arg)) if isinstance(arg, str | BaseException) else arg for arg in record.args])
    error: ErrorInfo | None = getattr(record, "laneway_error", None)
    if error is not None:
        record.exc_text = _lines(error.traceback.rstrip() or f"{error.kind}: {visible(error.message)}")
    stacks: str | None = getattr(record, "laneway_stacks", None)
    if stacks:
        record.stack_info = _lines(stacks)
    return True


def _lines(text: str) -> str:
    return visible(text, keep="\n")


log.addFilter(tidy)
runs_log.addFilter(tidy)


def start_logging(stream: TextIO, tasks: Sequence[str], events: Events | None = None) -> None:
    """Show the log, and runs if their events are given. A program that has set up logging keeps its own, except on a terminal."""
    log.disabled = runs_log.disabled = False  # logging.config switches off loggers that it does not name
    if stream.isatty():
        from laneway.cli.show import JobLines  # noqa: PLC0415 - only a terminal needs it

        lines = JobLines(stream, tasks)
        lines.install()
        if events is not None:
            lines.listen(events)
    elif not logging.getLogger().handlers and not log.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
