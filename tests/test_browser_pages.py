"""Every page in a browser: what it shows is what the store says, for everybody, on any screen, with keys and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.sync_api import Browser, HttpCredentials, Locator, expect

from browser import PHONE, WIDE, Desk, Tab, open_tab
from laneway.web import dashboard
from laneway.web.pages.filters import short
from webdesk import serving
from workbench import until

pytest_plugins = ("browser_fixtures",)

#: For what has nothing to do with the store.
on_one_store = pytest.mark.parametrize("desk", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class Filled:
    """What a desk has: at least one of everything, and nothing that moves."""

    dead: str
    retrying: str
    running: str
    done: str

    def address(self, name: str) -> str:
        """Return the address of a page by its name."""
        more = {"job": f"/jobs/{self.dead}", "running": f"/jobs/{self.running}", "done": f"/jobs/{self.done}"}
        return more.get(name) or ADDRESSES[name]


ADDRESSES = {
    "overview": "/", "jobs": "/jobs", "finished": "/jobs?state=finished", "errors": "/errors", "lanes": "/lanes",
    "lane": "/lane?queue=sync&lane=customer%207", "workers": "/workers", "schedules": "/schedules", "history": "/history",
    "not found": "/nowhere",
}  # fmt: skip
NAMES = ["overview", "jobs", "finished", "job", "running", "done", "errors", "lanes", "lane", "workers", "schedules", "history"]


@pytest.fixture(scope="module")
def filled(desk: Desk) -> Iterator[Filled]:
    tasks, look = desk.tasks, desk.app.inspect
    done = tasks.add.enqueue(1, 2).id
    retrying = tasks.flaky.enqueue("db").id
    dead, *_ = [tasks.charge.enqueue(f"customer {n}", str(desk.folder / "never")).id for n in range(3)]
    tasks.mail.enqueue_many([("ada", f"hello {n}") for n in range(60)])
    tasks.mail.using(run_after=3600, lane="x").enqueue("bob")
    for n in range(2):
        tasks.sync.using(run_after=3600).enqueue("customer 7", {"n": n})
    running = tasks.hold.enqueue(str(desk.gate())).id
    until(lambda: (look.counts()["dead"], look.counts()["retrying"], look.counts()["running"]) == (3, 1, 1), "a filled store")
    until(lambda: desk.state(done) == "done" and len(desk.app.stats.errors()) == 2, "what the fleet tells")
    until(lambda: look.workers()[0].jobs and desk.app.stats.totals()["processed"] == 1, "what the worker tells")
    yield Filled(dead, retrying, running, done)
    desk.sweep()


def texts(found: Locator) -> list[str]:
    """Return what elements say, spaces in one way."""
    return [" ".join(text.split()) for text in found.all_inner_texts()]


# -- what is shown -----------------------------------------------------------------------------------------------


def test_the_overview_shows_queues_failures_and_slots(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open()  # the first of all: a minute later it would say that nobody serves the queue of these mails
    shown = {cells[0].split()[0]: cells[1:4] for cells in rows(tab.page.locator("#queues tbody tr"))}
    waiting = ("scheduled", "ready", "retrying", "blocked")
    stored = {
        queue.name: [str(sum(queue.counts[state] for state in waiting)), str(queue.counts["running"]), str(queue.counts["dead"])]
        for queue in desk.app.inspect.queues()
    }
    assert shown == stored
    failures = {cells[0].split()[0]: cells[1] for cells in rows(tab.page.locator("#last-errors tbody tr"))}
    assert failures == {group.kind: f"{group.count} ×" for group in desk.app.stats.errors()}
    expect(tab.page.locator("#store .meter")).to_have_text("1 of 4")
    expect(tab.page.locator("#health")).to_contain_text("1 worker, 1 of 4 slots busy.")


@pytest.mark.parametrize("name", [*NAMES, "not found"])
def test_every_page_shows_the_counters_and_where_one_is_and_everybody_can_use_it_in_light_and_dark(
    desk: Desk, filled: Filled, tab: Tab, name: str
) -> None:
    if name == "not found":
        tab.ear.forgive("404")
        tab.page.goto(tab.url + filled.address(name))
    else:
        tab.open(filled.address(name))
        shows_the_counters_and_where_one_is(desk, tab, name)
        tab.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
    tab.page.evaluate(AXE_SCRIPT)
    for scheme, rules in CHECKED.items():
        tab.page.emulate_media(color_scheme=scheme)
        found = tab.page.evaluate(CHECK, rules)
        assert not found, f"in {scheme}: {found}"


def shows_the_counters_and_where_one_is(desk: Desk, tab: Tab, name: str) -> None:
    tab.shows(desk.counters())
    expect(tab.page.get_by_role("heading", level=1)).to_have_count(1)
    here = tab.page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")
    expect(here).to_have_text({"overview": "Overview"}.get(name) or re.compile("^(Jobs|Errors|Lanes|Workers|Schedules|History)$"))
    for size in (PHONE, WIDE):
        tab.page.set_viewport_size(size)
        assert tab.overflow() == 0, f"{name} is wider than {size}"


#: Rows of a table are alike: the first ones stand for all of them.
CHECK = """async (rules) => (await axe.run({ exclude: ["tbody tr:nth-child(n+7)"] }, { runOnly: rules })).violations.flatMap(
    ({ id, help, nodes }) => nodes.map(({ target, failureSummary }) => `${id} (${help}): ${target} ${failureSummary}`))"""
#: In the dark it is the same page in other colours: so of all rules those about colours.
CHECKED: dict[Literal["light", "dark"], dict[str, Any]] = {
    "light": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
    "dark": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}


def rows(found: Locator) -> list[list[str]]:
    """Return the cells of a table's rows."""
    return [texts(row.locator("th, td")) for row in found.all()]


