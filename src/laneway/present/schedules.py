"""Setting schedules by hand, from the command line or over HTTP: names and texts become a call and when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway.errors import BadArguments, NotFound
from laneway.settings import read_duration

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.inspection import ScheduleInfo

__all__ = ["paused_document", "set_schedule", "when_of"]


def when_of(text: str) -> str | timedelta:
    """Return when a schedule runs, as people write it: an interval, else cron.

    >>> when_of("5m"), when_of("0 3 * * *"), when_of("@daily")
    (datetime.timedelta(seconds=300), '0 3 * * *', '@daily')
    """
    try:
        return timedelta(seconds=read_duration(text))
    except (ValueError, OverflowError):
        return text


def set_schedule(
    app: App, name: str, task: str, when: str, args: Sequence[object], kwargs: Mapping[str, Any], options: Mapping[str, Any],
    **more: Any,
) -> ScheduleInfo:  # fmt: skip
    """Keep a schedule in the store, and return it. The task may be one that only workers know."""
    declared: Any = app.declared.get(task)
    try:
        if declared is None:
            call = app.using(**options).bind(task, *args, check=False, **kwargs)
        else:
            call = (declared.using(**options) if options else declared).bind(*args, **kwargs)
    except TypeError as error:  # a collector has parameters of its own
        if isinstance(error, BadArguments):
            raise
        raise BadArguments(f"{task}: {error}") from None
    app.inspect.set_schedule(name, call, when_of(when), **more)
    for made in app.inspect.schedules(name):
        return made
    raise NotFound(f'the schedule "{name}" was set, and another program dropped it at once')


def paused_document(app: App, name: str, paused: bool) -> dict[str, Any]:
    """Return what became of a schedule that was paused or resumed."""
    task = next((one.task for one in app.inspect.schedules(name)), "")
    return {"name": name, "task": task, "paused": paused}
