"""What other job libraries call it: options and methods that a newcomer writes, and what they are here."""

from __future__ import annotations

__all__ = ["MISSING_OF_APPS", "MISSING_OF_TASKS", "synonym"]

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
    "time_limit": "timeout=SECONDS",
    "soft_time_limit": "timeout=SECONDS",
    "job_timeout": "timeout=SECONDS",
    "result_ttl": "keep_result=SECONDS",
    "result_expires": "keep_result=SECONDS",
    "ignore_result": "nothing: results are kept only with keep_result=SECONDS",
    "ttl": "expires=SECONDS",
    "max_age": "expires=SECONDS",
    "failure_ttl": "App(dead_days=…)",
    "bind": "current_job(), which a task calls",
    "task_id": "id=… in TASK.using(…)",
    "job_id": "id=… in TASK.using(…)",
    "queue_name": "queue=…",
    "routing_key": "queue=…",
    "actor_name": "name=…",
    "at_front": "priority=…, higher first",
    "acks_late": "nothing: a job is settled after its run, always",
    "on_failure": "@app.on_death",
    "sidekiq_options": "queue=…, retry=…",
    "message_group_id": "lane=…",
    "lock": "lane=…, or unique=True",
    "singleton": "unique=True",
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
    "perform_bulk": "enqueue_many(…)",
    "schedule_at": "using(run_after=DATETIME).enqueue(…)",
    "s": "bind(…)",
    "si": "bind(…)",
    "map": "enqueue_many(…)",
    "starmap": "enqueue_many(…)",
}

#: Methods of an app elsewhere.
MISSING_OF_APPS = {
    "send_task": "app.enqueue(name, …), with app.using(queue=…)",
    "AsyncResult": "app.job(id)",
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
