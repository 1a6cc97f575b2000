"""Pages that follow the store: what changes there changes here, without loading the page again. When they do not, they say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from browser import Desk, Tab, Window, open_tab
from conftest import SOAK
from laneway.web import dashboard
from webdesk import serving

pytest_plugins = ("browser_fixtures",)

#: Looks at pages, follows what happens and acts: so much is seen in a browser on each store.
on_every_store = pytest.mark.parametrize("desk", ["sqlite", "redis", "postgres"], indirect=True)

PREFIX = "/admin/lane way"
#: All of them are looked at on one store: what they ask for is proved on each without a browser.
PAGES = ("Jobs", "Errors", "Lanes", "Workers", "Schedules", "History", "Overview")
#: What the browser says while a server is away.
AWAY = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED"


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Window]:
    """A window whose pages are brought up to date with each event of the stream."""
    made = Window(browser, every=0.5)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_left(desk: Desk) -> Iterator[None]:
    yield
    desk.sweep()


def mark_page(page: Page) -> None:
    """Leave something on a page that is gone when it is loaded again."""
    page.evaluate("window.isTheSame = true")


def is_same_page(page: Page) -> bool:
    return page.evaluate("window.isTheSame === true") is True


def test_counters_and_rows_follow_what_is_enqueued_and_run(desk: Desk, tab: Tab) -> None:
    tab.open("/jobs")
    mark_page(tab.page)
    gate = desk.gate()
    waits, runs = desk.tasks.mail.enqueue("ada").id, desk.tasks.hold.enqueue(str(gate)).id
    expect(tab.count("ready")).to_have_text("1")
    expect(tab.count("running")).to_have_text("1")
    expect(tab.row(waits)).to_contain_text("ready")
    expect(tab.row(runs)).to_contain_text("running")
    before = desk.app.stats.totals()["processed"]
    gate.touch()
    expect(tab.count("running")).to_have_text("0")
    expect(tab.count("processed")).to_have_text(f"{before + 1:,}")
    expect(tab.row(runs)).to_have_count(0)
    tab.shows(desk.counters())
    assert is_same_page(tab.page)


def test_the_tasks_of_the_overview_follow_what_waits_and_runs(desk: Desk, tab: Tab) -> None:
    tab.open()
    mark_page(tab.page)
    task = tab.page.locator("#tasks tbody tr")
    gate = desk.gate()
    desk.tasks.hold.enqueue(str(gate))
    expect(task.filter(has_text="hold").locator("td[data-label=Running]")).to_have_text("1")
    for number in (1, 2):
        desk.tasks.mail.enqueue("ada")
        expect(task.filter(has_text="mail").locator("td[data-label=Waiting]")).to_have_text(str(number))
    gate.touch()
    expect(task.filter(has_text="hold").locator("td[data-label=Running]")).to_have_text("0")
    assert is_same_page(tab.page)
    task.filter(has_text="mail").get_by_role("link", name="mail").click()
    expect(tab.page.locator("main tbody tr")).to_have_count(2)


def test_a_row_stays_the_same_one_when_others_come(desk: Desk, tab: Tab) -> None:
    old = desk.tasks.mail.enqueue("ada").id
    tab.open("/jobs")
    tab.row(old).evaluate("(row) => { row.isMine = true; }")
    new = desk.tasks.mail.enqueue("bob").id
    expect(tab.row(new)).to_have_count(1)
    assert [tab.row(id_).evaluate("(row) => row.isMine === true") for id_ in (new, old)] == [False, True]


def test_a_jobs_page_follows_the_job_to_its_end(desk: Desk, tab: Tab) -> None:
    gate = desk.gate()
    id_ = desk.tasks.charge.using(run_after=3600).enqueue("ada", str(gate)).id
    tab.open(f"/jobs/{id_}")
    mark_page(tab.page)
    expect(tab.button("Retry")).to_have_count(0)
    desk.app.inspect.reschedule(id_, 0)
    expect(tab.page.locator("#job-state")).to_have_text("dead")
    expect(tab.page.locator("#job-errors")).to_contain_text("no money at ada")
    gate.touch()
    tab.press("Retry")
    expect(tab.page.locator("main")).to_contain_text("It has left the store.")
    expect(tab.page.locator("main .state").first).to_have_text("done")
    assert is_same_page(tab.page)


def test_pages_that_were_empty_fill_by_themselves(desk: Desk, tab: Tab) -> None:
    tab.open("/lanes")
    expect(tab.page.locator("main")).to_contain_text("No lane has anything to do")
    mark_page(tab.page)
    desk.tasks.sync.using(run_after=3600).enqueue("a", 1)
    expect(tab.row("sync")).to_contain_text("scheduled")
    assert is_same_page(tab.page)


def test_what_somebody_paused_stands_still_until_they_go_on(desk: Desk, tab: Tab) -> None:
    tab.open()
    tab.pause()
    expect(tab.mark).to_have_attribute("title", "Figures stand still. Go on (p)")
    asked = requests(tab)
    desk.tasks.mail.enqueue("ada")
    tab.page.keyboard.press("p")
    tab.is_live()
    expect(tab.count("ready")).to_have_text("1")
    assert asked[0].endswith("/api/v1/live"), "nothing was asked for while it was paused"
    tab.page.keyboard.press("p")
    expect(tab.mark).to_have_text("paused")


def requests(tab: Tab) -> list[str]:
    """Return the addresses that a page asks for from now on."""
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    return asked


def test_while_rows_are_selected_nothing_moves(desk: Desk, tab: Tab) -> None:
    ids = [desk.tasks.mail.enqueue("ada").id for _ in range(3)]
    tab.open("/jobs")
    tab.page.get_by_label(f"Select job {ids[1]}").check()
    expect(tab.mark).to_have_text("paused")
    expect(tab.mark).to_have_attribute("title", "Figures stand still while rows are selected")
    asked = requests(tab)
    new = desk.tasks.mail.enqueue("bob").id
    tab.page.get_by_label(f"Select job {ids[1]}").uncheck()
    tab.is_live()
    expect(tab.row(new)).to_have_count(1)
    assert asked[0].endswith("/api/v1/live"), "nothing was asked for while a row was selected"


def test_while_a_question_is_open_nothing_moves(desk: Desk, tab: Tab) -> None:
    [id_] = desk.dead()
    tab.open(f"/jobs/{id_}")
    for name in ("Delete", "Retry with other arguments"):
        tab.press(name)
        expect(tab.mark).to_have_text("paused")
        tab.page.keyboard.press("Escape")
        tab.is_live()


def test_a_hidden_tab_asks_for_nothing(desk: Desk, tab: Tab) -> None:
    tab.open()
    hide(tab.page, True)
    expect(tab.mark).to_have_text("paused")
    asked = requests(tab)
    desk.tasks.mail.enqueue("ada")
    hide(tab.page, False)
    tab.is_live()
    expect(tab.count("ready")).to_have_text("1")
    assert asked[0].endswith("/api/v1/live")


def hide(page: Page, hidden: bool) -> None:
    """Let a page believe that it is behind others: a browser without windows shows them all."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_server_that_goes_and_comes_is_waited_for(desk: Desk, tab: Tab) -> None:
    tab.open()
    mark_page(tab.page)
    tab.ear.forgive(AWAY)
    desk.dashboard.stop()
    expect(tab.mark).to_have_text("reconnecting")
    expect(tab.mark).to_have_attribute("data-mood", "reconnecting")
    desk.tasks.mail.enqueue("ada")
    desk.start_dashboard()
    tab.is_live()
    expect(tab.count("ready")).to_have_text("1")
    assert is_same_page(tab.page)


