"""`laneway lanes`, and collectors in the other commands: looking into lanes, acting on them, enqueueing payloads."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clidesk import Desk, open_desk, runner
from laneway.cli import command, laneway
from laneway.cli.lanes import ORDERS
from laneway.core.job import lane_id
from laneway.store.paging import LANE_ORDERS
from laneway.testing import wait_until
from laneway.worker import Worker

MORE = """
import msgspec
import threading

class Order(msgspec.Struct):
    id: str
    version: int = 0

@app.collector(retry=Retry(times=2, backoff=600))
def sync(lanes: dict[str, list[dict[str, int]]]) -> None:
    if any(lane.startswith("bad") for lane in lanes):
        raise TimeoutError("no answer")

@app.collector(lane=lambda order: order.id, score=lambda order: order.version, retry=Retry(times=0))
def ship(lanes: dict[str, list[Order]]) -> None:
    raise ValueError("no ship")

@app.task(queue="till", lane="customer", retry=Retry(times=0), halt_on_death=True)
def pay(customer: str) -> None:
    raise ValueError("no money")

@app.task(queue="slow", lane="customer", retry=Retry(times=1, backoff=600))
def slow(customer: str) -> None:
    raise TimeoutError("slow")

began, go_on = threading.Event(), threading.Event()

@app.collector(max_lanes=2)
def held(lanes: dict[str, list[int]]) -> None:
    began.set()
    go_on.wait(20)
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch, MORE)


@pytest.fixture
def busy(desk: Desk) -> Desk:
    """Lanes of all kinds.

    Of a collector one that fails (bad, 2 payloads), two that are due (a, b) and one for later; one that jobs wait in behind a
    retry (ada of slow), one that is halted (bob of till); and of another collector three dead payloads.
    """
    for number in (1, 2):
        desk.task("sync").enqueue("bad", {"total": number}, score=number)
    for number in range(3):
        desk.task("slow").using(id=f"slow-{number}").enqueue("ada")
    for number in range(2):
        desk.task("pay").using(id=f"pay-{number}").enqueue("bob")
    order = sys.modules["app"].Order
    desk.task("ship").enqueue_many([order("o-1", version) for version in (1, 2)] + [order("o-2", 3)])
    desk.work()
    desk.task("sync").enqueue("a", {"total": 1})
    desk.task("sync").enqueue("b", {"total": 2})
    desk.task("sync").using(run_after=600).enqueue("later")
    return desk


def names(found: list[dict[str, object]]) -> list[object]:
    return [lane["lane"] for lane in found]


# -- list --------------------------------------------------------------------------------------------------------


def test_trouble_comes_first(busy: Desk) -> None:
    found = busy.json("lanes", "list")
    assert names(found) == ["bob", "bad", "ada", "a", "b", "later"]
    halted, failing, *_ = found
    assert (halted["state"], halted["halted"], halted["size"], halted["head"]) == ("dead", True, 2, "pay-0")
    assert (failing["queue"], failing["task"], failing["collects"]) == ("app.sync", "app.sync", True)
    assert (failing["state"], failing["size"], failing["attempts"]) == ("retrying", 2, 1)
    assert failing["error"] == "TimeoutError: no answer"


def test_a_list_in_a_pipe_has_every_column(busy: Desk) -> None:
    head, *rows = [line.split() for line in busy.run("lanes", "list").splitlines()]
    assert head == ["lane", "queue", "size", "state", "attempts", "due", "task", "last", "error"]
    assert rows[0][:5] == ["bob", "till", "2", "halted", "1"]
    assert rows[3][:5] == ["a", "app.sync", "1", "ready", "0"]
    assert rows[3][-2:] == ["app.sync", "-"]


