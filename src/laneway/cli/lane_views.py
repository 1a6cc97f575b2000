"""A lane as a document, as a row of a list, and as a page; and its payloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laneway.cli.job_views import error_lines, facts, head, score_cell, time_text, title
from laneway.cli.table import STATE_COLOURS, Cell, Column, moment
from laneway.present.words import due_word, lane_state, plural, summary

if TYPE_CHECKING:
    from laneway.store.inspection import JobInfo, LaneInfo, PayloadInfo

__all__ = ["PAYLOAD_COLUMNS", "columns", "errors", "label", "opening", "payload_row", "payload_text", "row", "size"]

COLUMNS = [
    Column("lane", wish=16, names=True),
    Column("queue", spare=3, names=True),
    Column("size", right=True, whole=True),
    Column("state", whole=True),
    Column("attempts", right=True, whole=True, spare=2),
    Column("due", whole=True),
    Column("task", spare=1, names=True),
    Column("last error", wish=20),
]
PAYLOAD_COLUMNS = [Column("state", whole=True), Column("score", whole=True), Column("payload")]


def columns(lanes: Sequence[LaneInfo], *, terminal: bool) -> list[Column]:
    """Return the columns of a list; tables for people name what is counted, where it is the same for all."""
    counted = {"payloads" if lane.collects else "jobs" for lane in lanes}
    name = counted.pop() if terminal and len(counted) == 1 else "size"
    return [column._replace(name=name) if column.name == "size" else column for column in COLUMNS]


def size(lane: LaneInfo) -> str:
    """Return how much is in a lane, in words."""
    return plural(lane.size, "payload" if lane.collects else "job")


def label(lane: LaneInfo) -> str:
    """Return a lane's name and its queue's."""
    return f"lane {lane.lane} of {lane.queue}"


def row(lane: LaneInfo, queues: int) -> list[str | Cell]:
    """Return a lane as a row; where all are of one queue a terminal need not show it."""
    own = lane.task == lane.queue  # a collector's name: it need not be shown twice
    return [
        lane.lane,
        lane.queue if queues > 1 else Cell(lane.queue, "", " "),
        str(lane.size),
        Cell(lane_state(lane), STATE_COLOURS[lane_state(lane)]),
        str(lane.attempts) if lane.attempts else Cell("0", "", " "),
        moment(lane.due_at),
        Cell(lane.task, "", " ") if own and queues > 1 else lane.task,
        Cell(summary(lane.error), "red") if lane.error else "",
    ]


# -- the page ----------------------------------------------------------------------------------------------------


def opening(lane: LaneInfo, reasons: Sequence[str], job: JobInfo | None) -> list[str]:
    """Return the first lines of a lane's page: its state, and why; `job` is the lane itself, or the job at its head."""
    known = [
        ("queue", lane.queue),
        ("task", lane.task if lane.task != lane.queue else ""),
        ("head", "" if lane.collects else f"job {lane.head}"),
        ("payloads" if lane.collects else "jobs", f"{lane.size:,}"),
        ("attempts", str(lane.attempts)),
        (due_word(lane.state), time_text(lane.due_at)),
        ("worker", (job and job.worker) or ""),
        ("asked for", (job and job.mark) or ""),
    ]
    return [title(lane.lane, lane.task, lane_state(lane)), *(f"  {reason}" for reason in reasons), "", *facts(known)]


def errors(lane: LaneInfo, job: JobInfo | None) -> list[str]:
    """Return the last error of a lane with its traceback, and where the others are."""
    if lane.error is None:
        return []
    others = len(job.errors) - 1 if job else 0
    more = [f"  {plural(others, 'more error')}: laneway jobs show {lane.head}"] if others > 0 else []
    return ["", head("last error"), *error_lines(lane.error), *more]


# -- payloads ----------------------------------------------------------------------------------------------------


def payload_text(payload: PayloadInfo) -> str:
    """Return a payload as it is stored."""
    return payload.body.decode(errors="replace") if payload.body else "left out"


def payload_row(payload: PayloadInfo) -> list[str | Cell]:
    """Return a payload as a row; on a terminal only those that run have a state."""
    running = Cell("running", STATE_COLOURS["running"]) if payload.running else Cell("waiting", "", " ")
    return [running, score_cell(payload.score), payload_text(payload)]
