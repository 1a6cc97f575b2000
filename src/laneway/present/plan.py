"""A plan from a user's figures and those of a store; and the plan as a document.

Enters: figures and `Observed`.  Leaves: a `Plan`, a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from laneway.capacity import Load, Machine, Plan, plan
from laneway.capacity.observe import Observed

__all__ = ["plan_document", "plan_from"]

LOAD = ("rate", "share", "seconds", "kind", "bytes", "backlog")
MACHINE = ("cores", "slots", "ram", "app_memory")


def plan_from(given: Mapping[str, Any], seen: Observed | None) -> Plan:
    """Plan with what is given, else with what was seen, else with what is usual; None is not given."""
    load = _known(LOAD, given)
    usual = {} if seen is None else {"slots": seen.slots, "app_memory": seen.app_memory}
    machine = Machine(**{**_known(MACHINE, usual), **_known(MACHINE, given)})
    if seen is None:
        return plan(Load(**load), machine)
    return plan(replace(seen.load, **load), machine, seen.crew)


def _known(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) is not None}


def plan_document(answers: Plan, seen: Observed | None) -> dict[str, Any]:
    """Return a plan as a document: seconds, hours and bytes as numbers."""
    return {
        "based_on": _basis(seen) if seen else None,
        "load": _load(answers),
        "machine": {**asdict(answers.machine), "processes": answers.machine.processes},
        "workers": asdict(answers.crew) if answers.crew else None,
        "alone": asdict(answers.alone),
        "with_machine": asdict(answers.with_machine),
        "now": asdict(answers.now) if answers.now else None,
        "needed": asdict(answers.need),
    }


def _basis(seen: Observed) -> dict[str, Any]:
    return {
        "runs": seen.runs, "seconds": seen.over, "ended_ago": seen.ago, "enough": seen.enough,
        "paused": list(seen.paused),
    }  # fmt: skip


def _load(answers: Plan) -> dict[str, Any]:
    load = answers.load
    return {
        **asdict(load),
        "jobs_a_second": float(load.jobs),
        "jobs_a_day": answers.jobs_a_day,
        "hours_of_work_a_day": answers.hours_of_work_a_day,
        "at_once": float(load.work),
    }
