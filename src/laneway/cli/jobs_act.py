"""Acting on jobs: `laneway jobs retry|cancel|kill|delete|reschedule`.

One id is acted on at once. More than one, or all that match filters, are counted first, and a question is asked.

Enters: ids or filters.  Leaves: how many jobs were changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from laneway.cli import complete
from laneway.cli.command import CliCommand, app_options, confirmed, examples, json_option, opened, question_options, said
from laneway.cli.known import unknown_job
from laneway.cli.values import DURATION, MOMENT, OneOf, when
from laneway.core.job import FINISHED, STATES
from laneway.present.actions import CANCEL, DELETE, FILTERS, KILL, RESCHEDULE, RETRY, Action
from laneway.present.known import check_queue, check_task, collects
from laneway.present.words import job_type, plural

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.inspection import JobInfo

__all__ = ["ACTIONS", "filter_options", "given"]

F = TypeVar("F", bound=Callable[..., Any])
_STATES = (*STATES, *FINISHED)


def filter_options(function: F) -> F:
    """Add the filters."""
    for option in (
        click.option("--failing", is_flag=True, help="Only what has failed and is not dead."),
        click.option("--error", metavar="TEXT", help="A part of the last error."),
        click.option("--lane", metavar="LANE", help="Only of this lane.", shell_complete=complete.job_lanes),
        click.option("--task", metavar="TASK", help="Only of this task.", shell_complete=complete.tasks),
        click.option("--queue", metavar="QUEUE", help="Only of this queue.", shell_complete=complete.queues),
        click.option("--state", type=OneOf(_STATES), metavar="STATE", help=f"Only those: {', '.join(_STATES)}."),
    ):
        function = option(function)
    return function


def given(which: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters that were given."""
    return {name: value for name, value in which.items() if name in FILTERS and value not in (None, False)}


def _act(
    action: Action, ids: tuple[str, ...], at: float | datetime | None, *, yes: bool, dry_run: bool,
    app_option: str | None, store: str | None, as_json: bool, **which: Any,
) -> None:  # fmt: skip
    filters = given(which)
    if bool(ids) == bool(filters):
        how = f"laneway jobs {action.verb} ID, or with --state, --queue, --task, --lane, --error or --failing"
        raise click.UsageError(f"ids and filters together: use one of them. {how}" if ids else f"say which jobs: {how}")
    with opened(app_option, store) as app:
        changed, matching, noun = _one(app, action, ids[0], at, dry_run) if len(ids) == 1 else _many(
            app, action, {"ids": ids} if ids else filters, at, yes=yes, dry_run=dry_run
        )  # fmt: skip
    done = f"{plural(changed, noun)} {action.past}" + (f" of {matching} that matched" if changed < matching else "")
    text = f"{plural(matching, noun)} would be {action.past}; nothing was changed" if dry_run else done
    said(text, {"matched": matching, "changed": changed, "dry_run": dry_run}, as_json)


def _one(app: App, action: Action, id_: str, at: float | datetime | None, dry_run: bool) -> tuple[int, int, str]:
    job = _job(app, id_)
    if not dry_run and not action.apply(app, id_, at):
        raise click.ClickException(f"{id_} is {job.state}: there is nothing to {action.verb}")
    return int(not dry_run), 1, job_type(job)


def _job(app: App, id_: str) -> JobInfo:
    job = app.inspect.job(id_)
    if job is None:
        raise unknown_job(app, id_)
    return job


def _many(
    app: App, action: Action, which: Mapping[str, Any], at: float | datetime | None, *, yes: bool, dry_run: bool
) -> tuple[int, int, str]:
    counted = _count_ids(app, which["ids"]) if "ids" in which else _count(app, action, which)
    matching = counted.total()
    kinds = {kind for kind, _ in counted}
    noun = kinds.pop() if len(kinds) == 1 else "job"
    if not matching or dry_run:
        return 0, matching, noun
    parts = ", ".join(f"{counted[kind, state]:,} {state}" for kind, state in counted)
    confirmed(f"{action.verb.capitalize()} {plural(matching, noun)} ({parts})?", yes=yes)
    return sum(action.apply_all(app, at, **one) for one in action.targets(which)), matching, noun


def _count_ids(app: App, ids: Sequence[str]) -> Counter[tuple[str, str]]:
    """Count jobs by what they are and by state; all of them must be there."""
    return Counter((job_type(job), str(job.state)) for job in (_job(app, id_) for id_ in dict.fromkeys(ids)))


def _count(app: App, action: Action, which: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """Count what matches by what it is and by state; only what the action can change, unless a state is asked for."""
    check_queue(app, which.get("queue"))
    check_task(app, which.get("task"))
    lanes = collects(app, which.get("queue", which.get("task")))  # a collector's queue has its name
    counted: Counter[tuple[str, str]] = Counter()
    for state in (which["state"],) if "state" in which else action.states:
        one: dict[str, Any] = {**which, "state": state}
        if number := app.inspect.count(**one):
            counted["job" if not lanes else "payload" if state == "dead" else "lane", state] = number
    return counted


# -- the commands ------------------------------------------------------------------------------------------------


def _options(function: F) -> F:
    for option in (json_option, app_options, question_options, filter_options):
        function = option(function)
    return click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete.ids)(function)


def _command(action: Action, meaning: str, *shown: str) -> click.Command:
    @click.command(action.verb, cls=CliCommand, help=meaning, epilog=examples(*shown))
    @_options
    def command(ids: tuple[str, ...], **options: Any) -> None:
        _act(action, ids, None, **options)

    return command


@click.command(
    "reschedule", cls=CliCommand,
    epilog=examples(
        "laneway jobs reschedule 06c4g8w2r9k1x3v5b7n0 --in 5m",
        "laneway jobs reschedule --queue mail --at 2026-12-24T18:00+01:00",
    ),
)  # fmt: skip
@click.option("--in", "within", metavar="DURATION", type=DURATION, help="After this time: 30s, 5m, 2h, 1d.")
@click.option("--at", metavar="TIME", type=MOMENT, help="At this time: 2026-12-24T18:00+01:00.")
@_options
def reschedule(ids: tuple[str, ...], within: float | None, at: datetime | None, **options: Any) -> None:
    """Make waiting jobs due at another time."""
    _act(RESCHEDULE, ids, when(within, at, needed=True), **options)


ACTIONS = (
    _command(
        RETRY, "Run dead jobs again, or those that wait for their retry now.",
        "laneway jobs retry 06c4g8w2r9k1x3v5b7n0", "laneway jobs retry --state dead --error Timeout --dry-run",
    ),
    reschedule,
    _command(
        CANCEL, "Cancel jobs; those that run are asked to end.",
        "laneway jobs cancel 06c4g8w2r9k1x3v5b7n0", "laneway jobs cancel --task shop.newsletter --yes",
    ),
    _command(
        KILL, "Let jobs die: they are kept, and can be retried.",
        "laneway jobs kill 06c4g8w2r9k1x3v5b7n0", "laneway jobs kill --queue mail --state ready",
    ),
    _command(
        DELETE, "Remove jobs for good; those that run, after their run.",
        "laneway jobs delete 06c4g8w2r9k1x3v5b7n0", "laneway jobs delete --state dead --task shop.old --yes",
    ),
)  # fmt: skip
