"""What can be done: everything `app.inspect` does to jobs, queues, lanes, workers and schedules.

One job is acted on at once. All that match filters, or are named, and whatever else may take long, is an operation: the answer is
202 and its id. Which jobs are meant is found first; then they are changed in portions, those that still match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from laneway.core.instant import When
from laneway.desk.app import App
from laneway.present.actions import ACTIONS as JOB_ACTIONS
from laneway.present.actions import FILTERS, RESCHEDULE, Action, waiting_in
from laneway.present.known import check_queue, collects
from laneway.present.schedules import paused_document, set_schedule
from laneway.store.inspection import Page
from laneway.web.api import LANE, job_id
from laneway.web.endpoint import Endpoint
from laneway.web.operations import Operation, Work
from laneway.web.refused import Refused
from laneway.web.request import Answer, WebRequest, bad

__all__ = ["ACTIONS", "begin", "walk"]

#: The number of jobs that one query finds.
FOUND = 5_000
#: How long an answer waits for an operation that only this process knows, seconds: servers end a request after 30.
WAITED = 20.0
#: What says which schedule is set, and the options of its jobs.
SET = ("task", "when", "args", "kwargs", "timezone", "catch_up")
OPTIONS = ("queue", "lane", "priority")


# -- jobs --------------------------------------------------------------------------------------------------------


def act(action: Action, ask: WebRequest) -> object:
    """Act on one job."""
    id_ = job_id(ask)
    if not action.apply(ask.app, id_, _when(action, ask)):
        found = ask.app.inspect.job(id_)
        state = "gone" if found is None else found.state
        raise Refused(409, "nothing_to_do", f"{id_} is {state}: there is nothing to {action.verb}")
    return {"id": id_, "matched": 1, "changed": 1, "dry_run": False}


def act_all(action: Action, ask: WebRequest) -> object:
    """Act on all jobs that match, or are named."""
    which, ids = ask.which(), ask.ids()
    if ids is not None and which:
        raise bad("ids and filters together: use one of them")
    if ids is None and not which and not ask.flag("all"):
        raise bad(f'say which jobs: {", ".join(FILTERS)}, or ids; all of them with {{"all": true}}')
    when, targets = _when(action, ask), action.targets(which) if ids is None else [which]
    if ask.flag("dry_run"):
        matched = len(ids) if ids is not None else sum(ask.app.inspect.count(**one) for one in targets)
        return {"matched": matched, "changed": 0, "dry_run": True}

    def work(operation: Operation) -> None:
        found = [(one, ids or _ids(ask, one)) for one in targets]
        operation.change(partial(action.apply_all, ask.app, when), found)

    return begin(ask, f"jobs.{action.verb}_all", ask.given, work)


def _ids(ask: WebRequest, which: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(job.id for page in walk(ask.app, **which, limit=FOUND) for job in page)


def _when(action: Action, ask: WebRequest) -> When | None:
    return ask.when() if action is RESCHEDULE else None


def walk(app: App, **which: Any) -> Iterator[Page]:
    """Yield all jobs that match, page by page."""
    after = None
    while True:
        page = app.inspect.jobs(**which, after=after)
        yield page
        after = page.next
        if after is None:
            return


def begin(ask: WebRequest, action: str, target: Mapping[str, Any], work: Work) -> Answer:
    """Start an operation, and say where it can be watched."""
    made = Operation(action, ask.site.documents.safe({**ask.path, **target}), ask.caller.who)
    operation = ask.site.operations.start(made, work)
    if ask.short:
        operation.finished.wait(WAITED)  # another process would know nothing of it
    return Answer(operation.document, 202, {"Location": f"{ask.root}/api/v1/operations/{operation.id}"})


# -- queues ------------------------------------------------------------------------------------------------------


def pause(ask: WebRequest) -> object:
    """Stop claims from a queue."""
    ask.loaded.inspect.pause(ask.path["queue"], by=ask.caller.who)
    return {"name": ask.path["queue"], "paused": True}


def resume(ask: WebRequest) -> object:
    """Let a paused queue go on."""
    ask.loaded.inspect.resume(ask.path["queue"])
    return {"name": ask.path["queue"], "paused": False}


def clear(ask: WebRequest) -> object:
    """Remove all waiting jobs of a queue."""
    name = ask.path["queue"]
    check_queue(ask.app, name)

    def waiting() -> int:
        return sum(waiting_in(ask.app, name).values())

    if ask.flag("dry_run"):
        return {"matched": waiting(), "changed": 0, "dry_run": True}

    def work(operation: Operation) -> None:
        total = operation.total = waiting()
        operation.measure = lambda: max(total - waiting(), 0)
        operation.changed = ask.app.inspect.clear(name)
        operation.total = operation.done = max(operation.changed, total)

    return begin(ask, "queue.clear", ask.given, work)


# -- lanes -------------------------------------------------------------------------------------------------------


def run_lane(ask: WebRequest) -> object:
    """Let a lane run now."""
    queue, lane = ask.lane()
    if not ask.app.inspect.run_lane(queue, lane):
        found = ask.app.inspect.lane(queue, lane)
        raise Refused(409, "nothing_to_do", f"lane {lane} of {queue} is {found.state}: api/v1/lane says what it waits for")
    return {"queue": queue, "lane": lane, "matched": 1, "changed": 1}


def run_lanes(ask: WebRequest) -> object:
    """Let all lanes of a collector run now."""
    queue = ask.needed("queue")
    check_queue(ask.app, queue)
    if not collects(ask.app, queue):
        raise bad(f"queue {queue} does not belong to a collector: act on its jobs with api/v1/jobs/retry_all")

    def work(operation: Operation) -> None:
        operation.changed = operation.total = operation.done = ask.app.inspect.run_lanes(queue)

    return begin(ask, "lanes.run_all", ask.given, work)


def drop_oldest(ask: WebRequest) -> object:
    """Remove a lane's oldest payload."""
    queue, lane = ask.lane()
    found = ask.app.inspect.lane(queue, lane)
    if not found.collects:
        raise bad(f"lane {lane} of {queue} has jobs, not payloads: delete its head, job {found.head}")
    dropped = ask.app.inspect.drop_oldest(queue, lane)
    if dropped is None:
        raise Refused(409, "nothing_to_do", f"in lane {lane} of {queue} nothing waits: what is in it runs")
    document = ask.site.documents.payload(dropped)
    return {"queue": queue, "lane": lane, "payload": document["payload"], "score": dropped.score, "left": found.size - 1}


