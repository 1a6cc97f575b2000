"""The pages that list: the query box's language, what is found within the budget, and what each page shows, on every store."""

from __future__ import annotations

import re
import string
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

from laneway import App, Retry, Worker
from laneway.core.instant import as_datetime
from laneway.core.job import STATES
from laneway.core.outcome import ErrorInfo
from laneway.errors import UnknownJob, UnknownLane
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.inspection import JobInfo
from laneway.web import dashboard
from laneway.web.access import Caller
from laneway.web.documents import Documents
from laneway.web.pages import find
from laneway.web.pages.acts import PAGE_ACTIONS, restored
from laneway.web.pages.errors import errors
from laneway.web.pages.job import job, timeline, trace_lines
from laneway.web.pages.jobs import LIMIT, jobs
from laneway.web.pages.lanes import lane, lanes
from laneway.web.pages.query import FINISHED, Query, parse
from laneway.web.pages.schedules import schedules
from laneway.web.pages.workers import workers
from laneway.web.redact import Redactor
from laneway.web.refused import Refused
from laneway.web.request import WebRequest
from webdesk import Shop, asking

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


# -- the language ------------------------------------------------------------------------------------------------

READ: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("   ", {}),
    ("state:dead", {"state": "dead"}),
    ("STATE:Dead", {"state": "dead"}),
    ("is:dead", {"state": "dead"}),
    ("is:failing", {"failing": True}),
    ("state:failing", {"failing": True}),
    ("state:finished task:add", {"state": "finished", "task": "add"}),
    ("state:dead queue:mail task:shop.send error:Timeout", {
        "state": "dead", "queue": "mail", "task": "shop.send", "error": "Timeout",
    }),
    ('lane:"customer 7"', {"lane": "customer 7"}),
    ('lane:"say \\"hi\\" \\\\"', {"lane": 'say "hi" \\'}),
    ('error:"no money', {"error": "no money"}),  # a quote need not be closed
    ("lane:a:b", {"lane": "a:b"}),
    ("lane:http://x/", {"lane": "http://x/"}),
    ("queue:a queue:b", {"queue": "b"}),
    ("group:3fa9", {"group": "3fa9"}),
    ("args:42 args:ada", {"args": ("42", "ada")}),
    ("ada lovelace", {"words": ("ada", "lovelace")}),
    ('"ada lovelace" state:dead', {"words": ("ada lovelace",), "state": "dead"}),
    ("http://example.com/?a=b", {"words": ("http://example.com/?a=b",)}),
    ("Error:", {}),
    ("x:", {"words": ("x:",)}),
    (":", {"words": (":",)}),
    ('"', {}),
    ("\\", {"words": ("\\",)}),
    ("a\0b\nc", {"words": ("a", "b", "c")}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "means"), READ, ids=[repr(text) for text, _ in READ])
def test_a_query_says_which_jobs_are_meant(text: str, means: dict[str, Any]) -> None:
    assert parse(text).but() == Query(**means)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("stat:dead", 'there is no "stat:". Did you mean "state"? It was left out'),
        ("state:ded", 'Did you mean "dead"?'),
        ("is:nothing", "no job in the store is so"),
        ("queue:", '"queue:" has nothing behind it: write queue:mail'),
        ("x" * 3000, "only the first 2,000 characters were read"),
        (" ".join("abcdefghijklm"), "only the first 10 words are searched for"),
    ],
)
def test_what_cannot_be_meant_is_noted(text: str, note: str) -> None:
    assert note in " ".join(parse(text).notes)


def test_what_is_said_beside_the_box_counts_for_more() -> None:
    query = parse("state:dead queue:mail", {"state": "ready", "lane": 'a "b"'})
    assert query.which == {"state": "ready", "queue": "mail", "lane": 'a "b"'}
    assert str(query) == 'state:ready queue:mail lane:"a \\"b\\""'


@given(st.text(max_size=200))
def test_every_text_is_read_and_written_as_it_was_meant(text: str) -> None:
    query = parse(text).but()
    assert parse(str(query)) == query