def test_the_list_of_jobs_shows_them_page_by_page(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open("/jobs")
    counts = desk.app.inspect.counts()
    tabs = [text.split() for text in texts(tab.page.get_by_role("navigation", name="States").get_by_role("link"))]
    assert {words[0]: words[1:] for words in tabs} == {
        "all": [str(sum(counts.values()))], **{state: [str(number)] for state, number in counts.items()}, "done": [],
        "cancelled": [], "last": ["runs"],
    }  # fmt: skip
    ids = [job.id for job in desk.app.inspect.jobs(newest=True, limit=100)]
    listed = [row.get_attribute("data-id") for row in tab.page.locator("tr[data-id]").all()]
    tab.page.get_by_role("link", name="Next page").click()
    expect(tab.page.locator("tr[data-id]")).to_have_count(len(ids) - 50)
    listed += [row.get_attribute("data-id") for row in tab.page.locator("tr[data-id]").all()]
    assert listed == ids


@on_one_store
def test_a_search_offers_what_could_be_meant(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open("/jobs")
    box, offers = tab.page.get_by_role("combobox", name="Search jobs"), tab.page.get_by_role("option")
    box.press_sequentially("sta")
    expect(offers).to_have_text(["state:"])
    box.press("ArrowDown")
    box.press("Enter")
    box.press_sequentially("de")
    expect(offers).to_have_text(["state:dead"])
    box.press("ArrowDown")
    box.press("Tab")
    box.press_sequentially("task:charge")
    box.press("Enter")
    expect(tab.page.locator("tr[data-id]")).to_have_count(3)
    expect(box).to_have_value("state:dead task:charge")
    assert texts(tab.page.locator("tr[data-id] .error")) == [
        f"ValueError: no money at customer {n}" for n in (2, 1, 0)
    ]  # fmt: skip


def test_a_jobs_page_shows_arguments_errors_and_what_it_does(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open(f"/jobs/{filled.dead}")
    assert texts(tab.page.locator(".args-list dd")) == ['"customer 0"', f'"{desk.folder / "never"}"']
    expect(tab.page.locator(".trace").first).to_contain_text("raise ValueError")
    tab.open(f"/jobs/{filled.running}")
    expect(tab.page.locator("#job-log")).to_contain_text("holding")
    expect(tab.page.locator("#job-why .progress-line")).to_contain_text("25 % 1 of 4")
    tab.open(f"/jobs/{filled.done}")
    expect(tab.page.locator("#job-result pre")).to_have_text("3")
    assert texts(tab.page.locator(".args-list dd")) == ["1", "2"]
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.open(f"/jobs/{filled.dead}")
    tab.press("Copy")
    expect(tab.button("Copied")).to_be_visible()
    assert tab.page.evaluate("navigator.clipboard.readText()") == filled.dead


def test_errors_lanes_and_a_lane_show_what_the_store_has(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open("/errors")
    groups = {group.kind: group for group in desk.app.stats.errors()}
    shown = dict(zip(texts(tab.page.locator(".group h2")), texts(tab.page.locator(".group-count b")), strict=True))
    assert shown == {kind: str(group.count) for kind, group in groups.items()}
    tab.page.get_by_label("Search errors").fill("timeout")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".group")).to_have_count(1)
    tab.page.get_by_role("link", name="to be retried").click()
    expect(tab.page.locator("tr[data-id]")).to_have_attribute("data-id", filled.retrying)

    tab.open("/lanes?order=size")
    stored = [(one.lane, one.queue, str(one.size)) for one in desk.app.inspect.lanes(order="size")]
    cells = rows(tab.page.locator("#lanes-list tbody tr"))
    assert [(row[0].split(" mail")[0], row[1], row[4].split()[0]) for row in cells] == stored
    tab.page.get_by_role("link", name="customer 7").click()
    expect(tab.page.locator("#lane-facts b").first).to_have_text("2")
    assert texts(tab.page.locator(".payload")) == ['{"n":0}', '{"n":1}']


def test_workers_schedules_and_history_show_what_the_store_has(desk: Desk, filled: Filled, tab: Tab) -> None:
    [worker] = desk.app.inspect.workers()
    tab.open("/workers")
    card = tab.page.locator("article")
    expect(card).to_contain_text(f"pid {worker.pid}")
    expect(card).to_contain_text("1 of 4 busy")
    expect(card.get_by_role("link", name="hold")).to_have_attribute("href", f"/jobs/{filled.running}")

    tab.open("/schedules")
    stored = {(one.task, one.schedule) for one in desk.app.inspect.schedules()}
    assert {(row[0], row[1].split(" missed")[0]) for row in rows(tab.page.locator("#schedules tbody tr"))} == stored

    tab.open("/history")
    today = desk.app.stats.history(1)[-1]
    sums = dict(zip(texts(tab.page.locator("#sums span")), texts(tab.page.locator("#sums b")), strict=True))
    assert sums == {
        "done": str(today.processed), "enqueued": str(today.enqueued), "failed attempts": str(today.failed),
        "gave up": str(today.dead),
    }  # fmt: skip
    assert {row[0] for row in rows(tab.page.locator("#tasks tbody tr"))} >= {"add", "charge", "flaky"}


@on_one_store
def test_the_plan_answers_a_question(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open("/history")
    for label, value in {
        "Requests a second": "1000",
        "Share that enqueues": "0.1",
        "A job runs": "50ms",
        "Slots a process": "5",
    }.items():
        tab.page.get_by_label(label).fill(value)
    tab.press("Plan")
    expect(tab.page.locator(".verdict")).to_contain_text("One such machine keeps up: busy 100 % of the time.")
    expect(tab.page.locator("figure").filter(has_text="Jobs that wait, from now on").locator("svg path").first).to_be_attached()


# -- charts, keys, colours ---------------------------------------------------------------------------------------


@on_one_store
@pytest.mark.parametrize(("path", "chart"), [("/", "throughput"), ("/history", "days")])
def test_a_chart_tells_the_values_of_a_moment(desk: Desk, filled: Filled, tab: Tab, path: str, chart: str) -> None:
    tab.open(path)
    tab.pause()  # so that the table stays as it is
    figure = tab.page.locator("figure").filter(has=tab.page.locator(f"#{chart}"))
    plot, tip = figure.locator("[data-plot]"), figure.locator(".tip")
    expect(tip).to_be_hidden()
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] - 8, "y": 40})
    expect(tip).to_be_visible()
    last = [float(cell.get_attribute("data-v") or "nan") for cell in figure.locator("tbody tr").last.locator("td").all()]
    unit = figure.get_attribute("data-unit") or ""
    assert texts(tip.locator("div span:last-child")) == [short(value, unit) for value in last]
    tab.page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    plot.focus()
    tab.page.keyboard.press("Home")
    tab.page.keyboard.press("ArrowRight")
    second = [float(cell.get_attribute("data-v") or "nan") for cell in figure.locator("tbody tr").nth(1).locator("td").all()]
    assert texts(tip.locator("div span:last-child")) == [short(value, unit) for value in second]