@pytest.mark.parametrize("columns", [80, 140])
def test_a_list_on_a_terminal_fits_and_says_what_is_counted(busy: Desk, columns: int) -> None:
    seen = busy.paint("lanes", "list", until="later", columns=columns)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= columns
    assert re.match(r"bob +till +2 +halted +1 .* ago +(app.pay +)?ValueError", lines[1])
    seen = busy.paint("lanes", "list", "--queue", "app.sync", until="later", columns=columns)
    assert "payloads" in seen
    assert "queue" not in seen


@pytest.mark.parametrize(
    ("order", "listed"),
    [
        ("size", ["bad", "a", "b", "later"]),
        ("-size", ["a", "b", "later", "bad"]),
        ("attempts", ["bad", "a", "b", "later"]),
        ("lag", ["a", "b", "bad", "later"]),
        ("due", ["a", "b", "bad", "later"]),
        ("-due", ["later", "bad", "b", "a"]),
        ("name", ["a", "b", "bad", "later"]),
        ("-name", ["later", "bad", "b", "a"]),
    ],
)
def test_any_order_in_pages(busy: Desk, order: str, listed: list[str]) -> None:
    assert names(busy.json("lanes", "list", "--queue", "app.sync", "--order", order)) == listed
    found: list[str] = []
    arguments = ["lanes", "list", "--queue", "app.sync", "--order", order, "--limit", "1", "--store", busy.url]
    while arguments:
        done = busy.call(*arguments)
        found += [line.split()[0] for line in done.stdout.splitlines()[1:]]
        more = re.search(r"more: laneway (.*)", done.stderr)
        arguments = shlex.split(more[1]) if more else []
    assert found == listed


def test_the_orders_are_those_of_the_store() -> None:
    assert tuple(LANE_ORDERS) == ORDERS


def test_trouble_that_does_not_fit_says_so(busy: Desk) -> None:
    done = busy.call("lanes", "list", "--limit", "2")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["bob", "bad"]
    assert done.stderr == "more: laneway lanes list --order lag --limit 2\n"
    assert busy.call("lanes", "list", "--limit", "6").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list", "--queue", "app.snyc"], 1, 'Did you mean "app.sync"'),
        (["list", "--order", "siez"], 2, 'there is no "siez". Did you mean "size"'),
        (["list", "--after", "x"], 2, "add the --order"),
        (["list", "--order", "lag", "--after", "x"], 1, "next"),
        (["show", "bda"], 1, 'nothing waits or runs in a lane "bda". Did you mean "bad"'),
        (["show", "a", "--queue", "mial"], 1, 'no queue "mial"'),
        (["show", "o-1"], 1, '"o-1", and 2 dead ones are left of it: laneway jobs list --state dead --lane o-1'),
        (["explain", "bda"], 1, 'Did you mean "bad"'),
        (["run"], 2, "say which lane: laneway lanes run LANE"),
        (["run", "a", "--all"], 2, "a lane and --all together"),
        (["run", "--all"], 2, "name its queue with --queue"),
        (["run", "--all", "--queue", "till"], 2, "laneway jobs retry --queue till"),
        (["run", "bda"], 1, 'Did you mean "bad"'),
        (["run", "a"], 1, "lane a of app.sync is due already"),
        (["run", "bob"], 1, "is halted by job pay-0: replay it with laneway jobs retry pay-0"),
        (["drop-oldest", "ada"], 2, "lane ada of slow has jobs, not payloads: remove the first with laneway jobs delete slow-0"),
        (["drop-oldest", "bda"], 1, 'Did you mean "bad"'),
        (["drop", "bda", "--yes"], 1, 'Did you mean "bad"'),
        (["kill"], 2, "laneway lanes kill --failing --queue QUEUE"),
        (["kill", "--failing"], 2, "laneway lanes kill --failing --queue QUEUE"),
        (["delete", "--queue", "app.sync"], 2, "laneway lanes delete --failing --queue QUEUE"),
        (["delete", "--failing", "--queue", "slow"], 2, "laneway jobs delete --failing --queue slow"),
        (["kill", "--failing", "--queue", "app.snyc"], 1, 'Did you mean "app.sync"'),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(busy: Desk, arguments: list[str], code: int, said: str) -> None:
    assert said in busy.mistake("lanes", *arguments, code=code)
    assert len(busy.json("lanes", "list")) == 6


