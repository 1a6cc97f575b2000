"""Runs the tests of Django's own tasks framework with Laneway in place of Django's backends.

Takes the folder that has Django's tests. Where they look at the results that the dummy backend keeps, they get those of the jobs
in the store; where they want a call to have run when `enqueue` returns, a worker runs it first.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import django
from django.conf import settings
from django.test.utils import get_runner

# ruff: noqa: E402 - Django is set up before what needs it is imported
django.setup()

from django.tasks.backends import dummy, immediate

from laneway import Worker
from laneway.contrib.django import app
from laneway.contrib.django.tasks import LanewayBackend

#: What says nothing about other backends: that these two cannot do something, or how they do it.
LEFT_OUT = (
    "test_cannot_get_result", "test_cannot_refresh_result", "test_cannot_pass_run_after", "test_throws_keyboard_interrupt",
    "test_doesnt_wait_until_transaction_commit_by_default",  # a job in atomic() is seen when it has committed
    "DummyBackendTestCase.test_refresh_result", "DummyBackendTestCase.test_refresh_result_async",  # they change the kept object
)  # fmt: skip


class Keeping(LanewayBackend):
    """Shows the jobs in the store as the dummy backend shows its results."""

    def clear(self) -> None:
        app.inspect.delete_all()

    @property
    def results(self) -> list[Any]:
        return [self.get_result(job.id) for job in app.inspect.jobs()]


class Running(LanewayBackend):
    """Has each call run at once."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        result = super().enqueue(*args, **kwargs)
        Worker(app, slots=1).run(burst=True)
        result.refresh()
        return result

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        result = await super().aenqueue(*args, **kwargs)
        await asyncio.to_thread(Worker(app, slots=1).run, burst=True)
        await result.arefresh()
        return result


if __name__ == "__main__":
    dummy.DummyBackend, immediate.ImmediateBackend = Keeping, Running  # type: ignore[misc,assignment]
    sys.path.insert(0, sys.argv[1])
    runner = get_runner(settings)(interactive=False)
    suite = runner.build_suite(["tasks"])
    runner.setup_test_environment()
    tests: list[Any] = [one for one in suite if not str(getattr(one, "id", str)()).endswith(LEFT_OUT)]
    result = runner.run_suite(type(suite)(tests))
    sys.exit(bool(result.failures or result.errors or not result.testsRun))