def test_an_action_while_the_server_is_away_says_so(desk: Desk, tab: Tab) -> None:
    [id_] = desk.dead()
    tab.open(f"/jobs/{id_}")
    tab.ear.forgive(AWAY)
    desk.dashboard.stop()
    try:
        tab.press("Retry")
        tab.hears("The dashboard does not answer. Is it still running?")
    finally:
        desk.start_dashboard()
    assert desk.state(id_) == "dead"


@on_every_store
def test_under_a_prefix_links_actions_and_live_figures_work(desk: Desk, browser: Browser) -> None:
    outer = Starlette(routes=[Mount(PREFIX, dashboard(desk.app))])
    [id_] = desk.dead()
    with serving(outer) as url, open_tab(browser, url + PREFIX.replace(" ", "%20"), every=0.5) as tab:
        tab.open()
        for name in PAGES if desk.app.url.startswith("sqlite") or SOAK else ("Jobs", "Overview"):
            tab.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            expect(tab.page.get_by_role("heading", level=1)).to_contain_text(name)
            assert tab.page.url.startswith(tab.url)
            tab.is_live()
        tab.count("dead").click()
        tab.page.wait_for_url("**/jobs?state=dead")  # else the click may hit a link of the page that is about to go
        tab.row(id_).get_by_role("link").first.click()
        tab.page.wait_for_url(f"{tab.url}/jobs/{id_}")
        tab.press("Retry")
        tab.hears("Done.")
        expect(tab.page.locator("#job-state")).to_have_text("ready")
        assert tab.acted == [f"{PREFIX.replace(' ', '%20')}/api/v1/jobs/{id_}/retry"]
        tab.press("Delete")
        tab.sure("Delete this job?", "Delete")
        tab.page.wait_for_url(f"{tab.url}/jobs?state=ready")
        desk.tasks.mail.enqueue("ada")
        expect(tab.count("ready")).to_have_text("1")
        tab.page.keyboard.press("g")
        tab.page.keyboard.press("w")
        tab.page.wait_for_url(f"{tab.url}/workers")
        tab.is_live()