def test_no_lanes_is_said_and_no_mistake(desk: Desk) -> None:
    desk.task("add").enqueue(1)
    assert desk.call("lanes", "list").stderr == "no lane has anything to do\n"
    assert desk.json("lanes", "list") == []


# -- show, explain -----------------------------------------------------------------------------------------------


def test_a_collectors_lane_is_shown_with_its_payloads(busy: Desk) -> None:
    seen = busy.run("lanes", "show", "bad")
    assert seen.startswith("bad  app.sync  retrying\n  attempt 1 failed (TimeoutError: no answer); the next one is due in ")
    assert re.search(r"payloads +2\n +attempts +1\n +due ", seen)
    assert re.search(r'waiting +1 +\{"total":1\}\nwaiting +2 +\{"total":2\}\n', seen)
    assert "last error\n  attempt 1, " in seen
    assert "Traceback (most recent call last)" in seen
    document = busy.json("lanes", "show", "bad")
    assert (document["lane"], document["attempts"], document["reasons"][0][:16]) == ("bad", 1, "attempt 1 failed")
    assert document["payloads"] == [{"payload": {"total": n}, "score": n, "running": False} for n in (1, 2)]
    assert re.search(r"waiting +[\d.]+ +left out", busy.run("lanes", "show", "later"))


def test_a_long_lane_is_shown_in_pages(desk: Desk) -> None:
    desk.task("sync").enqueue_many([("order 7", {"total": n}) for n in range(5)])
    found: list[str] = []
    arguments = ["lanes", "show", "order 7", "--limit", "2", "--store", desk.url]
    while arguments:
        done = desk.call(*arguments)
        found += re.findall(r'"total":(\d)', done.stdout)
        more = re.search(r"more: laneway (.*)", done.stderr)
        arguments = shlex.split(more[1]) if more else []
    assert found == ["0", "1", "2", "3", "4"]


def test_a_long_line_of_jobs_is_cut_and_says_so(busy: Desk) -> None:
    done = busy.call("lanes", "show", "ada", "--limit", "1")
    assert (re.findall(r"^slow-\d", done.stdout, re.MULTILINE), done.stderr) == (["slow-0"], "2 more: use --limit\n")
    assert "--after is for payloads" in busy.mistake("lanes", "show", "ada", "--after", "x")


def test_the_jobs_of_a_lane_are_shown_in_order(busy: Desk) -> None:
    seen = busy.run("lanes", "show", "ada")
    assert re.findall(r"^slow-\d", seen, re.MULTILINE) == ["slow-0", "slow-1", "slow-2"]
    assert "head        job slow-0" in seen
    document = busy.json("lanes", "show", "ada", "--queue", "slow")
    assert [job["id"] for job in document["jobs"]] == ["slow-0", "slow-1", "slow-2"]
    assert [job["state"] for job in document["jobs"]] == ["retrying", "blocked", "blocked"]


def test_a_halted_lane_shows_who_halts_it(busy: Desk) -> None:
    assert [job["id"] for job in busy.json("lanes", "show", "bob")["jobs"]] == ["pay-0", "pay-1"]
    assert busy.run("lanes", "show", "bob").startswith("bob  app.pay  halted\n  it gave up ")
    assert busy.run("lanes", "explain", "bob").startswith("lane bob of till is halted; job pay-0 is at its head:\n  it gave up ")


def test_the_same_name_in_two_queues_must_be_told_apart(busy: Desk) -> None:
    busy.task("sync").enqueue("ada", {})
    for action in ("show", "explain", "run", "drop", "drop-oldest"):
        assert "queues app.sync, slow have a lane ada: choose one with --queue" in busy.mistake("lanes", action, "ada")
    assert busy.json("lanes", "show", "ada", "--queue", "slow")["size"] == 3


