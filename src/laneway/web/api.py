"""What can be looked at: everything `app.inspect` and `app.stats` show.

Each function answers an endpoint; the table at the end says which, and has the answers that are a single call. No function looks
at all jobs; those that list or count jobs cost what the store's own lists cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import laneway as front
from laneway.capacity.observe import observed
from laneway.config import safe_url
from laneway.core.job import FINISHED, check_id
from laneway.errors import StoreError, UnknownJob, UnknownQueue
from laneway.present.actions import FILTERS
from laneway.present.documents import lane_entry
from laneway.present.plan import plan_document, plan_from
from laneway.present.snapshot import Snapshot
from laneway.settings import read_duration, read_size
from laneway.web import documents
from laneway.web.documents import figures
from laneway.web.endpoint import Endpoint
from laneway.web.health import Health, with_outbox
from laneway.web.metrics import CONTENT_TYPE, outbox_text, totals_by_task
from laneway.web.request import Answer, WebRequest, bad, read_number
from laneway.worker.shares.learn import Learner

__all__ = ["LANE", "PLAN", "QUERIES", "RUNS", "capacity", "job_id"]

PAGE = ("limit", "after")
#: How many jobs are looked at for one page, if they are not found by state and queue: it may be short then, and go on.
LOOK = 10_000
#: The highest number that it counts to.
MOST_COUNTED = 1_000
#: How many of a finished job's runs are looked through: all that the store keeps.
RUNS = 1000


def session(ask: WebRequest) -> object:
    """Return the user of the request, what that user may do, and what actions by a browser need."""
    return {
        "who": ask.caller.who,
        "may": ask.caller.may,
        "read_only": ask.site.access.read_only,
        "csrf_token": ask.site.access.csrf_token(ask.caller),
        "version": front.__version__,
        "store": safe_url(ask.app.url),
    }


# -- jobs --------------------------------------------------------------------------------------------------------


def jobs(ask: WebRequest) -> object:
    """List jobs."""
    page = ask.app.inspect.jobs(**ask.which(), **ask.page(), newest=ask.flag("newest"), look=LOOK)
    return {"jobs": [ask.site.documents.entry(job) for job in page], "next": page.next}


def count(ask: WebRequest) -> object:
    """Count the jobs that match. The store keeps counts by state and queue; of others it is said how many there are at least."""
    which = ask.which()
    if {*which} <= {"state", "queue"} and which.get("state") not in FINISHED:
        found = [queue.counts for queue in ask.app.inspect.queues() if which.get("queue", queue.name) == queue.name]
        number = sum(number for counted in found for state, number in counted.items() if which.get("state", state) == state)
        return {"count": number, "at_least": False}
    page = ask.app.inspect.jobs(**which, limit=MOST_COUNTED, look=LOOK)
    return {"count": len(page), "at_least": page.next is not None}


def job_id(ask: WebRequest) -> str:
    """Return the id in the path."""
    try:
        return check_id(ask.path["id"])
    except ValueError as error:
        raise UnknownJob(str(error)) from None


def job(ask: WebRequest) -> object:
    """Show everything about a job; of one that has finished its last run."""
    id_ = job_id(ask)
    found = ask.app.inspect.job(id_)
    if found is not None:
        result = ask.app.store_inspect.result(id_).value if found.state in FINISHED else None
        return ask.site.documents.job(found, ask.app.inspect.explain(id_).reasons, result)
    run = next((run for run in ask.app.stats.recent(RUNS) if run.id == id_), None)
    if run is None:
        raise UnknownJob(f'no job "{id_}" is in the store: it has finished too long ago to be remembered, or never was')
    return ask.site.documents.run(run, ask.app.store_inspect.result(id_).value)


# -- queues, lanes, workers, schedules ---------------------------------------------------------------------------


def queue(ask: WebRequest) -> object:
    """Show a queue."""
    found = next((queue for queue in ask.app.inspect.queues() if queue.name == ask.path["queue"]), None)
    if found is None:
        raise UnknownQueue(f'no queue "{ask.path["queue"]}" has had a job: api/v1/queues lists those that have')
    return documents.queue(found)


def lanes(ask: WebRequest) -> object:
    """List lanes that have something to do."""
    page = ask.app.inspect.lanes(ask.text("queue") or None, order=ask.text("order") or "lag", **ask.page())
    return {"lanes": [lane_entry(lane) for lane in page], "next": page.next}


def lane(ask: WebRequest) -> object:
    """Show a lane, and why it is where it is."""
    queue, key = ask.lane()
    found = ask.app.inspect.lane(queue, key)
    return {**lane_entry(found), "reasons": ask.app.inspect.explain_lane(queue, key).reasons}


def payloads(ask: WebRequest) -> object:
    """List the payloads of a collector's lane."""
    queue, key = ask.lane()
    page = ask.app.inspect.payloads(queue, key, **ask.page())
    return {"payloads": [ask.site.documents.payload(payload) for payload in page], "next": page.next}


def schedules(ask: WebRequest) -> object:
    """List the schedules of the app, and those that are kept in the store."""
    return {"schedules": [ask.site.documents.schedule(schedule) for schedule in ask.loaded.inspect.schedules()]}


def tasks(ask: WebRequest) -> object:
    """List the app's tasks and collectors."""
    return {
        "tasks": [
            {"name": name, "queue": task.queue, "collects": name not in ask.app.tasks}
            for name, task in ask.loaded.declared.items()
        ]
    }


# -- figures -----------------------------------------------------------------------------------------------------


