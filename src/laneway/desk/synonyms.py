"""What other job libraries call it: options and methods that a newcomer writes, and what they are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

__all__ = ["MISSING_OF_APPS", "MISSING_OF_TASKS", "Missing", "explains_missing", "synonym"]

C = TypeVar("C", bound=type)

#: Options of Celery, RQ, Dramatiq, Sidekiq and Huey.
_OPTIONS = {
    "countdown": "run_after=SECONDS in TASK.using(…)",
    "eta": "run_after=DATETIME in TASK.using(…)",
    "delay": "run_after=SECONDS in TASK.using(…)",
    "max_retries": "retry=Retry(times=…)",
    "retries": "retry=Retry(times=…)",
    "autoretry_for": "retry=Retry(on=…); every Exception is retried unless you say otherwise",
    "dont_autoretry_for": "retry=Retry(give_up_on=…)",
    "throws": "retry=Retry(give_up_on=…)",
    "default_retry_delay": "retry=Retry(backoff=SECONDS)",
    "retry_delay": "retry=Retry(backoff=SECONDS)",
    "retry_backoff": "retry=Retry(backoff=…)",
    "min_backoff": "retry=Retry(backoff=…), in seconds",
    "retry_backoff_max": "retry=Retry(max_delay=SECONDS)",
    "max_backoff": "retry=Retry(max_delay=SECONDS)",
    "retry_jitter": "retry=Retry(jitter=0.1)",
    "retry_kwargs": "retry=Retry(times=…, backoff=…)",
    "retry_when": "retry=Retry(on=…, give_up_on=…)",
    "retry_for": "retry=Retry(times=…)",
    "retry_policy": "App(enqueue_timeout=…): how long an enqueue waits for the store",
    "time_limit": "timeout=SECONDS",
    "soft_time_limit": "timeout=SECONDS",
    "job_timeout": "timeout=SECONDS",
    "result_ttl": "keep_result=SECONDS",
    "result_expires": "keep_result=SECONDS",
    "store_results": "keep_result=SECONDS",
    "ignore_result": "nothing: results are kept only with keep_result=SECONDS",
    "ttl": "expires=SECONDS",
    "max_age": "expires=SECONDS",
    "expires_in": "expires=SECONDS",
    "failure_ttl": "App(dead_days=…)",
    "bind": "current_job(), which a task calls",
    "task_id": "id=… in TASK.using(…)",
    "job_id": "id=… in TASK.using(…)",
    "queue_name": "queue=…",
    "routing_key": "queue=…",
    "actor_name": "name=…",
    "at_front": "priority=…, higher first",
    "acks_late": "nothing: a job is settled after its run, always",
    "reject_on_worker_lost": "nothing: what a dead worker ran, runs again",
    "track_started": "nothing: a job that runs is always known as running",
    "serializer": "nothing: arguments are JSON, and app.codec teaches types of yours",
    "headers": "draft.headers in @app.client_middleware",
    "meta": "draft.headers in @app.client_middleware, or current_job().progress(…) and .log(…)",
    "rate_limit": "nothing yet: lane=… lets one run at a time, laneway worker -s a few",
    "depends_on": "nothing yet: enqueue the next job at the end of the first",
    "link": "nothing yet: enqueue the next job at the end of the first",
    "link_error": "@app.on_death",
    "on_success": "@app.middleware, or the end of the task",
    "on_failure": "@app.on_death",
    "on_retry_exhausted": "@app.on_death",
    "base": "@app.middleware, around every run",
    "context": "current_job(), which a task calls",
    "broker": "App(url)",
    "args": "enqueue(…) or bind(…), which take the task's own arguments; with a schedule app.schedule(TASK.bind(…), …)",
    "kwargs": "enqueue(…) or bind(…), which take the task's own arguments; with a schedule app.schedule(TASK.bind(…), …)",
    "sidekiq_options": "queue=…, retry=…",
    "message_group_id": "lane=…",
    "lock": "lane=…, or unique=True",
    "singleton": "unique=True",
    "unique_for": "unique=True",
    "repeat": "schedule=timedelta(minutes=10), or raise Snooze(SECONDS) in the task",
    "crontab": 'schedule="0 3 * * *"',
    "cron": 'schedule="0 3 * * *"',
    "interval": "schedule=timedelta(minutes=10)",
}

#: Methods of a task elsewhere.
MISSING_OF_TASKS = {
    "delay": "enqueue(…)",
    "apply_async": "using(run_after=…, queue=…).enqueue(…)",
    "send": "enqueue(…)",
    "send_with_options": "using(…).enqueue(…)",
    "perform_async": "enqueue(…)",
    "perform_in": "using(run_after=SECONDS).enqueue(…)",
    "perform_at": "using(run_after=DATETIME).enqueue(…)",
    "perform_bulk": "enqueue_many(…)",
    "schedule_at": "using(run_after=DATETIME).enqueue(…)",
    "s": "bind(…)",
    "si": "bind(…)",
    "subtask": "bind(…)",
    "message": "bind(…)",
    "message_with_options": "using(…).bind(…)",
    "chunks": "enqueue_many(…)",
    "kiq": "aenqueue(…)",
    "defer": "enqueue(…)",
    "defer_async": "aenqueue(…)",
    "configure": "using(…)",
    "map": "enqueue_many(…)",
    "starmap": "enqueue_many(…)",
}

#: Methods of an app elsewhere.
MISSING_OF_APPS = {
    "send_task": "app.enqueue(name, …), with app.using(queue=…)",
    "AsyncResult": "app.job(id)",
    "fetch_job": "app.job(id)",
    "signature": "app.using(…).bind(name, …)",
    "enqueue_in": "app.using(run_after=SECONDS).enqueue(name, …)",
    "enqueue_at": "app.using(run_after=DATETIME).enqueue(name, …)",
    "add_middleware": "@app.middleware",
    "worker_main": "Worker(app).run(), or laneway worker",
    "config_from_object": "the arguments of App(…), LANEWAY_… in the environment, or [tool.laneway] in pyproject.toml",
    "actor": "@app.task",
    "autodiscover_tasks": 'App(imports=["shop.tasks.*"])',
    "add_periodic_task": 'app.schedule(TASK.bind(…), "0 3 * * *", name="…"), or @app.task(schedule="0 3 * * *")',
    "every": "app.schedule(TASK, timedelta(minutes=10))",
    "control": "app.inspect",
    "conf": "the arguments of App(…), LANEWAY_… in the environment, or [tool.laneway] in pyproject.toml",
}


def synonym(option: str) -> str:
    """Return ` Here it is …` for an option that has another name here, or nothing."""
    here = _OPTIONS.get(option)
    return f" Here it is {here}." if here is not None else ""


def explains_missing(missing: Mapping[str, str], prefix: str = "") -> Callable[[C], C]:
    """Let the AttributeError of these names say what they are called here.

    A class with `__getattr__` could say so too, but then every attribute that it does have takes longer to read.
    """

    def explain(owner: C) -> C:
        def names(one: object) -> list[str]:
            return [name for name in object.__dir__(one) if name not in missing]

        explained = {name: Missing(name, prefix + here) for name, here in missing.items()}
        for name, one in {**explained, "__dir__": names}.items():
            setattr(owner, name, one)
        return owner

    return explain


class Missing:
    """A name that a class does not have; it is in its dict only to explain that."""

    def __init__(self, name: str, here: str) -> None:
        self._name, self._here = name, here

    def __get__(self, one: object, owner: type) -> NoReturn:
        said = f"{owner.__name__!r} object has no attribute {self._name!r}: here it is {self._here}"
        raise AttributeError(said, name=self._name, obj=one)