VALUES = st.text(st.sampled_from(string.printable[:95] + "äλ🙂"), min_size=1, max_size=20).map(str.strip).filter(bool)


@given(
    st.builds(
        Query, state=st.none() | st.sampled_from((*STATES, FINISHED)), queue=st.none() | VALUES, task=st.none() | VALUES,
        lane=st.none() | VALUES, error=st.none() | VALUES, group=st.none() | VALUES, failing=st.booleans(),
        args=st.lists(VALUES, max_size=3).map(tuple), words=st.lists(VALUES, max_size=3).map(tuple),
    )
)  # fmt: skip
def test_every_query_can_be_written(query: Query) -> None:
    assert parse(str(query)) == query


def test_a_search_looks_for_every_part_and_not_at_case() -> None:
    parts = {"id": "1", "task": "Mail", "args": '"Ada", 42'}
    found = [parse(text).fits(parts) for text in ("mail", "args:ada", "args:mail", "mail 42", "mail 43", "args:ada args:42")]
    assert found == [True, True, False, True, False, True]


# -- asking pages ------------------------------------------------------------------------------------------------


def ask(app: App, path: dict[str, str] | None = None, /, **given: Any) -> WebRequest:
    site = dashboard(app).state.laneway
    return WebRequest(site, Caller("me", "act", "loopback"), path or {}, given)


def rows(page: dict[str, Any]) -> list[str]:
    return [row["id"] for row in page["rows"]]


@pytest.mark.every_store
def test_jobs_are_listed_the_newest_first_and_page_by_page(app: App) -> None:
    shop = Shop(app)
    shop.add.enqueue_many([(n,) for n in range(LIMIT + 3)])
    first = jobs(ask(app))
    second = jobs(ask(app, after=first["next"]))
    listed = [row["args"] for row in first["rows"] + second["rows"]]
    assert listed == [str(n) for n in reversed(range(LIMIT + 3))]
    assert (first["next"] is not None, second["next"]) == (True, None)
    assert first["all"] == {"which": {"all": True}, "number": LIMIT + 3}


def test_tabs_count_states_and_keep_the_rest_of_the_query(app: App) -> None:
    Shop(app).fill()
    page = jobs(ask(app, q="queue:mail state:ready"))
    tabs = {tab["label"]: (tab["count"], tab["q"], tab["here"]) for tab in page["tabs"]}
    assert tabs["scheduled"] == (1, "state:scheduled queue:mail", False)
    assert tabs["ready"] == (1, "state:ready queue:mail", True)
    assert tabs["dead"] == (0, "state:dead queue:mail", False)
    assert tabs["all"] == (2, "queue:mail", False)
    assert jobs(ask(app))["tabs"][6]["count"] == app.inspect.counts()["dead"] == 1


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("state:dead", "dead"), ("error:money", "dead"), ("task:charge error:ValueError", "dead"), ("money", "dead"),
        ("lane:c-1", "dead"), ("state:retrying", "retrying"), ("is:failing", "retrying"), ("state:ready queue:mail", "ready"),
        ("args:ada", "ready"), ("AUTHORIZATION", "ready"), ("args:bob", "scheduled"),
    ],
)  # fmt: skip
def test_a_query_finds_its_job(app: App, query: str, name: str) -> None:
    shop = Shop(app).fill()
    assert rows(jobs(ask(app, q=query))) == [getattr(shop, name)]


def test_a_job_is_found_by_its_id_and_one_that_is_gone_is_hinted_at(app: App) -> None:
    shop = Shop(app).fill()
    assert rows(jobs(ask(app, q=shop.dead))) == [shop.dead]
    assert rows(jobs(ask(app, q=shop.done))) == [shop.done]
    app.inspect.delete(shop.done)
    gone = jobs(ask(app, q=shop.done))
    assert (gone["rows"], gone["id_like"]) == ([], shop.done)