@on_one_store
def test_keys_search_help_and_go_places(desk: Desk, filled: Filled, tab: Tab) -> None:
    keyboard = tab.open("/errors").page.keyboard
    keyboard.press("/")
    expect(tab.page.get_by_label("Search errors")).to_be_focused()
    keyboard.type("?/gj")
    expect(tab.page.get_by_label("Search errors")).to_have_value("?/gj")
    keyboard.press("Escape")
    expect(tab.page.get_by_label("Search errors")).not_to_be_focused()
    keyboard.press("?")
    expect(tab.question).to_contain_text("Keyboard")
    keyboard.press("Escape")
    expect(tab.question).to_have_count(0)
    tab.page.get_by_role("button", name="Keyboard shortcuts").click()
    tab.press("Close", tab.question)
    expect(tab.question).to_have_count(0)
    for key, path in {"o": "/", "j": "/jobs", "l": "/lanes", "w": "/workers", "s": "/schedules", "h": "/history"}.items():
        keyboard.press("g")
        keyboard.press(key)
        tab.page.wait_for_url(f"{tab.url}{path}")
        tab.is_live()
    keyboard.press("/")
    tab.page.wait_for_url(f"{tab.url}/jobs#search")
    expect(tab.page.get_by_label("Search jobs")).to_be_focused()


