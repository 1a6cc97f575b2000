"""Enqueueing into a collector: a lane and a payload, from words of a command or from a line of a file.

A payload is read as the collector's annotation says, so that its own `lane=` and `score=` get what they expect.

Enters: words and lines.  Leaves: payloads in lanes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click

from laneway.cli.command import said
from laneway.cli.enqueue import hint, read_value
from laneway.cli.enqueue_file import enqueue_rows
from laneway.core.job import lane_id
from laneway.desk.collector import AnyCollector, Collector, KeyedCollector
from laneway.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.desk.handle import LaneHandle
    from laneway.desk.task import Bound

__all__ = ["check_options", "collect"]

#: What a line that is an object may have.
FIELDS = ("lane", "payload", "score", "run_after")


def check_options(name: str, given: Mapping[str, object]) -> None:
    """Refuse options that only jobs have."""
    wrong = [flag for flag, value in given.items() if value not in (None, False, ())]
    if wrong:
        raise click.UsageError(f"{name} is a collector, and {', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} for tasks")


def collect(
    app: App, collector: AnyCollector[Any, Any], arguments: tuple[str, ...], score: float | None,
    later: float | datetime | None, rows: Any, *, as_json: bool,
) -> None:  # fmt: skip
    """Put a payload into a collector's lane, or one for each line of a file."""
    if rows is not None:
        if score is not None:
            raise click.UsageError("--from gives many payloads: a line has its own score, and --score is for one")
        enqueue_rows(app, collector.name, _binder(collector, later), rows, "payload", as_json=as_json)
        return
    # A lane is taken as it is written; the payload, always the last one, is JSON where it can be read so.
    before = 0 if isinstance(collector, KeyedCollector) else 1
    with hint():
        lane = _send(collector, (*arguments[:before], *map(read_value, arguments[before:])), score, later)
    said(lane.lane, {"id": lane_id(lane.queue, lane.lane), "queue": lane.queue, "lane": lane.lane}, as_json)


def _send(
    collector: AnyCollector[Any, Any], words: tuple[object, ...], score: float | None, when: float | datetime | None
) -> LaneHandle:
    """Put a payload into a lane; `words` are the command's arguments, the lane as it is written."""
    if isinstance(collector, KeyedCollector):
        if len(words) != 1:
            raise click.UsageError(f"{collector.name} knows the lane of a payload: laneway enqueue {collector.name} PAYLOAD")
        return collector.using(**_moment(when)).enqueue(_typed(collector, words[0]), score=score)
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"{collector.name} is a collector: laneway enqueue {collector.name} LANE [PAYLOAD]")
    payload = [_typed(collector, word) for word in words[1:]]
    return _open(collector).using(**_moment(when)).enqueue(cast("str", words[0]), *payload, score=score)


def _binder(collector: AnyCollector[Any, Any], when: float | datetime | None) -> Callable[[object], Bound]:
    """Return what makes a call of a line: a payload, if the collector knows its lane, else what `_item` takes."""
    if isinstance(collector, KeyedCollector):
        using = collector.using(**_moment(when))
        return lambda row: using.bind(_typed(collector, row))
    return lambda row: _item(_open(collector), row, when)


def _item(collector: Collector[Any, Any], row: object, when: float | datetime | None) -> Bound:
    """A line is a lane, a list as in `enqueue_many`, or an object."""
    if isinstance(row, str | int):
        row = [row]
    if isinstance(row, list):
        row = (
            dict(zip(FIELDS, cast("list[object]", row), strict=False)) if len(cast("list[object]", row)) <= len(FIELDS) else None
        )
    if not isinstance(row, dict) or "lane" not in row:
        raise BadArguments('it names no lane: write ["order-7", PAYLOAD], with a score and run_after behind it if you like')
    fields = cast("dict[str, Any]", row)
    if unknown := [name for name in fields if name not in FIELDS]:
        raise BadArguments(f'there is no "{unknown[0]}".{did_you_mean(unknown[0], FIELDS)} Use {", ".join(FIELDS)}')
    later = fields.get("run_after")
    payload = [_typed(collector, fields["payload"])] if "payload" in fields else []
    return collector.using(**_moment(when if later is None else later)).bind(fields["lane"], *payload, score=fields.get("score"))


def _open(collector: AnyCollector[Any, Any]) -> Collector[Any, Any]:
    assert isinstance(collector, Collector)  # noqa: S101 - there are two kinds
    return collector


def _moment(when: Any) -> Any:
    return {} if when is None else {"run_after": when}


def _typed(collector: AnyCollector[Any, Any], value: object) -> Any:
    """Return a payload as the collector's annotation says."""
    try:
        return collector.payload.unpack(json.dumps(value).encode())
    except BadArguments as error:
        raise BadArguments(f"{collector.name}, payload: {error}") from None
