"""What the API shows, each look on every store: the same as the command line, in pages, without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clidesk import runner
from laneway import App
from laneway.cli import laneway
from laneway.errors import StoreUnavailable
from laneway.web import dashboard
from laneway.web.app import ENDPOINTS
from laneway.web.endpoint import Endpoint
from laneway.web.redact import Redactor
from webdesk import LOOKS, Shop, asking, visiting


@pytest.mark.every_store
@pytest.mark.parametrize("endpoint", LOOKS, ids=lambda one: one.path)
def test_every_look_answers(app: App, endpoint: Endpoint) -> None:
    shop = Shop(app).fill()
    with visiting(app, health_stall=1e6) as client:
        if endpoint.path.endswith("operations/{id}"):
            made = client.operation("/api/v1/queues/mail/clear")
            assert client.get(f"/api/v1/operations/{made['id']}")["state"] == "done"
            return
        query = (
            {"queue": "sync", "lane": "o/1 ?"} if endpoint.path.startswith("/api/v1/lane") and "lane" in endpoint.takes else {}
        )
        if endpoint.path == "/api/v1/plan":
            query = {"rate": "10", "seconds": "0.5"}
        answer = client.ask("GET", shop.path(endpoint), params=query)
    assert answer.status_code == 200, answer.text
    assert answer.text
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.every_store
def test_jobs_are_listed_in_pages_with_filters(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        first = client.get("/api/v1/jobs", limit=3)
        rest = client.get("/api/v1/jobs", limit=1000, after=first["next"])
        newest = client.get("/api/v1/jobs", limit=1, newest="true")
        dead = client.get("/api/v1/jobs", state="dead", queue="billing", task="charge", error="no money")
        failing = client.get("/api/v1/jobs", failing="1")
        lane = client.get("/api/v1/jobs", lane="c-2")
    ids = [job["id"] for job in [*first["jobs"], *rest["jobs"]]]
    assert (ids, rest["next"]) == ([job.id for job in app.inspect.jobs()], None)
    assert newest["jobs"][0]["id"] == ids[-1]
    assert [job["id"] for job in dead["jobs"]] == [shop.dead]
    assert [job["id"] for job in failing["jobs"]] == [shop.retrying]
    assert len(lane["jobs"]) == 3


@pytest.mark.parametrize(
    ("query", "number"),
    [({}, 8), ({"state": "dead"}, 1), ({"queue": "mail"}, 2), ({"task": "login"}, 2), ({"failing": "true"}, 1)],
)
def test_jobs_are_counted(app: App, query: dict[str, str], number: int) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        assert client.get("/api/v1/count", **query) == {"count": number, "at_least": False}


def test_where_many_match_it_is_said_how_many_there_are_at_least(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Shop(app).fill()
    monkeypatch.setattr("laneway.web.api.MOST_COUNTED", 1)
    with visiting(app) as client:
        assert client.get("/api/v1/count", task="login") == {"count": 1, "at_least": True}
        assert client.get("/api/v1/count", state="dead", task="charge") == {"count": 1, "at_least": False}


def test_a_job_is_shown_with_its_errors_and_reasons_and_one_that_has_finished_with_its_result(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        dead = client.get(f"/api/v1/jobs/{shop.dead}")
        done = client.get(f"/api/v1/jobs/{shop.done}")
        explained = client.get(f"/api/v1/jobs/{shop.dead}/explain")
    assert (dead["state"], dead["errors"][0]["kind"]) == ("dead", "ValueError")
    assert dead["reasons"][1:] == explained["reasons"][1:] == ["replay it with: retry"]
    assert (done["outcome"], done["result"]) == ("done", {"sum": 3, "token": "[redacted]"})


def test_secrets_are_hidden_at_any_depth_and_by_the_names_of_parameters(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        job = client.get(f"/api/v1/jobs/{shop.ready}")
        listed = client.get("/api/v1/jobs", queue="mail")
        payloads = client.get("/api/v1/lane/payloads", queue="sync", lane="o/1 ?")["payloads"]
    assert (job["args"], job["kwargs"]["headers"]["Authorization"]) == (["ada", "[redacted]"], "[redacted]")
    assert job["kwargs"]["headers"]["Accept"] == "y"
    assert "hunter" not in json.dumps(listed)
    assert [payload["payload"] for payload in payloads] == [
        {"api_key": "[redacted]", "total": 1}, {"card": "[redacted]", "total": 2},
    ]  # fmt: skip


def test_which_words_are_secret_is_a_setting(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app, redact=("user",)) as client:
        assert client.get(f"/api/v1/jobs/{shop.ready}")["args"] == ["[redacted]", "hunter2"]


@pytest.mark.every_store
def test_payloads_and_lanes_have_pages_too(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        first = client.get("/api/v1/lanes", order="name", limit=1)
        second = client.get("/api/v1/lanes", order="name", limit=1, after=first["next"])
        one = client.get("/api/v1/lane/payloads", queue="sync", lane="o/1 ?", limit=1)
        two = client.get("/api/v1/lane/payloads", queue="sync", lane="o/1 ?", limit=1, after=one["next"])
        lane = client.get("/api/v1/lane", queue="sync", lane="o/1 ?")
    assert [first["lanes"][0]["lane"], second["lanes"][0]["lane"], second["next"]] == ["c-2", "o/1 ?", None]
    assert [one["payloads"][0]["score"], two["payloads"][0]["score"]] == [1, 2]
    assert (lane["size"], len(lane["reasons"]) > 0) == (2, True)


@pytest.mark.every_store
def test_figures_have_length_dead_and_lag_of_each_queue_and_in_total(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        stats = client.get("/api/v1/stats")
    queues = {queue["name"]: queue for queue in stats["queues"]}
    assert (stats["length"], stats["dead"]) == (7, 1)
    assert (queues["mail"]["length"], queues["mail"]["dead"], queues["billing"]["dead"]) == (2, 0, 1)
    assert stats["lag"] == queues["mail"]["lag"] > 0
    assert (queues["billing"]["lag"], queues["sync"]["lag"]) == (0, 0)
    assert stats["counts"] == {"scheduled": 5, "ready": 1, "retrying": 1, "blocked": 0, "running": 0, "dead": 1}
    assert stats["workers"] == {"count": 1, "slots": 4, "busy": 0, "memory": 0}


@pytest.mark.every_store
def test_statistics_over_time(app: App) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        assert sum(point["enqueued"] for point in client.get("/api/v1/stats/series", seconds=60)["series"]) == 10
        by_queue = client.get("/api/v1/stats/series", seconds=60, by="queue")["series"]
        assert sum(point["enqueued"] for point in by_queue["mail"]) == 2
        assert set(client.get("/api/v1/stats/history", days=2, by="task")["history"]) >= {"add", "login"}
        assert client.get("/api/v1/stats/history", days=2)["history"][-1]["enqueued"] == 10
        kinds = {group["kind"] for group in client.get("/api/v1/stats/errors")["errors"]}
        assert kinds == {"ValueError", "TimeoutError"}
        assert set(client.get("/api/v1/stats/learned")) == {"kinds", "learned"}
        assert {task["name"]: task["processed"] for task in client.get("/api/v1/stats/tasks")["tasks"]}["add"] == 1


@pytest.mark.every_store
@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/api/v1/jobs", {"state": "deid"}, 422, 'Did you mean "dead"'),
        ("/api/v1/jobs", {"stat": "dead"}, 422, 'Did you mean "state"'),
        ("/api/v1/jobs", {"limit": "0"}, 422, "from 1 to 1,000"),
        ("/api/v1/jobs", {"after": "seq:x"}, 422, "next of the page"),
        ("/api/v1/lanes", {"after": f'[{2**63},"sync","a",1]'}, 422, "next of the page"),
        ("/api/v1/lanes", {"after": "[}"}, 422, "next of the page"),
        ("/api/v1/jobs", {"after": "nobody"}, 404, "page.next"),
        ("/api/v1/jobs", {"failing": "perhaps"}, 422, "true or false"),
        ("/api/v1/jobs/nobody", {}, 404, "never was"),
        ("/api/v1/jobs/no%20id", {}, 404, "is not an id"),
        ("/api/v1/queues/nowhere", {}, 404, "no queue"),
        ("/api/v1/lane", {"queue": "sync"}, 422, "lane"),
        ("/api/v1/lane", {"queue": "sync", "lane": "nobody"}, 404, "nothing waits"),
        ("/api/v1/lanes", {"order": "siz"}, 422, 'Did you mean "size"'),
        ("/api/v1/stats/series", {"seconds": "99999"}, 422, "1,100"),
        ("/api/v1/stats/series", {"by": "lane"}, 422, "task or queue"),
        ("/api/v1/plan", {"rate": "-1"}, 422, "rate"),
        ("/api/v1/operations/nobody", {}, 404, "no operation"),
        ("/api/v1/nothing", {}, 404, "nothing at this address"),
    ],
)
def test_a_mistake_is_told_in_one_line(app: App, path: str, query: dict[str, str], status: int, says: str) -> None:
    Shop(app)
    with visiting(app) as client:
        error = client.get(path, status, **query)["error"]
    assert (says in error["message"], "\n" in error["message"], bool(error["kind"])) == (True, False, True)


def test_a_wrong_method_is_told(app: App) -> None:
    with visiting(app) as client:
        answer = client.ask("PUT", "/api/v1/jobs")
        assert (answer.status_code, answer.json()["error"]["kind"]) == (405, "wrong_method")
        assert client.ask("GET", "/api/v1/jobs/x/retry").status_code == 405
        assert client.ask("DELETE", "/api/v1/jobs/x").status_code == 405


def test_a_store_that_is_away_is_a_503(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    Shop(app)

    def away() -> Any:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(app.inspect, "queues", away)
    with visiting(app) as client:
        assert client.get("/api/v1/queues", 503)["error"] == {"kind": "store_unavailable", "message": "the store is away"}
        assert client.get("/api/v1/stats", 503)["error"]["kind"] == "store_unavailable"
        assert client.get("/healthz", 503)["reasons"] == ["the store cannot be used: the store is away"]
        assert client.ask("GET", "/metrics").text.splitlines()[-1] == "laneway_up 0"


@pytest.mark.every_store
def test_the_names_are_those_of_the_command_line(app: App) -> None:
    if app.url == "sqlite://":
        pytest.skip("no other process can look at it")
    shop = Shop(app).fill()

    def printed(*words: str) -> Any:
        return json.loads(runner().invoke(laneway, [*words, "--json", "--store", app.url]).stdout)

    with visiting(app) as client:
        for listed, words in (("jobs", ("jobs", "list")), ("queues", ("queues", "list")), ("workers", ("workers", "list"))):
            (ours, *_), (theirs, *_) = client.get(f"/api/v1/{listed}")[listed], printed(*words)
            assert set(theirs) <= set(ours), listed
        assert set(client.get(f"/api/v1/jobs/{shop.dead}")) == set(printed("jobs", "show", shop.dead))
        assert set(client.get("/api/v1/lanes")["lanes"][0]) == set(printed("lanes", "list")[0])
        assert set(printed("plan", "--rate", "9", "--seconds", "1")) == set(client.get("/api/v1/plan", rate=9, seconds=1))


def test_it_works_under_any_prefix_and_closes_nothing(app: App) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    Shop(app).fill()
    host = Starlette(routes=[Mount("/deep/jobs", dashboard(app))])
    with asking(host) as client:
        assert client.get("/deep/jobs/api/v1/counts")["dead"] == 1
        answer = client.ask("POST", "/deep/jobs/api/v1/queues/mail/clear", json={})
        assert client.get(answer.headers["location"])["action"] == "queue.clear"
    assert app.inspect.counts()["dead"] == 1


def test_every_path_is_there_once() -> None:
    assert len({(one.method, one.path) for one in ENDPOINTS}) == len(ENDPOINTS)
    assert all((one.method == "GET") == (not one.action) for one in ENDPOINTS)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("password", True), ("userPassword", True), ("PASSWD", True), ("x-api-key", True), ("apiKey", True),
        ("card_number", True), ("cards", True), ("Set-Cookie", True), ("access_token", True), ("cvv", True),
        ("cardinality", False),
        ("discard", False), ("pinned", False), ("spin", False), ("user", False), ("author", False), ("", False),
    ],
)  # fmt: skip
def test_keys_that_look_like_secrets(key: str, secret: bool) -> None:
    from laneway.settings import REDACTED  # noqa: PLC0415

    assert Redactor(REDACTED).secret(key) is secret


def test_pairs_are_hidden_however_they_are_written() -> None:
    hide = Redactor(("token",)).value
    assert hide([["token", "x"], ["user", "y"]]) == [["token", "[redacted]"], ["user", "y"]]
    assert hide({"name": "token", "value": "x"}) == {"name": "token", "value": "[redacted]"}
    assert hide([[[{"a": {"token": [1]}}]]]) == [[[{"a": {"token": "[redacted]"}}]]]