def test_secrets_are_neither_shown_nor_found(app: App) -> None:
    shop = Shop(app).fill()
    page = jobs(ask(app, q="task:login"))
    assert "hunter2" not in str(page)
    assert rows(jobs(ask(app, q="args:hunter2"))) == []
    assert "hunter2" not in str(job(ask(app, {"id": shop.ready}))["arguments"])


def test_arguments_are_searched_within_the_budget_and_on_from_there(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "BUDGET", 20)
    monkeypatch.setattr(find, "PORTION", 10)
    monkeypatch.setattr(find, "PATIENCE", 60.0)
    shop = Shop(app)
    shop.login.enqueue_many([("ada" if n == 5 else f"u{n}", "p") for n in range(50)])
    first = jobs(ask(app, q="args:ada"))
    second = jobs(ask(app, q="args:ada", after=first["next"]))
    third = jobs(ask(app, q="args:ada", after=second["next"]))
    assert [(page["looked"], page["tired"], len(page["rows"])) for page in (first, second, third)] == [
        (20, True, 0), (20, True, 0), (10, False, 1),
    ]  # fmt: skip
    assert first["all"] is None


LEAF = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    LEAF | st.text('aB1-_@. ä\\"', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aB1_", max_size=4), inner, max_size=3),
    max_leaves=8,
)
NAMED = st.dictionaries(st.sampled_from(["a", "password", "B1"]), PLAIN)


@given(st.lists(PLAIN, max_size=3), NAMED, st.text("aB1-_@.redct", max_size=4))
def test_who_is_not_worth_a_close_look_does_not_fit(args: list[Any], kwargs: dict[str, Any], needle: str) -> None:
    found = msgspec.convert(
        {
            "id": "x", "task": "t", "queue": "q", "lane": None, "priority": 0, "state": "ready", "attempt": 0, "worker": None,
            "token": None, "mark": None, "errors": [], "body": b"", "enqueued_at": NOON, "place_at": NOON, "due_at": NOON,
        },
        JobInfo,
    )  # fmt: skip
    found = msgspec.structs.replace(found, body=msgspec.json.encode((args, kwargs)))
    shown = find.parts_of(found, Documents(App("sqlite://"), Redactor(["password"])))
    for query in (Query(args=(needle,)), Query(words=(needle,))):
        assert find.may_fit(found, query) or not query.fits(shown)