def drop_lane(ask: WebRequest) -> object:
    """Remove a lane with all that is in it."""
    queue, lane = ask.lane()
    size = ask.app.inspect.lane(queue, lane).size

    def work(operation: Operation) -> None:
        operation.total = size
        operation.changed = ask.app.inspect.drop_lane(queue, lane)
        operation.done = size

    return begin(ask, "lane.drop", ask.given, work)


# -- workers, schedules, errors ----------------------------------------------------------------------------------


def tell(command: str, ask: WebRequest) -> object:
    """Leave a command for a worker's next beat."""
    getattr(ask.app.inspect, command)(ask.path["id"])
    return {"id": ask.path["id"], "told": command}


def pause_schedule(ask: WebRequest) -> object:
    """Let a schedule's occurrences pass."""
    ask.loaded.inspect.pause_schedule(ask.path["name"], by=ask.caller.who)
    return paused_document(ask.app, ask.path["name"], paused=True)


def resume_schedule(ask: WebRequest) -> object:
    """Let a paused schedule go on."""
    ask.loaded.inspect.resume_schedule(ask.path["name"])
    return paused_document(ask.app, ask.path["name"], paused=False)


def run_schedule(ask: WebRequest) -> object:
    """Enqueue a schedule's job now."""
    job = ask.loaded.inspect.run_schedule(ask.path["name"])
    return {"id": job.id, "created": job.created}


def keep_schedule(ask: WebRequest) -> object:
    """Keep a schedule in the store, or replace it there."""
    args: Any = ask.given.get("args") or []
    kwargs: Any = ask.given.get("kwargs") or {}
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise bad('use a list for args and an object for kwargs: {"args": ["us"], "kwargs": {"days": 7}}')
    name, options = ask.path["name"], {option: ask.given[option] for option in OPTIONS if ask.given.get(option) is not None}
    made = set_schedule(
        ask.loaded, name, ask.needed("task"), ask.needed("when"), cast("list[Any]", args), cast("dict[str, Any]", kwargs),
        options, timezone=ask.text("timezone"), catch_up=ask.text("catch_up") or "one", by=ask.caller.who,
    )  # fmt: skip
    return ask.site.documents.schedule(made)


def drop_schedule(ask: WebRequest) -> object:
    """Remove a schedule that is kept in the store."""
    ask.loaded.inspect.drop_schedule(ask.path["name"])
    return {"name": ask.path["name"], "removed": True}


def forget_error(ask: WebRequest) -> object:
    """Forget a kind of failure, until it is seen again."""
    if not ask.app.stats.forget_error(ask.path["id"]):
        raise Refused(404, "unknown_error", f'no failures "{ask.path["id"][:100]}" are known: api/v1/stats/errors lists them')
    return {"id": ask.path["id"], "forgotten": True}


def _post(path: str, action: str, answer: Callable[[WebRequest], object], *takes: str) -> Endpoint:
    return Endpoint("POST", path, answer, takes, action)


def _of_jobs(action: Action) -> tuple[Endpoint, Endpoint]:
    verb, more = action.verb, ("in", "at") if action is RESCHEDULE else ()
    return (
        _post(f"/api/v1/jobs/{verb}_all", f"jobs.{verb}_all", partial(act_all, action), *FILTERS, "ids", "all", "dry_run", *more),
        _post(f"/api/v1/jobs/{{id}}/{verb}", f"job.{verb}", partial(act, action), *more),
    )


ACTIONS = (
    *(endpoint for action in JOB_ACTIONS for endpoint in _of_jobs(action)),
    _post("/api/v1/queues/{queue}/pause", "queue.pause", pause),
    _post("/api/v1/queues/{queue}/resume", "queue.resume", resume),
    _post("/api/v1/queues/{queue}/clear", "queue.clear", clear, "dry_run"),
    _post("/api/v1/lane/run", "lane.run", run_lane, *LANE),
    _post("/api/v1/lane/drop-oldest", "lane.drop_oldest", drop_oldest, *LANE),
    _post("/api/v1/lane/drop", "lane.drop", drop_lane, *LANE),
    _post("/api/v1/lanes/run_all", "lanes.run_all", run_lanes, "queue"),
    _post("/api/v1/workers/{id}/quiet", "worker.quiet", partial(tell, "quiet")),
    _post("/api/v1/workers/{id}/stop", "worker.stop", partial(tell, "stop")),
    _post("/api/v1/schedules/{name:path}/pause", "schedule.pause", pause_schedule),
    _post("/api/v1/schedules/{name:path}/resume", "schedule.resume", resume_schedule),
    _post("/api/v1/schedules/{name:path}/run", "schedule.run", run_schedule),
    _post("/api/v1/schedules/{name:path}/set", "schedule.set", keep_schedule, *SET, *OPTIONS),
    _post("/api/v1/schedules/{name:path}/drop", "schedule.drop", drop_schedule),
    _post("/api/v1/stats/errors/{id}/forget", "error.forget", forget_error),
)  # fmt: skip
