"""Filters as conditions of a statement."""

from __future__ import annotations

from typing import Any

import msgspec

from laneway.store.inspect import Filter

__all__ = ["COLUMNS", "condition"]

#: The columns of a row, in its order.
COLUMNS = (
    "seq, id, queue, task, lane, rank, place, due, state, holds, attempt, enqueued, worker, token, mark, lost, errors, "
    "unique_key, expires, ran, side, next_due, next_since, score"
)

#: A state of the API as a condition; `:now` is the store's.
_IN_STATE = {
    "scheduled": "state = 0 and due > :now",
    "ready": "state < 2 and due <= :now",
    "retrying": "state = 1 and due > :now",
    "blocked": "state = 2",
    "running": "state = 3",
    "dead": "state = 4",
    "waiting": "state < 3",  # of ours: all that clear() removes
}
#: The last error's kind or message. Errors are JSON, but anybody may have written them.
_ERROR = """case when json_valid(cast(errors as text)) then
    instr(json_extract(cast(errors as text), '$[#-1].kind'), :error)
    or instr(json_extract(cast(errors as text), '$[#-1].message'), :error)
end"""


def condition(which: Filter, now: int) -> tuple[str, dict[str, Any]]:
    """Return what is true of the jobs that a filter means, and the values in it."""
    terms = ["true"]
    if which.state is not None:
        terms.append(_IN_STATE[which.state])
    terms += [f"{name} = :{name}" for name in ("queue", "task", "lane") if getattr(which, name) is not None]
    if which.failing:
        terms.append("attempt > 0 and state < 4")
    if which.error is not None:
        terms.append(_ERROR)
    if which.ids is not None:
        terms.append("id in (select value from json_each(:ids))")
    values = {
        "now": now, "queue": which.queue, "task": which.task, "lane": which.lane, "error": which.error,
        "ids": None if which.ids is None else msgspec.json.encode(which.ids).decode(),
    }  # fmt: skip
    return " and ".join(terms), values
