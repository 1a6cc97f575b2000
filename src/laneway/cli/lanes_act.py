"""Acting on lanes: `laneway lanes run|drop-oldest|drop|kill|delete`.

What removes more than one payload, or acts on many lanes, asks first.

Enters: a lane, or a collector's queue.  Leaves: what was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from laneway.cli import complete
from laneway.cli.command import (
    CliCommand,
    app_options,
    change_many,
    confirmed,
    examples,
    json_option,
    opened,
    question_options,
    said,
)
from laneway.cli.known import find_lane
from laneway.cli.lane_views import label, payload_text, size
from laneway.core.job import TIMED
from laneway.present.actions import CANCEL, DELETE, KILL, Action, can_run
from laneway.present.known import check_queue
from laneway.present.words import lane_state, plural

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.inspection import LaneInfo

__all__ = ["ACTIONS", "lane_argument"]

F = TypeVar("F", bound=Callable[..., Any])


def lane_argument(function: F) -> F:
    """Add the lane, and the queue it is of."""
    function = click.option(
        "--queue", metavar="QUEUE", help="Of this queue, if more than one has such a lane.", shell_complete=complete.queues
    )(function)  # fmt: skip
    return click.argument("name", metavar="LANE", shell_complete=complete.lanes)(function)


def _check_collector(app: App, queue: str, instead: str) -> None:
    """Refuse a queue whose lanes are made of jobs."""
    check_queue(app, queue)
    if any(found.name == queue and not found.collects for found in app.inspect.queues()):
        raise click.UsageError(
            f"queue {queue} does not belong to a collector: act on its jobs with laneway jobs {instead} --queue {queue}"
        )


def _parts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in counted.items() if number)


# -- run now -----------------------------------------------------------------------------------------------------


@click.command(
    "run", cls=CliCommand,
    epilog=examples("laneway lanes run order-7", "laneway lanes run --all --queue shop.sync_orders --yes"),
)  # fmt: skip
@click.argument("name", metavar="[LANE]", required=False, shell_complete=complete.lanes)
@click.option("--all", "everything", is_flag=True, help="All lanes of a collector.")
@click.option("--queue", metavar="QUEUE", help="Of this queue.", shell_complete=complete.queues)
@question_options
@app_options
@json_option
def run(
    name: str | None, everything: bool, queue: str | None, yes: bool, dry_run: bool, app_option: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Let lanes run now that wait for their time or their retry."""
    if (name is None) != everything:
        how = "laneway lanes run LANE, or with --all --queue QUEUE for all of a collector"
        raise click.UsageError(f"a lane and --all together: use one of them. {how}" if name else f"say which lane: {how}")
    with opened(app_option, store) as app:
        if name is not None:
            _run_one(app, name, queue, dry_run=dry_run, as_json=as_json)
        elif queue is None:
            raise click.UsageError("--all is for the lanes of one collector: name its queue with --queue")
        else:
            _run_all(app, queue, yes=yes, dry_run=dry_run, as_json=as_json)


def _run_one(app: App, name: str, queue: str | None, *, dry_run: bool, as_json: bool) -> None:
    lane = find_lane(app, name, queue)
    if not can_run(lane) or not (dry_run or app.inspect.run_lane(lane.queue, lane.lane)):
        raise click.ClickException(f"{label(lane)} {_cannot_run(lane)}")
    text = f"{label(lane)} would be due now; nothing was changed" if dry_run else f"{label(lane)} is due now"
    document = {"queue": lane.queue, "lane": lane.lane, "matched": 1, "changed": int(not dry_run), "dry_run": dry_run}
    said(text, document, as_json)


def _cannot_run(lane: LaneInfo) -> str:
    """Say why a lane is not made to run now, and what else can be done."""
    words = {
        "dead": f"is halted by job {lane.head}: replay it with laneway jobs retry {lane.head}, or delete it to go on",
        "scheduled": f"waits for the time of job {lane.head}: change it with laneway jobs reschedule {lane.head} --in 0s",
        "running": "runs already",
    }
    return words.get(lane.state, "is due already: laneway lanes explain says what it waits for")


def _run_all(app: App, queue: str, **options: bool) -> None:
    _check_collector(app, queue, "retry")
    counted: dict[str, int] = {state: app.inspect.count(state, queue=queue) for state in TIMED}
    matching = sum(counted.values())
    change_many(
        lambda number: f"{plural(number, 'lane')} of {queue}", "made due now", matching, lambda: app.inspect.run_lanes(queue),
        f"Let {plural(matching, 'lane')} of {queue} run now ({_parts(counted)})?", queue=queue, **options,
    )  # fmt: skip


