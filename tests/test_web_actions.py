"""What the API does, on every store: to one job, to many, to queues, lanes, workers and schedules; and who hears of it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from conftest import ONCE
from laneway import App
from laneway.errors import StoreUnavailable
from laneway.store.contract import WorkerInfo
from laneway.web import operations
from laneway.web.endpoint import Endpoint
from laneway.web.operations import Operation, Operations
from laneway.web.refused import Refused
from webdesk import ACTIONS, DEADLINE, Shop, visiting


@pytest.mark.every_store(ONCE)  # what each verb changes in a store the contract suite says
@pytest.mark.parametrize("endpoint", ACTIONS, ids=lambda one: one.path)
def test_every_action_changes_something(app: App, endpoint: Endpoint) -> None:
    shop = Shop(app).fill()
    before = shop.snapshot()
    if "resume" in endpoint.path:
        app.inspect.pause("mail")
        app.inspect.pause_schedule("nightly")
        before = shop.snapshot()
    path, body = shop.path(endpoint), shop.body(endpoint)
    with visiting(app) as client:
        answer = client.ask("POST", path, json=body)
        assert answer.status_code in (200, 202), answer.text
        if answer.status_code == 202:
            assert client.until_over(answer.json()["id"])["state"] == "done"
    assert shop.snapshot() != before


def test_a_dead_job_is_retried_and_once_only(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        assert client.post(f"/api/v1/jobs/{shop.dead}/retry") == {"id": shop.dead, "matched": 1, "changed": 1, "dry_run": False}
        error = client.post(f"/api/v1/jobs/{shop.dead}/retry", 409)["error"]
    assert (error["kind"], "ready: there is nothing to retry" in error["message"]) == ("nothing_to_do", True)


def test_a_job_is_rescheduled_by_duration_or_moment(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        client.post(f"/api/v1/jobs/{shop.ready}/reschedule", **{"in": "2h"})
        client.post(f"/api/v1/jobs/{shop.scheduled}/reschedule", at="2030-12-24T18:00+01:00")
        both = client.post(f"/api/v1/jobs/{shop.ready}/reschedule", 422, **{"in": "2h", "at": "2030-12-24T18:00Z"})
        naive = client.post(f"/api/v1/jobs/{shop.ready}/reschedule", 422, at="2030-12-24T18:00")
        far = client.post(f"/api/v1/jobs/{shop.ready}/reschedule", 422, at="9999-12-24T18:00Z")
    ready, scheduled = app.inspect.job(shop.ready), app.inspect.job(shop.scheduled)
    assert ready is not None
    assert ready.state == "scheduled"
    assert scheduled is not None
    assert scheduled.due_at.isoformat() == "2030-12-24T17:00:00+00:00"
    says = [answer["error"]["message"] for answer in (both, naive, far)]
    assert ["say when" in says[0], "time zone" in says[1], "ten years" in says[2]] == [True, True, True]


@pytest.mark.every_store
def test_all_that_match_are_acted_on_as_an_operation_with_progress(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(app)
    shop.login.enqueue_many([(f"u{n}", "p") for n in range(30)])
    shop.add.enqueue_many([(n,) for n in range(5)])
    monkeypatch.setattr("laneway.web.operations.PORTION", 10)
    monkeypatch.setattr("laneway.web.actions.FOUND", 7)
    inner, gone_on, halfway = app.inspect.cancel_all, threading.Event(), threading.Event()

    def cancel_all(*args: Any, **which: Any) -> int:
        changed = inner(*args, **which)
        halfway.set()
        assert gone_on.wait(DEADLINE)
        return changed

    monkeypatch.setattr(app.inspect, "cancel_all", cancel_all)
    with visiting(app) as client:
        begun = client.post("/api/v1/jobs/cancel_all", 202, queue="mail")
        assert halfway.wait(DEADLINE)
        amid = client.get(f"/api/v1/operations/{begun['id']}")
        gone_on.set()
        over = client.until_over(begun["id"])
        listed = client.get("/api/v1/operations")["operations"]
    assert (amid["state"], amid["matched"], amid["done"]) == ("running", 30, 0)
    assert (over["state"], over["matched"], over["done"], over["changed"], over["error"]) == ("done", 30, 30, 30, None)
    assert (over["action"], over["target"], over["who"]) == ("jobs.cancel_all", {"queue": "mail"}, "loopback")
    assert [one["id"] for one in listed] == [begun["id"]]
    assert app.inspect.counts()["ready"] == 5


def test_rescheduling_all_ends_although_jobs_take_new_places(app: App) -> None:
    shop = Shop(app)
    shop.add.enqueue_many([(n,) for n in range(20)])
    with visiting(app) as client:
        over = client.operation("/api/v1/jobs/reschedule_all", all=True, **{"in": 3600})
    assert (over["changed"], app.inspect.counts()["scheduled"]) == (20, 20)


def test_retrying_all_leaves_alone_what_waits_for_its_time(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        dry = client.post("/api/v1/jobs/retry_all", all=True, dry_run=True)
        over = client.operation("/api/v1/jobs/retry_all", all=True)
    assert (dry, over["changed"]) == ({"matched": 2, "changed": 0, "dry_run": True}, 2)
    assert app.inspect.lane("sync", "o/1 ?").state == "scheduled"


def test_jobs_can_be_named_one_by_one(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        assert client.operation("/api/v1/jobs/delete_all", ids=[shop.dead, shop.ready, "nobody"])["changed"] == 2
        assert "together" in client.post("/api/v1/jobs/delete_all", 422, ids=["a"], state="dead")["error"]["message"]
        assert "say which" in client.post("/api/v1/jobs/delete_all", 422)["error"]["message"]
        assert "ids" in client.post("/api/v1/jobs/delete_all", 422, ids=[])["error"]["message"]
    assert app.inspect.job(shop.dead) is app.inspect.job(shop.ready) is None


def test_a_queue_is_cleared_and_says_how_far_it_is(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(app)
    shop.login.enqueue_many([(f"u{n}", "p") for n in range(20)])
    inner, gone_on, halfway = app.inspect.clear, threading.Event(), threading.Event()

    def clear(queue: str) -> int:
        for job in app.inspect.jobs(queue=queue, limit=5):
            app.inspect.delete(job.id)
        halfway.set()
        assert gone_on.wait(DEADLINE)
        return inner(queue) + 5

    monkeypatch.setattr(app.inspect, "clear", clear)
    with visiting(app) as client:
        assert client.post("/api/v1/queues/mail/clear", dry_run=True)["matched"] == 20
        begun = client.post("/api/v1/queues/mail/clear", 202)
        assert halfway.wait(DEADLINE)
        amid = client.get(f"/api/v1/operations/{begun['id']}")
        gone_on.set()
        over = client.until_over(begun["id"])
        assert "no queue" in client.post("/api/v1/queues/mial/clear", 404)["error"]["message"]
    assert (amid["done"], amid["matched"], over["done"], over["changed"]) == (5, 20, 20, 20)


def test_who_paused_a_queue_is_known(app: App) -> None:
    Shop(app)
    with visiting(app) as client:
        client.post("/api/v1/queues/mail/pause")
        assert client.get("/api/v1/queues/mail")["paused_by"] == "loopback"
        assert "Did you mean" in client.post("/api/v1/queues/mial/resume", 404)["error"]["message"]


@pytest.mark.every_store
def test_a_lane_runs_now_loses_its_oldest_payload_and_is_dropped(app: App) -> None:
    Shop(app).fill()
    lane = {"queue": "sync", "lane": "o/1 ?"}
    with visiting(app) as client:
        dropped = client.post("/api/v1/lane/drop-oldest", **lane)
        assert (dropped["payload"], dropped["left"]) == ({"api_key": "[redacted]", "total": 1}, 1)
        client.post("/api/v1/lane/run", **lane)
        assert client.post("/api/v1/lane/run", 409, **lane)["error"]["kind"] == "nothing_to_do"
        assert client.operation("/api/v1/lane/drop", **lane)["changed"] == 1
        assert client.post("/api/v1/lane/drop", 404, **lane)["error"]["kind"] == "unknown_lane"
        assert "jobs" in client.post("/api/v1/lane/drop-oldest", 422, queue="billing", lane="c-2")["error"]["message"]
        assert "does not belong to a collector" in client.post("/api/v1/lanes/run_all", 422, queue="mail")["error"]["message"]


@pytest.mark.every_store
def test_workers_hear_what_they_are_told(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        assert client.post("/api/v1/workers/w-1/stop") == {"id": "w-1", "told": "stop"}
        assert client.post("/api/v1/workers/w-2/quiet", 404)["error"]["kind"] == "unknown_worker"
    assert app.store.beat([WorkerInfo("w-1", host="h", pid=7)])["w-1"].commands == ("stop",)


def test_a_schedule_runs_now(app: App) -> None:
    Shop(app)
    with visiting(app) as client:
        made = client.post("/api/v1/schedules/nightly/run")
        assert "no schedule" in client.post("/api/v1/schedules/nihtly/run", 404)["error"]["message"]
    assert (made["created"], app.inspect.job(made["id"]) is not None) == (True, True)


@pytest.mark.every_store
def test_a_schedule_is_set_shown_and_dropped(app: App, caplog: pytest.LogCaptureFixture) -> None:
    Shop(app)
    caplog.set_level(logging.INFO, "laneway.audit")
    with visiting(app) as client:
        given: dict[str, Any] = {"task": "login", "when": "0 3 * * *", "timezone": "Europe/Paris", "args": ["ada", "hunter2"]}
        made = client.post("/api/v1/schedules/shop/login ada/set", 422, **given)
        assert "without spaces" in made["error"]["message"]
        made = client.post(
            "/api/v1/schedules/shop/login-ada/set", **given, kwargs={"headers": {"Authorization": "Bearer x"}}, queue="q"
        )
        listed = {one["name"]: one for one in client.get("/api/v1/schedules")["schedules"]}
        assert listed["shop/login-ada"] == made
        assert (made["args"], made["kwargs"]) == (["ada", "[redacted]"], {"headers": {"Authorization": "[redacted]"}})
        assert (made["schedule"], made["stored"], made["set_by"]) == ("0 3 * * * (Europe/Paris)", True, "loopback")
        id_ = client.post("/api/v1/schedules/shop/login-ada/run")["id"]
        paused = client.post("/api/v1/schedules/shop/login-ada/pause")
        assert paused == {"name": "shop/login-ada", "task": "login", "paused": True}
        assert client.post("/api/v1/schedules/shop/login-ada/drop") == {"name": "shop/login-ada", "removed": True}
        assert client.post("/api/v1/schedules/shop/login-ada/drop", 404)["error"]["kind"] == "not_found"
        assert "declared in code" in client.post("/api/v1/schedules/nightly/drop", 422)["error"]["message"]
        app.store_inspect.set_schedule("evil", b"{}")
        assert "cannot be read" in client.post("/api/v1/schedules/evil/run", 422)["error"]["message"]
    job = app.inspect.job(id_)
    assert job is not None
    assert (job.queue, job.args) == ("q", ["ada", "hunter2"])
    assert "hunter2" not in caplog.text
    assert "Bearer" not in caplog.text
    actions = [record.__dict__["audit"]["action"] for record in caplog.records if record.name == "laneway.audit"]
    assert actions == [f"schedule.{verb}" for verb in ("set", "set", "run", "pause", "drop", "drop", "drop", "run")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"when": "5m"}, "task is missing"),
        ({"task": "add"}, "when is missing"),
        ({"task": "add", "when": "5m", "args": "1"}, "use a list for args"),
        ({"task": "add", "when": "5m", "kwargs": [1]}, "an object for kwargs"),
        ({"task": "add", "when": "5m"}, "missing a required argument"),
        ({"task": "add", "when": "5m", "args": ["x"]}, "Expected `int`"),
        ({"task": "add", "when": "5m", "kwargs": {"self": 1}}, "add: "),
        ({"task": "add", "when": "5m", "args": [1], "priority": "high"}, "is not a priority"),
        ({"task": "add", "when": "61 * * * *", "args": [1]}, "bad minute"),
        ({"task": "add", "when": "5m", "args": [1], "catch_up": "x"}, "use one of"),
        ({"task": "ad", "when": "5m", "args": [1]}, 'Did you mean "add"'),
        ({"task": "sync", "when": "5m"}, "sync: "),
        ({"task": "sync", "when": "5m", "args": ["a", 5]}, "Expected `object`"),
        ({"task": "sync", "when": "5m", "args": ["a"], "queue": "x"}, 'no option "queue"'),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(app: App, body: dict[str, Any], said: str) -> None:
    Shop(app)
    with visiting(app) as client:
        assert said in client.post("/api/v1/schedules/x/set", 422, **body)["error"]["message"]
    assert app.store.schedules().kept == {}


@pytest.mark.parametrize(
    ("content", "kind", "status", "error"),
    [
        (b"state=dead", "application/x-www-form-urlencoded", 415, "not_json"),
        (b'{"state": "dead"}', "text/plain", 415, "not_json"),
        (b'{"state": "dead"}', None, 415, "not_json"),
        (b"{", "application/json", 400, "not_json"),
        (b"[]", "application/json", 400, "not_json"),
        (b"[" * 100_000, "application/json", 400, "not_json"),
        (b'{"x": "' + b"a" * (1 << 20) + b'"}', "application/json", 413, "too_large"),
        (b'{"sate": "dead"}', "application/json; charset=utf-8", 422, "bad_input"),
        (b'{"queue": "\\ud800"}', "application/json", 400, "not_json"),
        (b'{"queue": {"a": 1}}', "application/json", 422, "bad_input"),
    ],
    ids=range(10),
)
def test_a_body_that_cannot_be_used_is_refused(app: App, content: bytes, kind: str | None, status: int, error: str) -> None:
    with visiting(app) as client:
        headers = {"content-type": kind} if kind else {}
        answer = client.ask("POST", "/api/v1/jobs/delete_all", content=content, headers=headers)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (status, error)


def test_every_action_leaves_a_line_whatever_becomes_of_it(app: App, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(app).fill()
    caplog.set_level(logging.INFO, "laneway.audit")
    with visiting(app) as client:
        client.post(f"/api/v1/jobs/{shop.dead}/retry")
        client.post("/api/v1/jobs/nobody/retry", 404)
        client.operation("/api/v1/jobs/delete_all", queue="mail")
    lines = [record.getMessage() for record in caplog.records if record.name == "laneway.audit"]
    fields = [record.__dict__["audit"] for record in caplog.records if record.name == "laneway.audit"]
    assert lines[0] == f'who="loopback" action="job.retry" target={{"id": "{shop.dead}"}} result="done (200)"'
    assert (fields[1]["action"], fields[1]["result"]) == ("job.retry", "refused (404)")
    # An operation may be over before its beginning is written.
    assert {(one["action"], one["result"]) for one in fields[2:]} == {
        ("jobs.delete_all", "accepted (202)"), ("jobs.delete_all", "done: 2 of 2 changed"),
    }  # fmt: skip


def test_a_line_of_the_audit_cannot_be_forged_nor_tells_secrets(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "laneway.audit")
    with visiting(app) as client:
        client.post("/api/v1/jobs/delete_all", 422, queue='x\nwho="root"', password="hunter2")  # noqa: S106 - of a test
    (line,) = [record.getMessage() for record in caplog.records if record.name == "laneway.audit"]
    assert ("\n" in line, "hunter2" in line, r"\nwho=\"root\"" in line) == (False, False, True)


# -- operations by themselves ------------------------------------------------------------------------------------


def over(operation: Operation) -> Operation:
    assert operation.finished.wait(DEADLINE)
    return operation


def test_operations_say_what_went_wrong(caplog: pytest.LogCaptureFixture) -> None:
    def away(_: Operation) -> None:
        raise StoreUnavailable("away")

    def broken(_: Operation) -> None:
        raise ZeroDivisionError

    known = Operations()
    first, second = (over(known.start(Operation("x", {}, "ada"), work)) for work in (away, broken))
    assert (first.state, first.document["error"]) == ("failed", {"kind": "store_unavailable", "message": "away"})
    assert (second.state, second.document["error"]["kind"]) == ("failed", "internal")
    assert "ZeroDivisionError" in caplog.text


def test_so_many_operations_are_remembered_and_no_more_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "KEEP", 3)
    known, go_on = Operations(), threading.Event()
    finished = over(known.start(Operation("x", {}, "ada"), lambda _: None))

    def wait(_: Operation) -> None:
        assert go_on.wait(DEADLINE)

    waiting = [known.start(Operation("x", {}, "ada"), wait) for _ in range(3)]
    with pytest.raises(Refused, match="no operation"):
        known.find(finished.id)
    with pytest.raises(Refused, match="try again later"):
        known.start(Operation("x", {}, "ada"), lambda _: None)
    go_on.set()
    assert [over(one).state for one in waiting] == ["done"] * 3
    assert len(known.list()) == 3


def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Operations()
    monkeypatch.setattr(operations, "AT_ONCE", 0)
    left = known.start(Operation("x", {}, "ada"), lambda _: None)  # nobody of this process takes it
    monkeypatch.setattr(operations, "AT_ONCE", 1)
    monkeypatch.setattr("laneway.web.operations.os.getpid", lambda: 1)
    assert over(known.start(Operation("x", {}, "ada"), lambda _: None)).state == "done"
    assert left.state == "waiting"


def test_a_thread_without_work_ends_and_another_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "IDLE", 0.01)
    known = Operations()
    seen: list[threading.Thread] = []
    over(known.start(Operation("x", {}, "ada"), lambda _: seen.append(threading.current_thread())))
    seen[0].join(DEADLINE)
    assert not seen[0].is_alive()
    assert over(known.start(Operation("x", {}, "ada"), lambda _: None)).state == "done"
