"""Acting in a browser: every action that pages offer, clicked as a user does, and the store as it is afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from playwright.sync_api import expect

from browser import Desk, Tab
from conftest import SOAK
from laneway.web.app import ENDPOINTS
from workbench import DEADLINE, until

pytest_plugins = ("browser_fixtures",)

#: What the API can do and no page has a button for: one throws away a whole queue, the other takes a call with its arguments.
NOT_ON_PAGES = {"queue.clear", "schedule.set"}
T = TypeVar("T", bound=Callable[..., None])

shown: set[str] = set()


def shows(*actions: str) -> Callable[[T], T]:
    """Note which actions a test clicks."""
    shown.update(actions)
    return lambda test: test


@pytest.fixture(autouse=True)
def nothing_is_left(desk: Desk) -> Iterator[None]:
    yield
    desk.sweep()


# -- one job -----------------------------------------------------------------------------------------------------


@shows("job.retry")
def test_a_dead_job_is_retried_and_the_fleet_runs_it(desk: Desk, tab: Tab) -> None:
    till = desk.gate()
    id_ = desk.tasks.charge.enqueue("ada", str(till)).id
    desk.until_state(id_, "dead")
    tab.open(f"/jobs/{id_}")
    expect(tab.page.locator("#job-why")).to_contain_text("no money at ada")
    till.touch()
    tab.press("Retry")
    tab.hears("Done.")
    desk.until_state(id_, None)
    expect(tab.page.locator("h1 + .state, #job-state .state")).to_have_text("done")
    assert tab.acted == [f"/api/v1/jobs/{id_}/retry"]


@shows("job.cancel")
def test_a_running_job_is_cancelled(desk: Desk, tab: Tab) -> None:
    id_ = desk.tasks.hold.enqueue(str(desk.gate())).id
    desk.until_state(id_, "running")
    tab.open(f"/jobs/{id_}")
    tab.press("Cancel")
    tab.sure("Cancel this job? It is asked to end at its worker’s next beat.", "Cancel")
    tab.hears("Done.")
    desk.until_state(id_, None)
    [run] = [run for run in desk.app.stats.recent() if run.id == id_]
    assert run.outcome == "cancelled"


def test_who_is_not_sure_changes_nothing(desk: Desk, tab: Tab) -> None:
    id_ = desk.tasks.mail.enqueue("ada").id
    tab.open(f"/jobs/{id_}")
    tab.press("Kill")
    expect(tab.question).to_contain_text("Let this job die?")
    tab.page.keyboard.press("Escape")
    expect(tab.question).to_have_count(0)
    tab.press("Kill")
    tab.sure("Let this job die?", "Go back")
    assert (tab.acted, desk.state(id_)) == ([], "ready")


@shows("job.kill")
def test_a_waiting_job_is_killed(desk: Desk, tab: Tab) -> None:
    id_ = desk.tasks.mail.enqueue("ada").id
    tab.open(f"/jobs/{id_}")
    tab.press("Kill")
    tab.sure("Let this job die? It can be retried later.", "Kill")
    expect(tab.page.locator("#job-state")).to_have_text("dead")
    assert desk.state(id_) == "dead"


@shows("job.delete")
def test_a_job_is_deleted_and_the_list_it_was_in_comes(desk: Desk, tab: Tab) -> None:
    [id_] = desk.dead()
    tab.open(f"/jobs/{id_}")
    tab.press("Delete")
    tab.sure("Delete this job? It cannot be brought back.", "Delete")
    tab.page.wait_for_url("**/jobs?state=dead")
    tab.hears("Done.")
    assert desk.state(id_) is None


@shows("job.reschedule")
@pytest.mark.parametrize("when", ["2h", "moment"])
def test_a_job_is_rescheduled(desk: Desk, tab: Tab, when: str) -> None:
    id_ = desk.tasks.mail.enqueue("ada").id
    wanted = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    tab.open(f"/jobs/{id_}")
    tab.press("Reschedule")
    tab.question.get_by_label("When").fill(when if when == "2h" else wanted.isoformat())
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("#job-state")).to_have_text("scheduled")
    job = desk.app.inspect.job(id_)
    assert job is not None
    assert abs((job.due_at - wanted).total_seconds()) < (30 if when == "2h" else 0.001)


def test_a_time_that_is_none_is_refused_and_said(desk: Desk, tab: Tab) -> None:
    tab.ear.forgive("answered 422|status of 422")
    id_ = desk.tasks.mail.enqueue("ada").id
    tab.open(f"/jobs/{id_}")
    tab.press("Reschedule")
    tab.question.get_by_label("When").fill("soon")
    tab.press("Reschedule", tab.question)
    tab.hears("soon")
    assert desk.state(id_) == "ready"


@shows("job.again")
def test_a_dead_job_is_retried_with_other_arguments(desk: Desk, tab: Tab) -> None:
    id_ = desk.tasks.mail.enqueue("ada", "hello", password="hunter2").id  # noqa: S106 - of a test
    desk.app.inspect.kill(id_)
    tab.open(f"/jobs/{id_}")
    assert "hunter2" not in tab.page.content()
    tab.press("Retry with other arguments")
    field, trouble = tab.question.get_by_label("Arguments, as a JSON list"), tab.question.get_by_role("alert")
    field.fill("[")
    tab.press("Enqueue", tab.question)
    expect(trouble).to_contain_text("The arguments are no JSON")
    tab.ear.forgive("answered 422|status of 422")
    field.fill("[1, 2, 3, 4]")
    tab.press("Enqueue", tab.question)
    expect(trouble).to_contain_text("too many positional arguments")
    field.fill('["bob", "numbers as they are: 12345678901234567890"]')
    tab.press("Enqueue", tab.question)
    tab.hears("Enqueued anew as")
    [job] = desk.app.inspect.jobs()
    assert (job.args, job.kwargs) == (["bob", "numbers as they are: 12345678901234567890"], {"password": "hunter2"})
    assert tab.page.url.endswith(f"/jobs/{job.id}")
    assert job.id != id_


# -- many jobs ---------------------------------------------------------------------------------------------------

#: What a verb makes of a job that waits, or is dead; and what is asked before.
BECOMES = {
    "retry": ("dead", "ready", "What is retried runs again as soon as a slot is free."),
    "cancel": ("ready", None, "What waits will not run; what runs is asked to end."),
    "kill": ("ready", "dead", "What is killed is dead, and can be retried later."),
    "delete": ("dead", None, "What is deleted cannot be brought back."),
    "reschedule": ("ready", "scheduled", ""),
}

DONE = {"retry": "retried", "cancel": "cancelled", "kill": "killed", "delete": "deleted", "reschedule": "rescheduled"}


def perform(tab: Tab, verb: str, number: int) -> None:
    """Do something with what is selected, and read how many that are."""
    tab.press(verb.capitalize(), tab.page.locator("[data-picked]"))
    words = f"{verb.capitalize()} {number} job{'s' if number != 1 else ''}"
    tab.sure(f"{words}? {BECOMES[verb][2]}".strip(), "Reschedule" if verb == "reschedule" else words)
    tab.hears(f"{number} job{'s' if number != 1 else ''}: {DONE[verb]}.")


@shows("jobs.retry_all", "jobs.cancel_all", "jobs.kill_all", "jobs.delete_all", "jobs.reschedule_all")
@pytest.mark.parametrize("verb", BECOMES)
def test_jobs_are_acted_on_by_rows_and_all_that_match(desk: Desk, tab: Tab, verb: str) -> None:
    before, after, _ = BECOMES[verb]
    # More than a page shows for two of the verbs (the other one below), and for all of them with make soak: the page takes
    # what is selected, rows or a search, in the same way to each.
    many = SOAK or verb == "retry"
    ids = wait_in_mail(desk, 54 if many else 4, before)

    tab.open(f"/jobs?q=state:{before}+queue:mail")
    for id_ in ids[1:3]:
        tab.page.get_by_label(f"Select job {id_}").check()
    perform(tab, verb, 2)
    assert {desk.state(id_) for id_ in ids[1:3]} == {after}
    assert desk.app.inspect.count(before, queue="mail") == len(ids) - 2

    if many:
        all_that_match(desk, tab, verb)
        assert {desk.state(id_) for id_ in ids} == {after}
        assert tab.acted.count(f"/api/v1/jobs/{verb}_all") == 3, "twice, and once to count"


def test_jobs_are_acted_on_by_page(desk: Desk, tab: Tab) -> None:
    wait_in_mail(desk, 102, "ready")
    tab.open("/jobs?q=state:ready+queue:mail")
    tab.page.get_by_label("Select all jobs on this page").check()
    expect(tab.page.locator(".picked-count")).to_have_text("50 selected")
    perform(tab, "kill", 50)
    assert desk.app.inspect.count("ready", queue="mail") == 52
    all_that_match(desk, tab, "kill")


def wait_in_mail(desk: Desk, number: int, state: str) -> list[str]:
    """Put in jobs that all wait or are dead, and one of another queue; return their ids, the newest first."""
    desk.tasks.mail.enqueue_many([("ada", f"n{n:02}") for n in range(number)])
    desk.tasks.mail.using(queue="default-not").enqueue("of another queue")
    if state == "dead":
        desk.app.inspect.kill_all(queue="mail")
    return [job.id for job in desk.app.inspect.jobs(queue="mail", newest=True, limit=200)]


def all_that_match(desk: Desk, tab: Tab, verb: str) -> None:
    """Act on the 52 that are left, which are more than a page shows."""
    expect(tab.page.locator("[data-pick]:checked")).to_have_count(0)
    tab.page.get_by_label("Select all jobs on this page").check()
    tab.press("Select all 52 that match")
    expect(tab.page.locator(".picked-count")).to_have_text("52 that match selected")
    perform(tab, verb, 52)
    assert desk.app.inspect.count(BECOMES[verb][0], queue="mail") == 0
    assert desk.app.inspect.count("ready", queue="default-not") == 1, "only what matched was meant"


def test_rows_are_picked_by_range_and_by_key(desk: Desk, tab: Tab) -> None:
    desk.tasks.mail.enqueue_many([("ada", f"n{n}") for n in range(6)])
    tab.open("/jobs?q=queue:mail")
    boxes, count = tab.page.locator("[data-pick]"), tab.page.locator(".picked-count")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    expect(count).to_have_text("4 selected")
    tab.page.keyboard.press("x")
    expect(count).to_have_text("6 selected")
    tab.page.keyboard.press("Escape")
    expect(count).to_be_hidden()
    boxes.nth(0).check()
    tab.press("Clear", tab.page.locator("[data-picked]"))
    expect(count).to_be_hidden()
    assert tab.acted == []


# -- failures that are the same one ------------------------------------------------------------------------------


@shows("errors.retry", "errors.delete", "error.forget")
def test_a_group_of_failures_is_retried_deleted_and_forgotten(desk: Desk, tab: Tab) -> None:
    till = desk.gate()
    ids = [desk.tasks.charge.enqueue(f"customer {n}", str(till)).id for n in range(3)]
    other = desk.tasks.flaky.enqueue("db").id
    for id_ in ids:
        desk.until_state(id_, "dead")
    desk.until_state(other, "retrying")
    until(lambda: {one.kind for one in desk.app.stats.errors()} >= {"ValueError", "TimeoutError"}, "the failures' statistics")
    tab.open("/errors")
    group = tab.page.locator("article").filter(has_text="no money at customer")
    expect(group.locator(".group-count")).to_contain_text("3 times")

    till.touch()
    tab.press("Retry all", group)
    tab.sure("Retry 3 jobs that failed so?", "Retry all")
    tab.hears("3 changed.")
    for id_ in ids:
        desk.until_state(id_, None)
    assert desk.state(other) == "retrying"

    rest = tab.page.locator("article").filter(has_text="TimeoutError")
    tab.press("Delete all", rest)
    tab.sure("Delete 1 job that failed so? They cannot be brought back.", "Delete all")
    tab.hears("1 changed.")
    assert desk.state(other) is None
    tab.press("Delete all", rest)
    tab.hears("There is nothing to do: no such job is there any more.")

    tab.press("Forget", rest)
    tab.sure("Take this off the page until it is seen again? Jobs stay as they are.", "Forget")
    expect(rest).to_have_count(0)
    assert "TimeoutError" not in {one.kind for one in desk.app.stats.errors()}


# -- lanes -------------------------------------------------------------------------------------------------------


def lane_path(queue: str, lane: str) -> str:
    return f"/lane?queue={queue}&lane={lane}"


@shows("lane.run")
def test_a_collectors_lane_runs_when_it_is_told_to(desk: Desk, tab: Tab) -> None:
    for key in ("a", "b"):
        desk.tasks.sync.using(run_after=3600).enqueue(key, {"n": 1})
    tab.open("/lanes?queue=sync")
    tab.press("Run now", tab.page.get_by_role("row").filter(has=tab.page.get_by_role("link", name="a", exact=True)))
    tab.hears("Done.")
    until(lambda: desk.app.inspect.counts()["scheduled"] == 1, "the run of a lane")
    tab.open(lane_path("sync", "b"))
    expect(tab.page.locator("#lane-facts")).to_contain_text("1payload")
    tab.ear.forgive("404")  # nothing is left of it afterwards
    tab.press("Run now")
    tab.hears("Done.")
    until(lambda: not any(desk.app.inspect.counts().values()), "the run of the other lane")


@shows("lanes.run_all")
def test_all_lanes_of_a_collector_run_when_they_are_told_to(desk: Desk, tab: Tab) -> None:
    for n in range(5):
        desk.tasks.sync.using(run_after=3600).enqueue(f"lane {n}", n)
    tab.open("/lanes?queue=sync")
    expect(tab.page.locator("#lanes-list tbody tr")).to_have_count(5)
    tab.press("Run all lanes of sync now")
    tab.sure("Let all lanes of sync run now, whatever they wait for?", "Run all lanes of sync now")
    tab.hears("5 changed.")
    until(lambda: not any(desk.app.inspect.counts().values()), "the run of all lanes")


@shows("lane.drop_oldest", "lane.drop")
def test_payloads_are_dropped_one_by_one_and_with_their_lane(desk: Desk, tab: Tab) -> None:
    for n in range(3):
        desk.tasks.sync.using(run_after=3600).enqueue("a", {"n": n}, score=n)
    tab.open(lane_path("sync", "a"))
    payloads = tab.page.locator("#payloads .payload")
    expect(payloads).to_have_text([re.compile(f'"n":{n}') for n in range(3)])
    tab.press("Drop the oldest payload")
    tab.sure("Drop the oldest payload that waits in this lane? It cannot be brought back.", "Drop the oldest payload")
    expect(payloads).to_have_text([re.compile(f'"n":{n}') for n in (1, 2)])
    assert desk.app.inspect.lane("sync", "a").size == 2
    tab.press("Drop the lane")
    tab.sure("Drop 2 payloads in this lane?", "Drop the lane")
    tab.page.wait_for_url("**/lanes?queue=sync")
    tab.hears("changed")
    assert not any(desk.app.inspect.counts().values())


def test_a_lane_that_halted_goes_on_when_its_head_is_retried(desk: Desk, tab: Tab) -> None:
    till = desk.gate()
    ids = [desk.tasks.ship.enqueue("ada", str(till)).id for _ in range(3)]
    desk.until_state(ids[0], "dead")
    tab.open(lane_path("billing", "ada"))
    expect(tab.page.locator("#lane-state")).to_have_text("halted")
    expect(tab.page.locator("#lane-jobs tbody tr")).to_have_count(3)
    till.touch()
    tab.ear.forgive("404")  # nothing is left of it afterwards
    tab.press("Retry its head")
    tab.hears("Done.")
    for id_ in ids:
        desk.until_state(id_, None)


# -- queues, workers, schedules ----------------------------------------------------------------------------------


@shows("queue.pause", "queue.resume")
def test_a_queue_is_paused_and_goes_on(desk: Desk, tab: Tab) -> None:
    desk.tasks.add.enqueue(1, 2)
    until(lambda: not any(desk.app.inspect.counts().values()), "the first job's end")
    tab.open()
    row = tab.page.locator("#queues tbody tr").filter(has=tab.page.get_by_role("link", name="default", exact=True))
    tab.press("Pause", row)
    tab.sure("Pause queue default? What runs goes on; nothing more is claimed from it.", "Pause")
    tab.hears("default is paused.")
    expect(row.locator(".badge").filter(has_text="paused")).to_have_attribute("title", "by loopback")
    id_ = desk.tasks.add.enqueue(3, 4).id
    assert [queue.paused_by for queue in desk.app.inspect.queues() if queue.paused] == ["loopback"]
    assert desk.state(id_) == "ready"
    tab.press("Resume", row)
    tab.hears("default goes on.")
    desk.until_state(id_, "done")


@shows("worker.quiet", "worker.stop")
def test_a_worker_is_quieted_and_stopped(desk: Desk, tab: Tab) -> None:
    known = {one.id for one in desk.app.inspect.workers()}
    fleet = desk.start_fleet("-q", "of-no-use")
    until(lambda: len(desk.app.inspect.workers()) == len(known) + 1, "the beat of another worker")
    [new] = [one for one in desk.app.inspect.workers() if one.id not in known]
    tab.open("/workers")
    card = tab.page.locator("article").filter(has_text=f"pid {new.pid}")
    tab.press("Quiet", card)
    tab.sure("Tell this worker to claim nothing more?", "Quiet")
    tab.hears("Told to quiet; it hears of it at its next beat.")
    until(lambda: {one.id: one.phase for one in desk.app.inspect.workers()}[new.id] == "quiet", "a quiet worker")
    tab.open("/workers")
    expect(card.locator(".badge")).to_have_text("quiet")
    expect(tab.button("Quiet", card)).to_have_count(0)
    tab.press("Stop", card)
    tab.sure("Tell this worker to end when what runs has ended?", "Stop")
    until(lambda: new.id not in {one.id for one in desk.app.inspect.workers()}, "the worker's end")
    assert fleet.process.wait(DEADLINE) == 0
    tab.open("/workers")
    expect(card).to_have_count(0)


@shows("schedule.pause", "schedule.resume", "schedule.run")
def test_a_schedule_is_run_paused_and_resumed(desk: Desk, tab: Tab) -> None:
    tab.open("/schedules")
    row = tab.row("nightly")
    tab.press("Run now", row)
    tab.sure("Enqueue a job of nightly now, beside its slots?", "Run now")
    tab.hears("Enqueued as")
    until(lambda: any(run.task == "nightly" for run in desk.app.stats.recent()), "the run of a schedule's job")
    tab.press("Pause", row)
    tab.sure("Pause nightly? Its occurrences pass unused until it is resumed.", "Pause")
    expect(row).to_contain_text("paused")
    assert {one.task: one.paused for one in desk.app.inspect.schedules()} == {"nightly": True, "never": False}
    tab.press("Resume", row)
    expect(row).not_to_contain_text("paused")
    assert not any(one.paused for one in desk.app.inspect.schedules())


@shows("schedule.drop")
def test_a_schedule_in_the_store_is_shown_and_removed(desk: Desk, tab: Tab) -> None:
    desk.app.inspect.set_schedule("add/later?", desk.tasks.add.bind(3, 4), "0 3 * * *", by="ada")
    desk.app.store_inspect.set_schedule("evil", b"{}")
    tab.open("/schedules")
    row = tab.row("add/later?")
    expect(row).to_contain_text("add(3, 4)")
    expect(row.locator(".badge").filter(has_text="stored")).to_have_attribute("title", "Kept in the store, set by ada")
    expect(tab.button("Remove", tab.row("nightly"))).to_have_count(0)
    expect(tab.row("evil")).to_contain_text("the entry cannot be read")
    for name in ("add/later?", "evil"):
        tab.press("Remove", tab.row(name))
        tab.sure(f"Remove {name} from the store? It does not fire any more.", "Remove")
        tab.hears(f"{name} is removed.")
        expect(tab.row(name)).to_have_count(0)
    assert desk.app.store.schedules().kept == {}


def test_every_action_of_the_api_is_clicked_here() -> None:
    assert shown == {endpoint.action for endpoint in ENDPOINTS if endpoint.action} - NOT_ON_PAGES


def test_an_action_that_comes_too_late_is_said(desk: Desk, tab: Tab) -> None:
    tab.ear.forgive("answered 409|status of 409")
    [id_] = desk.dead()
    tab.open(f"/jobs/{id_}")
    desk.app.inspect.retry(id_)
    tab.press("Retry")
    tab.hears(f"{id_} is ready: there is nothing to retry")
    assert (tab.acted, desk.state(id_)) == ([f"/api/v1/jobs/{id_}/retry"], "ready")