def test_explain_says_why(busy: Desk) -> None:
    assert busy.run("lanes", "explain", "bad").startswith("lane bad of app.sync is retrying:\n  attempt 1 failed")
    seen = busy.json("lanes", "explain", "bad")
    assert (seen["state"], seen["halted"], seen["head"]) == ("retrying", False, lane_id("app.sync", "bad"))
    assert seen["reasons"][0].startswith("attempt 1 failed")


# -- acting ------------------------------------------------------------------------------------------------------


def test_a_lane_is_run_now(busy: Desk) -> None:
    assert busy.run("lanes", "run", "bad", "--dry-run") == "lane bad of app.sync would be due now; nothing was changed\n"
    assert busy.run("lanes", "run", "bad") == "lane bad of app.sync is due now\n"
    assert busy.json("lanes", "run", "later") == {
        "queue": "app.sync", "lane": "later", "matched": 1, "changed": 1, "dry_run": False,
    }  # fmt: skip
    assert {lane["state"] for lane in busy.json("lanes", "list", "--queue", "app.sync")} == {"ready"}
    assert busy.run("lanes", "run", "ada") == "lane ada of slow is due now\n"


def test_a_job_that_waits_for_its_time_is_not_run_with_its_lane(desk: Desk) -> None:
    desk.task("slow").using(id="one", run_after=600).enqueue("eve")
    for dry in ([], ["--dry-run"]):
        assert "laneway jobs reschedule one --in 0s" in desk.mistake("lanes", "run", "eve", *dry, code=1)


def test_all_lanes_of_a_collector_are_run_now_after_a_yes(busy: Desk) -> None:
    arguments = ["lanes", "run", "--all", "--queue", "app.sync"]
    assert busy.mistake(*arguments).startswith("Let 2 lanes of app.sync run now (1 retrying, 1 scheduled)? There is no terminal")
    assert busy.run(*arguments, "--dry-run") == "2 lanes of app.sync would be made due now; nothing was changed\n"
    assert busy.run(*arguments, "--yes") == "2 lanes of app.sync made due now\n"
    assert busy.json(*arguments) == {"queue": "app.sync", "matched": 0, "changed": 0, "dry_run": False}


def test_the_oldest_payload_is_dropped(busy: Desk) -> None:
    assert busy.run("lanes", "drop-oldest", "bad") == 'dropped from lane bad of app.sync, 1 left: {"total":1}\n'
    assert busy.json("lanes", "drop-oldest", "bad") == {
        "queue": "app.sync", "lane": "bad", "payload": {"total": 2}, "score": 2, "left": 0,
    }  # fmt: skip
    assert "nothing waits or runs" in busy.mistake("lanes", "drop-oldest", "bad", code=1)
    assert busy.run("lanes", "drop-oldest", "later").endswith("0 left: left out\n")


def test_a_lane_is_dropped_after_a_yes(busy: Desk) -> None:
    assert busy.mistake("lanes", "drop", "bad").startswith("Drop lane bad of app.sync with 2 payloads (retrying)? There is no ")
    assert busy.run("lanes", "drop", "bad", "--dry-run").endswith("with 2 payloads would be dropped; nothing was changed\n")
    assert busy.run("lanes", "drop", "bad", "--yes") == "lane bad of app.sync with 2 payloads dropped\n"
    assert busy.run("lanes", "drop", "ada", "--yes") == "lane ada of slow with 3 jobs dropped\n"
    assert busy.json("lanes", "drop", "bob", "--yes") == {
        "queue": "till", "lane": "bob", "size": 2, "matched": 1, "changed": 1, "dry_run": False,
    }  # fmt: skip
    assert names(busy.json("lanes", "list")) == ["a", "b", "later"]