def recent(ask: WebRequest) -> object:
    """List the last runs."""
    return {"runs": [ask.site.documents.run(run) for run in ask.app.stats.recent(ask.whole("limit", 100, 1, RUNS))]}


def over_time(name: str, unit: str, usual: int, most: int, ask: WebRequest) -> object:
    """Return a point for each ten seconds, each minute or each day; by task or by queue if asked."""
    number = ask.whole(unit, usual, 1, most)
    by = ask.text("by") or ""
    if by not in ("", "task", "queue"):
        raise bad(f"by={by}: use task or queue")
    by_task, by_queue = by == "task" or ask.flag("by_task"), by == "queue" or ask.flag("by_queue")
    return {name: getattr(ask.app.stats, name)(number, by_task=by_task, by_queue=by_queue)}


def sums(name: str, ask: WebRequest) -> object:
    """Sum up each task, or each queue."""
    return {name: [*getattr(ask.app.stats, name)(ask.whole("seconds", 3600, 1, 366 * 86_400)).values()]}


def learned(ask: WebRequest) -> object:
    """Return what workers learned about tasks: which compute, which wait, and by which figures."""
    found = ask.app.stats.learned()
    return {"kinds": dict(Learner(found).kinds), "learned": found}


def capacity(ask: WebRequest) -> object:
    """Say whether workers keep up, and what it would take; what is not given is taken from the store."""
    given = {
        "rate": ask.read("rate", read_number), "share": ask.read("share", read_number),
        "seconds": ask.read("seconds", read_duration), "kind": ask.text("kind"),
        "bytes": ask.read("bytes", read_size), "backlog": ask.whole("backlog", 0, 0, 10**15) if "backlog" in ask.given else None,
        **{name: ask.whole(name, 1, 1, 10_000) for name in ("cores", "slots") if name in ask.given},
        "ram": ask.read("ram", read_size), "app_memory": ask.read("app_memory", read_size),
    }  # fmt: skip
    seen = observed(ask.app) if given["rate"] is None or given["seconds"] is None else None
    return plan_document(plan_from(given, seen), seen)


def health(ask: WebRequest) -> object:
    """Say whether work gets done: 200, or 503 with why not."""
    try:
        _, found = ask.site.snapshot()
        found = with_outbox(found, ask.app.outbox)
    except StoreError as error:
        found = Health(status="failing", reasons=[f"the store cannot be used: {error}"])
    return Answer(found, 200 if found.status == "ok" else 503)


def metrics(ask: WebRequest) -> object:
    """Return the figures for Prometheus."""
    try:
        text = ask.site.metrics.text(Snapshot.of(ask.app), totals_by_task(ask.app.store_inspect))
    except StoreError:
        text = ask.site.metrics.text(None)
    if ask.app.outbox is not None:
        text += outbox_text(ask.app.outbox)
    return Answer(None, text=text, content_type=CONTENT_TYPE)


def _get(path: str, answer: Callable[[WebRequest], object], *takes: str) -> Endpoint:
    return Endpoint("GET", path, answer, takes)


BY = ("by", "by_task", "by_queue")
LANE = ("queue", "lane")
PLAN = ("rate", "share", "seconds", "kind", "bytes", "backlog", "slots", "cores", "ram", "app_memory")

QUERIES = (
    Endpoint("GET", "/healthz", health, open=True),
    _get("/metrics", metrics),
    _get("/api/v1/session", session),
    _get("/api/v1/counts", lambda ask: ask.app.inspect.counts()),
    _get("/api/v1/count", count, *FILTERS),
    _get("/api/v1/jobs", jobs, *FILTERS, *PAGE, "newest"),
    _get("/api/v1/jobs/{id}", job),
    _get("/api/v1/jobs/{id}/explain", lambda ask: ask.app.inspect.explain(job_id(ask))),
    _get("/api/v1/queues", lambda ask: {"queues": [documents.queue(queue) for queue in ask.app.inspect.queues()]}),
    _get("/api/v1/queues/{queue}", queue),
    _get("/api/v1/lanes", lanes, "queue", "order", *PAGE),
    _get("/api/v1/lane", lane, *LANE),
    _get("/api/v1/lane/payloads", payloads, *LANE, *PAGE),
    _get("/api/v1/workers", lambda ask: {"workers": [documents.worker(worker) for worker in ask.app.inspect.workers()]}),
    _get("/api/v1/schedules", schedules),
    _get("/api/v1/tasks", tasks),
    _get("/api/v1/operations", lambda ask: {"operations": [one.document for one in ask.site.operations.list()]}),
    _get("/api/v1/operations/{id}", lambda ask: ask.site.operations.find(ask.path["id"]).document),
    _get("/api/v1/plan", capacity, *PLAN),
    _get("/api/v1/stats", lambda ask: figures(*ask.site.snapshot())),
    _get("/api/v1/stats/totals", lambda ask: ask.app.stats.totals()),
    _get("/api/v1/stats/recent", recent, "limit"),
    _get("/api/v1/stats/series", partial(over_time, "series", "seconds", 1000, 1_100), "seconds", *BY),
    _get("/api/v1/stats/minutes", partial(over_time, "minutes", "hours", 24, 25), "hours", *BY),
    _get("/api/v1/stats/history", partial(over_time, "history", "days", 365, 366), "days", *BY),
    _get("/api/v1/stats/tasks", partial(sums, "tasks"), "seconds"),
    _get("/api/v1/stats/queues", partial(sums, "queues"), "seconds"),
    _get("/api/v1/stats/errors", lambda ask: {"errors": ask.app.stats.errors(ask.whole("limit", 100, 1, 500))}, "limit"),
    _get("/api/v1/stats/learned", learned),
)
