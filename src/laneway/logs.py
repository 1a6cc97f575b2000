"""The log: where `laneway worker` writes it, and the form of every record.

Names of tasks and lanes, ids and errors may come from outside. So every record passes `tidy`, whichever handler shows it: the
values in a message cannot break its line. Only tracebacks and stacks have lines of their own.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from laneway.core.outcome import ErrorInfo
    from laneway.events import Events

__all__ = ["FORMS", "LEVELS", "JsonLines", "TextLines", "log", "log_context", "runs_log", "some", "start_logging", "visible"]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMS = ("text", "json")

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


#: What every line of this process has in JSON: a worker of a fleet has its id there.
log_context: dict[str, object] = {}


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, and what is known of the job."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        known: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **log_context,
            **getattr(record, "laneway_fields", {}),
        }
        if record.exc_info or record.exc_text:
            known["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        if record.stack_info:
            known["stacks"] = record.stack_info
        return json.dumps(known, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A record as one line of text, with what is known of the job behind it as `key=value`; a traceback is below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging's
        """Return the line."""
        fields: dict[str, object] = getattr(record, "laneway_fields", {})
        known = {**fields, **log_context} if fields else fields
        pairs = [f"{name}={_value(value)}" for name, value in known.items() if value is not None]
        return " ".join([super().formatMessage(record), *pairs])


def _value(value: object) -> str:
    """Return a value in one word, or in quotes.

    >>> _value("mail"), _value("order 7"), _value(0.25), _value(["a", "b"])
    ('mail', '"order 7"', '0.25', 'a,b')
    """
    text = str(value)
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, list):
        text = ",".join(map(str, cast("list[object]", value)))
    return text if re.fullmatch(r"[^\s\"=]+", text) else json.dumps(visible(text), ensure_ascii=False)


def start_logging(
    stream: TextIO, tasks: Sequence[str], events: Events | None = None, level: str | None = None, form: str | None = None
) -> None:
    """Show the log, and runs if their events are given.

    A program that has set up logging keeps its own, except on a terminal, unless a level or a form is asked for.
    """
    log.disabled = runs_log.disabled = False  # logging.config switches off loggers that it does not name
    asked = logging.INFO if level is None else LEVELS[level]
    if stream.isatty() and form != "json":
        from laneway.cli.show import JobLines  # noqa: PLC0415 - only a terminal needs it

        lines = JobLines(stream, tasks, asked)
        lines.install()
        if events is not None:
            lines.listen(events)
    elif level is not None or form is not None or not (logging.getLogger().handlers or log.handlers):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines() if form == "json" else TextLines())
        log.handlers[:] = [handler]
        log.propagate = level is None and form is None  # else the program's own handlers would show it once more
        log.setLevel(asked)