def test_a_full_page_of_a_search_goes_on_behind_its_last_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.web.pages.jobs.LIMIT", 3)
    shop = Shop(app)
    shop.login.enqueue_many([(f"u{n}", "p") for n in range(8)])
    seen: list[str] = []
    after = None
    while True:
        page = jobs(ask(app, q="args:u", **({"after": after} if after else {})))
        seen += [row["args"].split(",")[0] for row in page["rows"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [f'"u{n}"' for n in reversed(range(8))]


@pytest.mark.every_store
def test_a_list_whose_place_is_gone_begins_again_and_says_so(app: App) -> None:
    shop = Shop(app).fill()
    app.inspect.delete(shop.ready)
    page = jobs(ask(app, q="args:bob", after=shop.ready))
    assert (rows(page), page["moved"]) == ([shop.scheduled], True)


def test_all_that_match_are_offered_only_if_the_query_was_understood(app: App) -> None:
    shop = Shop(app)
    shop.add.enqueue_many([(n,) for n in range(LIMIT + 1)])
    offered = {text: jobs(ask(app, q=text))["all"] for text in ("state:ready", "task:add", "stat:ready", "add", "queue:nowhere")}
    assert offered == {
        "state:ready": {"which": {"state": "ready"}, "number": LIMIT + 1},
        "task:add": {"which": {"task": "add"}, "number": None},
        "stat:ready": None, "add": None, "queue:nowhere": None,
    }  # fmt: skip


@pytest.mark.every_store
def test_finished_runs_are_listed_as_far_as_the_store_remembers(app: App) -> None:
    shop = Shop(app).fill()
    page = jobs(ask(app, q="state:finished task:add"))
    assert [(run["id"], run["outcome"]) for run in page["runs"]] == [(shop.done, "done")]
    assert page["all"] is None


# -- one job -----------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_a_dead_job_shows_what_happened_and_what_can_be_done(app: App) -> None:
    shop = Shop(app).fill()
    page = job(ask(app, {"id": shop.dead}))
    assert [event["word"] for event in page["timeline"]] == ["enqueued", "attempt 1 failed", "gave up"]
    assert (page["errors"][0]["kind"], page["errors"][0]["message"]) == ("ValueError", "no money")
    assert page["arguments"] == [{"name": "customer", "value": "c-1"}]
    assert page["verbs"] == ["retry", "delete"]
    assert page["edit"] == {"args": ["c-1"], "kwargs": {}, "hides": False, "replaces": True}
    assert page["reasons"][0].startswith("it gave up")


@pytest.mark.every_store
def test_a_job_that_has_finished_shows_its_run_and_result(app: App) -> None:
    shop = Shop(app).fill()
    page = job(ask(app, {"id": shop.done}))
    assert (page["gone"], page["job"].state, page["result"]) == (False, "done", {"sum": 3, "token": "[redacted]"})
    assert [event["word"] for event in page["timeline"]] == ["enqueued", "started", "done"]
    assert page["verbs"] == ["delete"]
    app.inspect.delete(shop.done)
    page = job(ask(app, {"id": shop.done}))
    assert (page["gone"], page["state"], page["has_result"]) == (True, "done", False)
    assert [event["word"] for event in page["timeline"]] == ["enqueued", "started", "done"]


@pytest.mark.every_store
@pytest.mark.parametrize("id_", ["never-was", "<script>", "x" * 200, ""])
def test_a_job_that_nobody_knows_is_not_found(app: App, id_: str) -> None:
    with pytest.raises(UnknownJob):
        job(ask(app, {"id": id_}))


def test_a_timeline_says_that_earlier_attempts_are_not_kept(app: App) -> None:
    shop = Shop(app).fill()
    found = app.inspect.job(shop.retrying)
    assert found is not None
    errors_kept = [ErrorInfo("E", "m", "", 1_000_000 * n, n) for n in range(3, 13)]
    events = timeline(msgspec.structs.replace(found, attempt=12, errors=errors_kept), None)
    assert [event["word"] for event in events][:3] == ["enqueued", "2 earlier attempts", "attempt 3 failed"]
    assert (events[-1]["word"], events[-1]["at"]) == ("attempt 13 is due", found.due_at)


def test_a_job_that_somebody_killed_was_not_an_attempt(app: App) -> None:
    shop = Shop(app).fill()
    app.inspect.kill(shop.retrying)
    events = [event["word"] for event in job(ask(app, {"id": shop.retrying}))["timeline"]]
    assert events == ["enqueued", "attempt 1 failed", "killed by hand", "gave up"]


@pytest.mark.every_store
def test_a_lost_worker_is_no_failed_attempt(app: App) -> None:
    handle = app.enqueue("send", check=False)
    app.store.exchange("w", [], [ClaimRequest("default", 1)], 1)
    app.store.recover("w", "its worker ended with signal SIGKILL")
    events = job(ask(app, {"id": handle.id}))["timeline"]
    assert [event["word"] for event in events] == ["enqueued", "its worker was lost", "due, waits for a slot"]
    assert events[1]["detail"] == "its worker ended with signal SIGKILL; no attempt counts"


def test_a_traceback_is_shown_whole_and_other_peoples_code_is_marked() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/json/__init__.py", line 1, in loads\n    x\n'
        '  File "/app/shop.py", line 7, in charge\n    y\nValueError: <b>no</b>\n'
    )
    lines = trace_lines(text)
    assert "\n".join(line["text"] for line in lines) == text.rstrip()
    assert [line["foreign"] for line in lines] == [False, True, True, False, False, False]


# -- the others --------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_errors_are_grouped_and_lead_to_their_jobs(app: App) -> None:
    shop = Shop(app).fill()
    page = errors(ask(app))
    groups = {group["kind"]: group for group in page["groups"]}
    assert {kind: group["count"] for kind, group in groups.items()} == {"ValueError": 1, "TimeoutError": 1}
    assert rows(jobs(ask(app, q=groups["ValueError"]["dead"]))) == [shop.dead]
    assert rows(jobs(ask(app, q=groups["TimeoutError"]["retrying"]))) == [shop.retrying]
    assert [group["kind"] for group in errors(ask(app, q="money"))["groups"]] == ["ValueError"]
    assert len(errors(ask(app, **{"in": "1h"}))["groups"]) == 2
    with pytest.raises(Refused, match="1h, 3h"):
        errors(ask(app, **{"in": "never"}))


@pytest.mark.every_store
def test_lanes_are_listed_in_an_order_and_found_by_name(app: App) -> None:
    Shop(app).fill()
    listed = {(row["queue"], row["lane"]): row["size"] for row in lanes(ask(app))["rows"]}
    assert listed == {("billing", "c-2"): 3, ("sync", "o/1 ?"): 2}
    assert [row["lane"] for row in lanes(ask(app, order="size"))["rows"]] == ["c-2", "o/1 ?"]
    assert [row["lane"] for row in lanes(ask(app, lane="o/1 ?"))["rows"]] == ["o/1 ?"]
    assert lanes(ask(app, lane="x" * 600))["rows"] == []
    assert lanes(ask(app, order="nonsense"))["order"] == "lag"


@pytest.mark.every_store
def test_a_collectors_lane_shows_its_payloads_without_secrets(app: App) -> None:
    Shop(app).fill()
    page = lane(ask(app, queue="sync", lane="o/1 ?"))
    assert [payload["text"] for payload in page["payloads"]] == [
        '{"api_key":"[redacted]","total":1}', '{"card":"[redacted]","total":2}',
    ]  # fmt: skip
    assert [payload["score"] for payload in page["payloads"]] == ["1", "2"]
    assert page["lane"]["can_run"]


@pytest.mark.every_store
def test_a_lane_of_jobs_shows_them_in_order_and_one_with_only_dead_ones_too(app: App) -> None:
    shop = Shop(app).fill()
    page = lane(ask(app, queue="billing", lane="c-2"))
    assert [row["state"] for row in page["jobs"]] == ["scheduled"] * 3
    only_dead = lane(ask(app, queue="billing", lane="c-1"))
    assert ([row["id"] for row in only_dead["jobs"]], only_dead["lane"]["state"]) == ([shop.dead], "idle")
    with pytest.raises(UnknownLane):
        lane(ask(app, queue="billing", lane="nobody"))


@pytest.mark.every_store
def test_workers_show_slots_and_what_was_learned(app: App) -> None:
    app.store.beat([WorkerInfo("w-1", host="h", pid=7, slots=4, queues=("mail",), tasks=("add",))])
    page = workers(ask(app))
    assert [(one["id"], one["slots"], one["busy"], one["free"], one["queues"]) for one in page["workers"]] == [
        ("w-1", 4, 0, 4, ["mail"])
    ]
    assert page["slots"] == 4


@pytest.mark.every_store
def test_schedules_show_when_they_run_next_and_how_they_ran(app: App) -> None:
    shop = Shop(app)
    app.inspect.run_schedule("nightly")
    shop.work()
    app.inspect.pause_schedule("nightly", by="ada")
    row = schedules(ask(app))["schedules"][0]
    assert (row["task"], row["paused"], row["paused_by"], row["outcome"], row["marks"]) == (
        "nightly",
        True,
        "ada",
        "done",
        ["done"],
    )
    assert row["next_at"] > as_datetime(app.store.schedules().now) - timedelta(seconds=5)


def test_schedules_in_the_store_are_shown_with_their_calls_and_their_trouble(app: App) -> None:
    shop = Shop(app)
    app.inspect.set_schedule("kept", shop.login.bind("ada", "hunter2"), "@hourly", by="eve")
    app.store_inspect.set_schedule("evil", b"{}")
    rows = {row["name"]: row for row in schedules(ask(app))["schedules"]}
    assert [*rows][-1] == "evil"
    assert (rows["kept"]["call"], rows["kept"]["stored"], rows["kept"]["set_by"]) == ('login("ada", "[redacted]")', True, "eve")
    assert (rows["evil"]["readable"], "cannot be read" in rows["evil"]["trouble"]) == (False, True)
    assert (rows["nightly"]["call"], rows["nightly"]["stored"]) == ("nightly()", False)


@pytest.mark.parametrize("page", [jobs, errors, lanes, workers, schedules])
def test_an_empty_store_has_every_page(app: App, page: Any) -> None:
    assert page(ask(app))


# -- what pages do -----------------------------------------------------------------------------------------------

ANSWERS = {endpoint.path: endpoint.answer for endpoint in PAGE_ACTIONS}


@pytest.mark.every_store
def test_a_dead_job_is_tried_again_with_other_arguments_and_takes_its_place(app: App) -> None:
    shop = Shop(app).fill()
    done: Any = ANSWERS["/api/v1/jobs/{id}/again"](ask(app, {"id": shop.dead}, args=["c-9"]))
    new = app.inspect.job(done["id"])
    assert new is not None
    assert (new.args, new.lane, new.queue, done["replaced"]) == (["c-9"], "c-9", "billing", True)
    assert app.inspect.job(shop.dead) is None


def test_what_was_hidden_stays_as_it_was(app: App) -> None:
    shop = Shop(app).fill()
    shown = job(ask(app, {"id": shop.ready}))["edit"]
    assert shown["hides"]
    sent = {"args": ["eve", *shown["args"][1:]], "kwargs": shown["kwargs"]}
    done: Any = ANSWERS["/api/v1/jobs/{id}/again"](ask(app, {"id": shop.ready}, **sent))
    new = app.inspect.job(done["id"])
    assert new is not None
    assert (new.args, new.kwargs) == (["eve", "hunter2"], {"headers": {"Authorization": "Bearer x", "Accept": "y"}})
    assert (done["replaced"], app.inspect.job(shop.ready) is not None) == (False, True)  # it had not failed


@pytest.mark.parametrize("body", [{"args": "x"}, {"kwargs": []}, {"args": None}])
def test_arguments_that_are_none_are_refused(app: App, body: dict[str, Any]) -> None:
    shop = Shop(app).fill()
    with pytest.raises(Refused, match="use a list"):
        ANSWERS["/api/v1/jobs/{id}/again"](ask(app, {"id": shop.dead}, **body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
)  # fmt: skip


@given(JSON, JSON)
def test_nothing_but_what_was_hidden_is_restored(sent: Any, before: Any) -> None:
    assert restored(sent, before) == sent


@pytest.mark.every_store
@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_a_group_of_failures_is_acted_on_and_nobody_else(app: App, verb: str) -> None:
    @app.task(name="other", retry=Retry(times=0))
    def other(n: int) -> None:
        raise ValueError(f"another one: {n}")

    shop = Shop(app).fill()
    for n in range(3):
        other.enqueue(n)
    Worker(app, 2).run(burst=True)
    group = next(one for one in app.stats.errors() if one.task == "other")
    asked = ask(app, {"id": group.id}, dry_run=True)
    answer = ANSWERS[f"/api/v1/stats/errors/{{id}}/{verb}"]
    assert answer(asked) == {"matched": 3, "at_least": False, "changed": 0, "dry_run": True}
    started: Any = answer(WebRequest(asked.site, asked.caller, asked.path, {}))
    operation = asked.site.operations.find(started.document["id"])
    assert operation.finished.wait(20)
    assert (operation.state, operation.changed) == ("done", 3)
    assert [one.id for one in app.inspect.jobs("dead")] == [shop.dead]
    assert app.inspect.count("ready", task="other") == (3 if verb == "retry" else 0)


def test_a_group_that_nobody_knows_is_not_acted_on(app: App) -> None:
    with pytest.raises(Refused, match="no failures"):
        ANSWERS["/api/v1/stats/errors/{id}/retry"](ask(app, {"id": "none"}))


# -- as HTML -----------------------------------------------------------------------------------------------------

LISTS = [
    "jobs",
    "jobs?q=state:dead",
    "jobs?q=state:finished",
    "jobs?q=args:nothing",
    "jobs?q=stat:x",
    "errors",
    "errors?q=nothing",
    "lanes",
    "lanes?order=-size&queue=sync",
    "lanes?lane=nobody",
    "lane?queue=sync&lane=o/1 ?",
    "lane?queue=billing&lane=c-2",
    "lane?queue=billing&lane=c-1",
    "workers",
    "schedules",
    "jobs/{dead}",
    "jobs/{done}",
    "jobs/{retrying}",
    "jobs/{ready}",
    "jobs/{scheduled}",
]


def html(app: App, path: str, shop: Shop, **options: Any) -> str:
    with asking(dashboard(app, **options)) as client:
        answer = client.ask("GET", "/" + path.format(**vars(shop)))
    assert answer.status_code == 200, answer.text[:500]
    return answer.text


@pytest.mark.parametrize("path", LISTS)
def test_a_page_has_no_style_and_no_script_in_it_and_every_control_has_a_name(app: App, path: str) -> None:
    page = html(app, path, Shop(app).fill())
    assert re.findall(r"<[^>]+\s(?:style|on[a-z]+)=", page) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert page.count("<h1") == 1
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    main = page.split("<main", 1)[1].split("</main>", 1)[0]
    for box in re.findall(r"<(?:input|select|textarea|meter|progress)\b[^>]*>", main):
        named = 'type="hidden"' in box or "aria-label" in box or 'id="q"' in box
        assert named or re.search(r"<label[^>]*>(?:(?!</label>).)*" + re.escape(box), main, re.DOTALL), box


@pytest.mark.parametrize("path", LISTS)
def test_who_may_not_act_sees_the_same_without_buttons_that_act(app: App, path: str) -> None:
    page = html(app, path, Shop(app).fill(), read_only=True)
    main = page.split("<main", 1)[1]
    assert "data-action" not in main
    assert "data-verb" not in main
    assert "data-pick" not in main


def test_links_begin_where_the_dashboard_is_mounted(app: App) -> None:
    shop = Shop(app).fill()
    outer = Starlette(routes=[Mount("/ops/jobs", dashboard(app))])
    with asking(outer) as client:
        for path in LISTS:
            page = client.ask("GET", "/ops/jobs/" + path.format(**vars(shop))).text
            addresses = re.findall(r'\s(?:href|src|action|data-then)="([^"#][^"]*)"', page)
            assert addresses
            assert [one for one in addresses if not one.startswith("/ops/jobs/")] == []


# -- hostile names -----------------------------------------------------------------------------------------------

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e {{ 7*7 }} ' & \\"


@pytest.fixture
def hostile(app: App) -> dict[str, str]:
    @app.task(name=HOSTILE.replace("\u202e", "").replace(" ", "_"), retry=Retry(times=0))
    def bad(text: str, **more: str) -> None:
        raise ValueError(text)

    dead = bad.using(lane=HOSTILE.replace("\u202e", "")).enqueue(HOSTILE, **{HOSTILE: HOSTILE}).id
    Worker(app, 1).run(burst=True)
    waiting = bad.using(lane=HOSTILE.replace("\u202e", ""), run_after=3600).enqueue(HOSTILE).id
    return {"dead": dead, "waiting": waiting}


PATHS = ["jobs", "jobs?q=state:dead", "errors", "lanes", "workers", "schedules", "jobs/{dead}", "jobs/{waiting}",
         "jobs?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "jobs?state=finished", "errors?q=%3Cscript%3E"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_hostile_names_stay_text(app: App, hostile: dict[str, str], path: str) -> None:
    with asking(dashboard(app)) as client:
        answer = client.ask("GET", "/" + path.format(**hostile))
    assert answer.status_code == 200, answer.text[:500]
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text
    assert re.findall(r"<[^>\"]*\sonerror=", answer.text) == []
