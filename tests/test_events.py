"""Events: who listens hears what happened, and harms nobody."""

from __future__ import annotations

import logging

import pytest

from laneway import App, Retry, Worker
from laneway.events import Death, Event, Events, RunEnded, RunFailed, RunsSettled, RunStarted, WorkerStarted, WorkerStopped


def test_listeners_of_an_app_hear_what_its_workers_do(app: App) -> None:
    heard: list[Event] = []
    kinds = (WorkerStarted, RunStarted, RunFailed, RunEnded, Death, RunsSettled, WorkerStopped)
    for kind in kinds:
        app.hooks.events.listen(kind, heard.append)

    @app.task(name="broken", retry=Retry(times=1, backoff=0))
    def broken() -> None:
        raise ValueError("no")

    broken.enqueue()
    Worker(app, 1).run(burst=True)

    assert [type(event) for event in heard if not isinstance(event, RunsSettled)] == [
        WorkerStarted, RunStarted, RunFailed, RunEnded, RunStarted, Death, RunEnded, WorkerStopped,
    ]  # fmt: skip
    ended = [event for event in heard if isinstance(event, RunEnded)]
    assert [(event.job.attempt, event.outcomes[0].name) for event in ended] == [(1, "retrying"), (2, "dead")]
    assert all(event.started <= event.finished for event in ended)
    [death] = [event for event in heard if isinstance(event, Death)]
    assert (str(death.error), death.ran, death.outcome) == ("no", True, ended[1].outcomes[0])
    settled = [one.outcomes[0].name for event in heard if isinstance(event, RunsSettled) for one in event.settled]
    assert settled == ["retrying", "dead"]


def test_of_runs_nothing_is_told_where_nobody_listens() -> None:
    app, worker = Events(), Events()
    ours = Events(app)
    assert RunStarted not in ours.heard
    worker.listen(RunStarted, print)
    assert RunStarted not in ours.heard
    app.listen(RunStarted, print)
    assert RunStarted in ours.heard
    app.silence(RunStarted)
    assert RunStarted not in ours.heard


def test_a_listener_that_raises_is_logged_and_the_next_one_hears_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError(f"not for me: {event}")

    events = Events()
    for listener in (broken, heard.append):
        events.listen(WorkerStopped, listener)
    events.tell(WorkerStopped("a worker"))

    assert heard == [WorkerStopped("a worker")]
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().endswith("broken raised")
    assert record.exc_info is not None


def test_who_listens_twice_hears_once() -> None:
    heard: list[Event] = []

    def hear(event: Event) -> None:
        heard.append(event)

    events = Events()
    events.listen(WorkerStopped, hear)
    events.listen(WorkerStopped, hear)
    events.tell(WorkerStopped("a worker"))
    assert len(heard) == 1