# -- drop --------------------------------------------------------------------------------------------------------


@click.command(
    "drop-oldest", cls=CliCommand,
    epilog=examples("laneway lanes drop-oldest order-7", "laneway lanes drop-oldest order-7 --queue shop.sync_orders"),
)  # fmt: skip
@lane_argument
@app_options
@json_option
def drop_oldest(name: str, queue: str | None, app_option: str | None, store: str | None, as_json: bool) -> None:
    """Remove a lane's oldest payload for good.

    That is the one with the lowest score among those that wait; what runs is left alone.
    """
    with opened(app_option, store) as app:
        lane = find_lane(app, name, queue)
        if not lane.collects:
            raise click.UsageError(f"{label(lane)} has jobs, not payloads: remove the first with laneway jobs delete {lane.head}")
        dropped = app.inspect.drop_oldest(lane.queue, lane.lane)
        if dropped is None:
            raise click.ClickException(f"in {label(lane)} nothing waits: what is in it runs")
    left = lane.size - 1
    document = {"queue": lane.queue, "lane": lane.lane, "payload": dropped.value, "score": dropped.score, "left": left}
    said(f"dropped from {label(lane)}, {left:,} left: {payload_text(dropped)}", document, as_json)


@click.command(
    "drop",
    cls=CliCommand,
    epilog=examples("laneway lanes drop order-7", "laneway lanes drop order-7 --queue shop.sync_orders --yes"),
)
@lane_argument
@question_options
@app_options
@json_option
def drop(
    name: str, queue: str | None, yes: bool, dry_run: bool, app_option: str | None, store: str | None, as_json: bool
) -> None:
    """Remove a lane with all that is in it, for good.

    What waits goes at once, what runs when its run has ended. A halted lane goes too; what else is dead stays.
    """
    with opened(app_option, store) as app:
        lane = find_lane(app, name, queue)
        what = f"{label(lane)} with {size(lane)}"
        if not dry_run:
            confirmed(f"Drop {what} ({lane_state(lane)})?", yes=yes)
        dropped = 0 if dry_run else app.inspect.drop_lane(lane.queue, lane.lane)
    text = f"{what} would be dropped; nothing was changed" if dry_run else f"{what} dropped"
    if dropped and lane.state == "running":
        text += "; what runs goes when its run has ended"
    document = {"queue": lane.queue, "lane": lane.lane, "size": lane.size, "matched": 1, "changed": int(dropped > 0)}
    said(text, {**document, "dry_run": dry_run}, as_json)


# -- all that fail -----------------------------------------------------------------------------------------------


def _failing_options(function: F) -> F:
    for option in (
        json_option,
        app_options,
        question_options,
        click.option("--queue", metavar="QUEUE", help="The collector's queue.", shell_complete=complete.queues),
        click.option("--failing", is_flag=True, help="All lanes that have failed and wait for their retry, or run again."),
    ):
        function = option(function)
    return function


def _act_failing(
    action: Action, *, failing: bool, queue: str | None, app_option: str | None, store: str | None, **options: bool
) -> None:
    verb = action.verb
    if not failing or queue is None:
        raise click.UsageError(
            f"say which lanes: laneway lanes {verb} --failing --queue QUEUE. One lane is removed with laneway lanes drop LANE"
        )
    with opened(app_option, store) as app:
        _check_collector(app, queue, f"{verb} --failing")
        counted = {state: app.inspect.count(state, queue=queue, failing=True) for state in CANCEL.states}
        matching = sum(counted.values())
        change_many(
            lambda number: f"{plural(number, 'failing lane')} of {queue}", action.past, matching,
            lambda: action.apply_all(app, queue=queue, failing=True),
            f"{verb.capitalize()} {plural(matching, 'failing lane')} of {queue} with all payloads ({_parts(counted)})?",
            queue=queue, **options,
        )  # fmt: skip


@click.command("kill", cls=CliCommand, epilog=examples("laneway lanes kill --failing --queue shop.sync_orders --dry-run"))
@_failing_options
def kill(**options: Any) -> None:
    """Let failing lanes of a collector die.

    Their payloads are dead then, each by itself: laneway jobs retry --state dead --queue QUEUE puts them back.
    """
    _act_failing(KILL, **options)


@click.command("delete", cls=CliCommand, epilog=examples("laneway lanes delete --failing --queue shop.sync_orders --dry-run"))
@_failing_options
def delete(**options: Any) -> None:
    """Remove failing lanes of a collector, for good."""
    _act_failing(DELETE, **options)


ACTIONS = (run, drop_oldest, drop, kill, delete)