@pytest.mark.parametrize(("answer", "left"), [("y", 5), ("n", 6)])
def test_the_question_is_answered(busy: Desk, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    done = busy.call("lanes", "drop", "bad", input=f"{answer}\n")
    assert (done.exit_code, len(busy.json("lanes", "list"))) == (0, left)


def test_lanes_that_run_together(desk: Desk) -> None:
    desk.task("held").enqueue_many([("x", 1), ("y", 1)])
    app = sys.modules["app"]
    worker = Worker(desk.app, 1)
    thread = threading.Thread(target=worker.run, kwargs={"burst": True})
    thread.start()
    try:
        wait_until(app.began.is_set, 20)
        desk.task("held").enqueue("x", 2)
        inside = desk.json("lanes", "show", "x", "--store", desk.url)["payloads"]
        assert [(payload["payload"], payload["running"]) for payload in inside] == [(1, True), (2, False)]
        assert re.search(r"working +1/1 .* app.held$", desk.run("workers", "list", "--store", desk.url), re.MULTILINE)
        assert "workers: 1, running 1 of 1 slots" in desk.run("status", "--store", desk.url)
        assert "lane x of app.held runs already" in desk.mistake("lanes", "run", "x", "--store", desk.url, code=1)
        assert desk.run("lanes", "drop-oldest", "x", "--store", desk.url).endswith("1 left: 2\n")
        assert "nothing waits: what is in it runs" in desk.mistake("lanes", "drop-oldest", "x", "--store", desk.url, code=1)
        dropped = desk.run("lanes", "drop", "x", "--yes", "--store", desk.url)
        assert dropped == "lane x of app.held with 1 payload dropped; what runs goes when its run has ended\n"
    finally:
        app.go_on.set()
        thread.join(20)


def test_failing_lanes_are_killed_and_their_payloads_replayed(busy: Desk) -> None:
    arguments = ["lanes", "kill", "--failing", "--queue", "app.sync"]
    assert busy.mistake(*arguments).startswith("Kill 1 failing lane of app.sync with all payloads (1 retrying)? There is ")
    assert busy.run(*arguments, "--dry-run") == "1 failing lane of app.sync would be killed; nothing was changed\n"
    assert busy.run(*arguments, "--yes") == "1 failing lane of app.sync killed\n"
    dead = busy.json("jobs", "list", "--state", "dead", "--queue", "app.sync")
    assert [(job["lane"], job["args"], job["score"]) for job in dead] == [("bad", [{"total": n}], n) for n in (1, 2)]
    assert busy.run("jobs", "retry", dead[0]["id"]) == "1 payload retried\n"
    assert busy.run("jobs", "retry", "--state", "dead", "--queue", "app.sync", "--yes") == "1 payload retried\n"
    assert busy.json("lanes", "show", "bad")["size"] == 2
    assert busy.json(*arguments) == {"queue": "app.sync", "matched": 0, "changed": 0, "dry_run": False}


def test_failing_lanes_are_deleted(busy: Desk) -> None:
    seen = busy.json("lanes", "delete", "--failing", "--queue", "app.sync", "--yes")
    assert seen == {"queue": "app.sync", "matched": 1, "changed": 1, "dry_run": False}
    assert names(busy.json("lanes", "list", "--queue", "app.sync")) == ["a", "b", "later"]
    assert busy.json("jobs", "list", "--state", "dead", "--queue", "app.sync") == []


# -- collectors in jobs ------------------------------------------------------------------------------------------


def test_jobs_lists_lanes_and_dead_payloads(busy: Desk) -> None:
    rows = {row[0]: row for row in (line.split() for line in busy.run("jobs", "list").splitlines())}
    assert rows[lane_id("app.sync", "bad")][7:9] == ["2", "payloads"]
    (bad, *_) = busy.json("jobs", "list", "--queue", "app.sync")
    assert (bad["payloads"], bad["score"], bad["args"]) == (2, None, [])
    seen = busy.run("jobs", "list", "--queue", "app.ship")
    assert re.search(
        r'^p-\w+ +dead +app.ship +app.ship +o-1 .* \{"id":"o-1","version":1\} +ValueError: no ship$', seen, re.MULTILINE
    )
    assert sorted(job["score"] for job in busy.json("jobs", "list", "--queue", "app.ship")) == [1, 2, 3]


def test_what_is_in_a_lane_has_its_place_in_a_narrow_list(busy: Desk) -> None:
    seen = busy.paint("jobs", "list", "--queue", "app.ship", until="o-2")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    assert '{"id":"o-' in lines[1]


def test_a_lane_and_a_dead_payload_have_their_pages(busy: Desk) -> None:
    seen = busy.run("jobs", "show", lane_id("app.sync", "bad"))
    assert "payloads    2: laneway lanes show bad --queue app.sync" in seen
    assert "arguments" not in seen
    dead = busy.json("jobs", "list", "--lane", "o-2")[0]["id"]
    seen = busy.run("jobs", "show", dead)
    assert seen.startswith(f"app.ship  {dead}  dead\n  it gave up ")
    assert 'payload     {"id":"o-2","version":3}\n  score       3\n' in seen
    assert busy.json("jobs", "show", dead)["score"] == 3


def test_dead_payloads_are_deleted_one_or_all(busy: Desk) -> None:
    dead = busy.json("jobs", "list", "--lane", "o-2")[0]["id"]
    assert busy.run("jobs", "delete", dead) == "1 payload deleted\n"
    arguments = ["jobs", "delete", "--state", "dead", "--queue", "app.ship"]
    assert busy.mistake(*arguments).startswith("Delete 2 payloads (2 dead)? There is no terminal")
    assert busy.run(*arguments, "--yes") == "2 payloads deleted\n"


def test_ids_of_one_kind_are_called_by_their_name(busy: Desk) -> None:
    ids = [lane_id("app.sync", lane) for lane in "ab"]
    assert "Cancel 2 lanes (2 ready)?" in busy.mistake("jobs", "cancel", *ids)
    assert "Delete 2 jobs (1 ready, 1 dead)?" in busy.mistake("jobs", "delete", ids[0], "pay-0")


def test_a_retry_of_a_whole_queue_leaves_alone_what_waits_for_its_time(busy: Desk) -> None:
    assert busy.json("jobs", "retry", "--queue", "app.sync", "--yes") == {"matched": 1, "changed": 1, "dry_run": False}
    assert busy.json("lanes", "show", "later")["state"] == "scheduled"


def test_failing_is_a_filter_for_jobs_too(busy: Desk) -> None:
    assert [job["id"] for job in busy.json("jobs", "list", "--failing")] == [lane_id("app.sync", "bad"), "slow-0"]
    assert busy.run("jobs", "kill", "--failing", "--queue", "slow", "--yes") == "1 job killed\n"


# -- enqueue -----------------------------------------------------------------------------------------------------


def test_a_payload_is_enqueued_into_a_lane(desk: Desk) -> None:
    assert desk.run("enqueue", "app.sync", "order-7", '{"total": 90}', "--score", "3") == "order-7\n"
    assert desk.json("enqueue", "app.sync", "7", "--in", "5m") == {
        "id": lane_id("app.sync", "7"), "queue": "app.sync", "lane": "7",
    }  # fmt: skip
    assert desk.run("enqueue", "app.ship", '{"id": "o-1", "version": 4}') == "o-1\n"
    found = {lane["lane"]: lane["state"] for lane in desk.json("lanes", "list")}
    assert found == {"order-7": "ready", "7": "scheduled", "o-1": "ready"}
    assert desk.json("lanes", "show", "order-7")["payloads"] == [{"payload": {"total": 90}, "score": 3, "running": False}]
    assert desk.json("lanes", "show", "o-1")["payloads"][0]["score"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["app.snyc", "a"], 'Did you mean "app.sync"'),
        (["app.sync"], "app.sync is a collector: laneway enqueue app.sync LANE [PAYLOAD]"),
        (["app.sync", "a", "{}", "{}"], "laneway enqueue app.sync LANE [PAYLOAD]"),
        (["app.sync", "", "{}"], "is not a key for a lane"),
        (["app.sync", "a", "7"], "app.sync, payload: Expected `object`, got `int`"),
        (["app.sync", "a", "{}", "--kwarg", "a=1"], "app.sync is a collector, and --kwarg is for tasks"),
        (["app.sync", "a", "--wait", "--lane", "b"], "--lane, --wait are for tasks"),
        (["app.sync", "a", "{}", "--score", "1800000000000"], "looks like a time in milliseconds"),
        (["app.sync", "a", "{}", "--score", "nan"], "is not a score"),
        (["app.sync", "--from", "-", "--score", "1"], "--score is for one"),
        (["app.ship", "a", "{}"], "app.ship knows the lane of a payload: laneway enqueue app.ship PAYLOAD"),
        (["app.ship", "{}"], "app.ship, payload: Object missing required field `id`"),
        (["app.ship", '{"id": 7}'], "Expected `str`, got `int` - at `$.id`"),
        (["app.send", "ada", "--score", "1"], "app.send is a task, and --score is for collectors"),
    ],
)
def test_a_mistake_in_a_payload_is_one_line_and_nothing_is_sent(desk: Desk, arguments: list[str], said: str) -> None:
    assert said in desk.mistake("enqueue", *arguments)
    assert sum(desk.app.inspect.counts().values()) == 0


