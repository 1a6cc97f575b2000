"""History and capacity: what happened on each day, by task; whether workers keep up, and what it would take.

Days are those of UTC, as the store counts them. The plan is that of `laneway plan`: with what is given, else with what was seen
of late. How a backlog grows or goes is a straight line that ends at nothing; it is drawn until then, or for a week.

Enters: a `WebRequest`.  Leaves: plain values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from laneway.capacity import DAY, HOUR, WEEK
from laneway.core.instant import SECOND, as_datetime
from laneway.desk.stats import Day, Stats, Summary
from laneway.errors import LanewayError
from laneway.web.api import PLAN, capacity
from laneway.web.pages.filters import short
from laneway.web.pages.points import PointRow, row_at, row_of_day, spark
from laneway.web.refused import Refused, refusal_of
from laneway.web.request import WebRequest, bad

__all__ = ["backlog_after", "far_enough", "history", "verdict"]

DAYS = (7, 30, 90, 365)
#: The number of tasks that are listed, the busiest ones.
TASKS = 100
#: How far the plan's chart may reach, seconds; and by how many steps.
REACHES, STEPS = (10 * 60, HOUR, 6 * HOUR, DAY, WEEK), 48


def history(ask: WebRequest) -> dict[str, Any]:
    """Show the days, and the plan."""
    days = ask.whole("days", 30, DAYS[0], DAYS[-1])
    if days not in DAYS:
        raise bad(f"days={days}: there are {', '.join(map(str, DAYS))}")
    task = ask.text("task") or None
    by_task = ask.app.stats.history(days, by_task=True)
    shown = ask.app.stats.history(days) if task is None else by_task.get(task, [])
    rows = _tasks(ask.app.stats, days, by_task)
    return {
        "days": days,
        "choices": DAYS,
        "task": task,
        "chart": [row_of_day(day.date, [day.processed, day.failed]) for day in shown],
        "sums": {name: sum(getattr(day, name) for day in shown) for name in ("enqueued", "processed", "failed", "dead")},
        "tasks": rows[:TASKS],
        "others": max(len(rows) - TASKS, 0),
        **_plan(ask),
    }


def _tasks(stats: Stats, days: int, by_task: Mapping[str, Sequence[Day]]) -> list[dict[str, Any]]:
    """Return the tasks over the days, the busiest first."""
    summaries = sorted(stats.tasks(days * DAY).values(), key=lambda one: (-one.processed - one.failed, one.name))
    return [_row(one, by_task.get(one.name, ())) for one in summaries]


def _row(found: Summary, days: Sequence[Day]) -> dict[str, Any]:
    runs = found.wait.count  # of a collector's run each lane
    return {
        "name": found.name, "processed": found.processed, "failed": found.failed, "dead": found.dead,
        "errors": found.failed / runs if runs else None, "run": found.run, "wait": found.wait,
        "spark": spark([day.processed for day in days[:-1]]),  # today has only begun
    }  # fmt: skip


# -- the plan ----------------------------------------------------------------------------------------------------


def _plan(ask: WebRequest) -> dict[str, Any]:
    """Return the plan, or why there is none; and what was given, for the form."""
    given = {name: value.strip() for name in PLAN if isinstance(value := ask.given.get(name), str) and value.strip()}
    form = {**dict.fromkeys(PLAN, ""), **given}
    empty: dict[str, Any] = {"form": form, "plan": None, "plan_error": "", "paces": [], "backlog": [], "verdict": ""}
    try:
        found: Any = capacity(dataclasses.replace(ask, given=given))
    except (Refused, LanewayError) as error:
        return {**empty, "plan_error": refusal_of(error).message}
    first = ("workers now", found["now"]) if found["now"] else ("one at a time", found["alone"])
    paces = [first, ("one machine", found["with_machine"])]
    # One job at a time is not a realistic plan, and its line would hide the others in a chart.
    drawn = paces if found["now"] else paces[1:]
    return {
        **empty, "plan": found, "paces": paces, "drawn": [name for name, _ in drawn], "backlog": _backlog(ask, found, drawn),
        "verdict": verdict(found),
    }  # fmt: skip


def _backlog(ask: WebRequest, found: Mapping[str, Any], paces: Sequence[tuple[str, Mapping[str, Any]]]) -> list[PointRow]:
    load = found["load"]
    now = ask.app.store.schedules().now
    at_once = [*(pace["at_once"] for _, pace in paces), found["needed"]["slots_for_day"]]
    reach = far_enough([pace["drained"] for _, pace in paces])
    rows: list[PointRow] = []
    for after in (reach * step / STEPS for step in range(STEPS + 1)):
        waiting = [backlog_after(after, load, number) for number in at_once]
        rows.append(row_at(as_datetime(now + round(after * SECOND)), waiting, with_day=reach > DAY))
    return rows


def far_enough(drained: Sequence[float | None]) -> int:
    """Return how far to look, seconds: until nothing waits any more, or a week if something always does.

    >>> far_enough([120.0, 4000.0]), far_enough([None, 5.0]), far_enough([0.0])
    (21600, 604800, 86400)
    """
    if not any(drained) and None not in drained:
        return DAY
    last = max(WEEK if seconds is None else seconds for seconds in drained)
    return next((reach for reach in REACHES if last <= reach * 0.8), WEEK)


def backlog_after(seconds: float, load: Mapping[str, Any], at_once: int) -> float:
    """Return how many jobs wait after a time, if this many run at a time.

    >>> load = {"backlog": 7200, "jobs_a_second": 2.0, "seconds": 1.0}
    >>> [backlog_after(3600, load, at_once) for at_once in (1, 3, 9)]
    [10800.0, 3600.0, 0.0]
    """
    grows: float = load["jobs_a_second"] - at_once / load["seconds"]  # in a second
    return max(float(load["backlog"]) + grows * seconds, 0.0)


def verdict(found: Mapping[str, Any]) -> str:
    """Say in a sentence whether it keeps up."""
    pace, need = found["now"] or found["with_machine"], found["needed"]
    who = "The workers" if found["now"] else "One such machine"
    verb = "keep" if found["now"] else "keeps"
    if not found["load"]["jobs_a_second"]:
        return "Nothing comes, so anything keeps up."
    if pace["keeps_up"]:
        left = " and work off what waits" if found["load"]["backlog"] and pace["drained"] else ""
        left = left if found["now"] else left.replace("work", "works")
        return f"{who} {verb} up{left}: busy {short(pace['busy'], 'share')} of the time."
    grows = max(pace["after_day"] - found["load"]["backlog"], 0)
    takes = f"it takes {short(need['slots'])} at a time, there {'are' if pace['at_once'] != 1 else 'is'} {short(pace['at_once'])}"
    return f"{who} do{'' if found['now'] else 'es'} not keep up: {short(grows)} more jobs wait with every day; {takes}."