@on_one_store
def test_colours_are_chosen_and_stay(desk: Desk, filled: Filled, tab: Tab) -> None:
    tab.open()
    paint = "getComputedStyle(document.body).backgroundColor"
    system = tab.page.evaluate(paint)
    button = tab.page.get_by_role("button", name=re.compile("^Colours"))
    button.click()
    expect(button).to_have_accessible_name("Colours: light")
    assert tab.page.evaluate(paint) == system
    tab.page.keyboard.press("t")
    expect(button).to_have_accessible_name("Colours: dark")
    dark = tab.page.evaluate(paint)
    assert dark != system
    tab.open("/jobs")
    expect(button).to_have_accessible_name("Colours: dark")
    assert tab.page.evaluate(paint) == dark
    button.click()
    tab.page.emulate_media(color_scheme="dark")
    assert tab.page.evaluate(paint) == dark, "as the system"


# -- without scripts, and who may only look ----------------------------------------------------------------------


def test_without_scripts_everything_can_be_read_and_searched(browser: Browser, desk: Desk, filled: Filled) -> None:
    with open_tab(browser, desk.url, java_script_enabled=False) as tab:
        for name in NAMES:
            tab.open(filled.address(name))
            tab.shows(desk.counters())
            assert tab.page.locator("[data-action]:visible, [data-verb]:visible, [data-pick]:visible").count() == 0
        tab.open()
        expect(tab.page.locator("main svg.spark").first).to_be_visible()
        tab.open("/jobs")
        tab.page.get_by_label("Search jobs").fill("state:dead")
        tab.press("Search")
        expect(tab.page.locator("tr[data-id]")).to_have_count(3)
        tab.page.get_by_role("link", name="charge").first.click()
        expect(tab.page.locator(".trace").first).to_contain_text("raise ValueError")


def reader(_: object) -> str:
    return "read"


#: Who may act is one word for all pages, wherever it comes from, and tests without a browser see it on each: some are enough.
@on_one_store
@pytest.mark.parametrize(
    ("options", "names"),
    [({"auth": reader}, ["overview", "errors", "lane", "schedules", "job"]), ({"read_only": True}, ["jobs", "job", "workers"])],
    ids=["reader", "read-only"],
)
def test_who_may_only_look_sees_no_way_to_act_and_cannot(
    browser: Browser, desk: Desk, filled: Filled, options: dict[str, Any], names: list[str]
) -> None:
    with serving(dashboard(desk.app, **options)) as url, open_tab(browser, url) as tab:
        for name in names:
            tab.open(filled.address(name))
            expect(tab.page.locator("header .badge")).to_have_text("read-only")
            acts = "[data-action]:not([disabled]), [data-verb], [data-pick], [data-edit]"
            assert tab.page.locator(acts).count() == 0, name
        tab.ear.forgive("403")
        answer = tab.page.evaluate(BY_HAND, filled.dead)
        assert answer == 403
    assert desk.state(filled.dead) == "dead"


#: What a page would do, written by hand: with a token, from the right place.
BY_HAND = """async (id) => {
    const { csrf_token } = await (await fetch("/api/v1/session")).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf_token };
    return (await fetch(`/api/v1/jobs/${id}/retry`, { method: "POST", headers, body: "{}" })).status;
}"""


@on_one_store
def test_credentials_let_a_browser_in_and_act(browser: Browser, desk: Desk, filled: Filled) -> None:
    site = dashboard(desk.app, user="ada", password="a secret of ada")  # noqa: S106 - of a test
    known: HttpCredentials = {"username": "ada", "password": "a secret of ada"}
    with serving(site) as url, open_tab(browser, url, http_credentials=known) as tab:
        tab.open("/schedules")
        expect(tab.page.locator("footer")).to_contain_text("You are ada")
        tab.press("Pause", tab.row("nightly"))
        tab.sure("Pause nightly?", "Pause")
        expect(tab.row("nightly")).to_contain_text("by ada")
        tab.press("Resume", tab.row("nightly"))
        tab.hears("nightly goes on.")
    assert not any(one.paused for one in desk.app.inspect.schedules())