def test_without_an_app_the_store_knows_its_collectors(
    busy: Desk, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert busy.run("enqueue", "app.sync", "a", '{"total": 9}', "--store", busy.url) == "a\n"
    assert busy.run("enqueue", "far.away", "b", "--score", "1", "--store", busy.url) == "b\n"
    assert busy.json("lanes", "show", "a", "--store", busy.url)["size"] == 2
    assert busy.json("lanes", "show", "b", "--queue", "far.away", "--store", busy.url)["payloads"][0]["score"] == 1


def test_a_file_has_a_payload_on_each_line(desk: Desk) -> None:
    (desk.folder / "rows.jsonl").write_text(
        '["a", {"total": 1}, 5]\n["a", {"total": 2}, 4]\n\n"b"\n7\n'
        '{"lane": "c", "payload": {}, "run_after": 60}\n["d", {}, null, 60]\n'
    )
    assert desk.run("enqueue", "app.sync", "--from", "rows.jsonl") == "6 payloads of app.sync enqueued\n"
    assert [p["payload"]["total"] for p in desk.json("lanes", "show", "a")["payloads"]] == [2, 1]
    states = {lane["lane"]: lane["state"] for lane in desk.json("lanes", "list")}
    assert states == {"a": "ready", "b": "ready", "7": "ready", "c": "scheduled", "d": "scheduled"}


def test_lines_of_a_collector_that_knows_its_lanes_are_payloads(desk: Desk) -> None:
    done = desk.call("enqueue", "app.ship", "--from", "-", input='{"id": "o-1"}\n{"id": "o-2", "version": 7}\n')
    assert done.stdout == "2 payloads of app.ship enqueued\n"
    assert sorted(map(str, names(desk.json("lanes", "list")))) == ["o-1", "o-2"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("[]", "it names no lane"),
        ("null", "it names no lane"),
        ('["a", {}, 1, 2, 3]', "it names no lane"),
        ('{"payload": {}}', "it names no lane"),
        ('{"lane": "a", "scroe": 1}', 'there is no "scroe". Did you mean "score"?'),
        ('["a", 7]', "app.sync, payload: Expected `object`, got `int`"),
        ('["a", {}, "x"]', "is not a score"),
        ('[true, {}]', "is not a key for a lane"),
        ('["a", {}, 1, "soon"]', "is not a time"),
        ("[1", "it is not JSON"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(desk: Desk, bad: str, said: str) -> None:
    line = desk.mistake("enqueue", "app.sync", "--from", "-", input=f'["x", {{}}]\n{bad}\n["y"]\n')
    assert line.startswith("line 2: ")
    assert said in line
    assert line.endswith("1 payload of the lines before it enqueued, nothing after it: go on with line 2")
    assert names(desk.json("lanes", "list")) == ["x"]


# -- queues, status, top, worker ---------------------------------------------------------------------------------


def test_a_collectors_queue_says_that_it_counts_lanes(busy: Desk) -> None:
    rows = [line.split() for line in busy.run("queues", "list").splitlines()]
    assert ["app.sync", "1", "2", "1", "0", "0", "0", "lanes", "no"] in rows
    assert {queue["name"]: queue["collects"] for queue in busy.json("queues", "list")} == {
        "app.sync": True, "app.ship": True, "slow": False, "till": False,
    }  # fmt: skip
    assert {queue["name"]: queue["collects"] for queue in busy.json("status")["queues"]}["app.sync"]
    assert re.search(r"^app.sync +no .* lanes$", busy.run("status"), re.MULTILINE)
    assert busy.run("queues", "clear", "app.sync", "--dry-run").startswith("4 lanes of queue app.sync would be removed")
    for arguments in (["status"], ["top", "--every", "0.1"]):
        seen = busy.paint(*arguments, until="last runs", keys="q")
        assert "app.sync lanes" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)


def test_top_shows_dead_payloads(busy: Desk) -> None:
    assert re.search(r"app.ship +ValueError: no ship", busy.run("top"))


def test_a_run_of_several_lanes_is_one_line_of_a_worker(desk: Desk) -> None:
    with (desk.folder / "app.py").open("a") as file:
        file.write(
            "\nfrom laneway import LaneFailures\n\n@app.collector(max_lanes=9)\ndef some(lanes: dict[str, list[int]]) -> None:\n"
            "    if 'bad' in lanes:\n        raise LaneFailures({'bad': TimeoutError('no answer')})\n"
        )
    desk.task("some").enqueue_many(["a", "b", "bad"])
    desk.app.close()
    seen = re.sub(r"\x1b\[[0-9;]*m", "", desk.paint("worker", "--burst", until="worker stopped"))
    assert re.search(r"app.some +- +3 lanes +retrying", seen)
    assert "TimeoutError: no answer" in seen
    assert "Logging error" not in seen


# -- completion --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("lanes ", ["list", "show", "explain", "run", "drop-oldest", "drop", "kill", "delete"]),
        ("lanes show ", ["a", "ada", "b", "bad", "bob", "later"]),
        ("lanes drop --queue app.sync ", ["a", "b", "bad", "later"]),
        ("lanes list --order s", ["size"]),
        ("lanes list --queue app.", ["app.held", "app.ship", "app.sync"]),
        ("jobs list --lane o", ["o-1", "o-2"]),
        ("enqueue app.s", ["app.send", "app.ship", "app.slow", "app.sync"]),
        ("enqueue app.sync b", ["b", "bad"]),
        ("enqueue app.sync bad ", []),
        ("enqueue app.add ", []),
    ],
)
def test_the_shell_is_offered_lanes(busy: Desk, words: str, offered: list[str]) -> None:
    assert busy.folder.exists()
    env = {"COMP_WORDS": f"laneway {words}", "COMP_CWORD": str(len(f"laneway {words}".split(" ")) - 1)}
    done = runner().invoke(laneway, [], env={**env, "_LANEWAY_COMPLETE": "bash_complete"}, prog_name="laneway")
    assert (done.exit_code, done.stderr) == (0, ""), done.exception
    assert re.findall(r"^plain,(.*)$", done.stdout, re.MULTILINE) == offered
