"""Names, arguments and errors that would like to be markup, scripts or very wide: every page shows them, and nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import redisbench
from browser import PHONE, WIDE, Tab, Window
from conftest import SOAK
from laneway import App, Retry, Worker
from laneway.store.contract import WorkerInfo
from laneway.web import dashboard
from laneway.web.pages.filters import link_from
from webdesk import serving
from workbench import Running

pytest_plugins = ("browser_fixtures",)

#: For what has nothing to do with the store.
on_one_store = pytest.mark.parametrize("site", ["sqlite"], indirect=True)

EVIL = [
    "<script>window.pwned = 1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "</script></title></textarea></pre><svg onload=window.pwned=1>",
    "javascript:window.pwned=1//",
    "{{ 7 * 7 }} ${7 * 7} {% raise %} %7B%7B",
    "&lt;b&gt;&#39;&quot;&amp;nbsp;",
    "W" * 300,
    "Z̴̧͓̦̺" * 30,
]
#: Not everything may be in a name; in what jobs are given it may.
WORSE = ["\u202egnp.exe\u2066", "line\nline\r\n\tline\0end", "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 40, *EVIL]
LONG_QUEUE = "q" * 100


class Hostile(Exception):
    """Failures have names too."""


Hostile.__name__ = Hostile.__qualname__ = "<img/src=x/onerror=window.pwned=1>"


@dataclass(frozen=True)
class Site:
    """A dashboard of hostile jobs, and its pages."""

    url: str
    app: App
    pages: list[str]


@pytest.fixture(scope="module", params=["sqlite", *([pytest.param("redis", marks=pytest.mark.soak)] if SOAK else [])])
def site(browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    app = App(f"sqlite:///{folder / 'jobs.db'}" if request.param == "sqlite" else redisbench.emptied().url)
    fill(app)
    with serving(dashboard(app)) as url:
        yield Site(url, app, addresses(app))
    app.close()


def name(kind: str, number: int) -> str:
    """Return a name for a task: 200 characters without spaces, which markup can do without."""
    return f"{kind}{number}-{EVIL[number]}".replace(" ", "/")[:200]


def worker(number: int) -> str:
    """Return a worker's id: whatever it is, there is no slash in it."""
    return f"w{number}-{EVIL[number]}".replace("/", "|")


def fill(app: App) -> None:
    """Put in everything that users can name."""

    def fail(key: str, text: Any) -> None:
        raise Hostile(text)

    def gather(lanes: dict[str, list[Any]]) -> None: ...

    tasks = [app.task(name=name("t", n), queue=LONG_QUEUE, lane="key", retry=Retry(times=0))(fail) for n, _ in enumerate(EVIL)]
    for n, _ in enumerate(EVIL):
        app.task(name=name("s", n), schedule="0 3 * * *")(lambda: None)
    collect = app.collector(name="gather")(gather)
    for task, evil in zip(tasks, EVIL, strict=True):
        task.enqueue(f"dead {evil}", evil)
    tasks[0].enqueue("everything", "\n".join(WORSE))
    Running(Worker(app, 2), burst=True).join()
    for task, evil in zip(tasks, EVIL, strict=True):
        task.using(run_after=3600).enqueue(f"waits {evil}", {evil: [evil] * 3, "all": WORSE})
        collect.using(run_after=3600).enqueue(f"lane {evil}", {evil: evil})
    app.inspect.pause(LONG_QUEUE, by=EVIL[1])
    app.store.beat([
        WorkerInfo(worker(n), host=evil, pid=7, slots=4, queues=(LONG_QUEUE,), tasks=(evil,), version=evil)
        for n, evil in enumerate(EVIL)
    ])  # fmt: skip


def addresses(app: App) -> list[str]:
    """Return every page that there is about all of it."""
    link = link_from("/")
    everything, *dead = [job.id for job in app.inspect.jobs("dead", limit=100, newest=True)]
    scheduled = [job.id for job in app.inspect.jobs("scheduled", queue=LONG_QUEUE, limit=100)]
    jobs = [link("jobs", id_) for id_ in (everything, *dead[::3], *scheduled[::3])]
    lanes = [link("lane", queue=one.queue, lane=one.lane) for one in app.inspect.lanes()[::3]]
    # What is asked for comes back in one place of the page: all of it at once is as bad as one after another.
    asked = [link("jobs", q=" ".join(some)) for some in (EVIL[:3], EVIL[3:4], EVIL[4:6])] + [
        link("history", task="".join(EVIL[:3]))
    ]
    plain = ["/", "/jobs", "/jobs?state=dead", "/jobs?state=finished", "/errors", "/lanes", "/workers", "/schedules", "/history"]
    return [*plain, *asked, *jobs, *lanes]


def is_harmless(tab: Tab, where: str) -> None:
    """See that nothing ran, and that the page is not wider than its window."""
    assert tab.page.evaluate("window.pwned") is None, where
    assert tab.page.locator("main script, main img, main svg[onload]").count() == 0, where
    assert "49" not in tab.page.title(), where
    for size in (WIDE, PHONE):
        tab.page.set_viewport_size(size)
        assert tab.overflow() <= 0, f"{where} is wider than {size}"


def test_no_page_runs_or_is_torn_by_what_users_wrote(window: Window, site: Site) -> None:
    with window.tab(site.url) as tab:
        for address in site.pages:
            tab.open(address)
            tab.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            is_harmless(tab, address)


@on_one_store
def test_what_users_wrote_is_shown_as_it_is(window: Window, site: Site) -> None:
    with window.tab(site.url) as tab:
        tab.open("/schedules")
        for number in range(6):
            expect(tab.page.locator("main")).to_contain_text(name("s", number))
        tab.open("/errors")
        expect(tab.page.locator("main")).to_contain_text("<img/src=x/onerror=window.pwned=1>")


@on_one_store
def test_questions_and_answers_hold_no_markup_either(window: Window, site: Site) -> None:
    with window.tab(site.url) as tab:
        tab.open("/schedules")
        for number in range(len(EVIL)):
            tab.press("Pause", tab.row(f"s{number}-"))
            tab.sure(f"Pause {name('s', number)[:80]}?", "Pause")
            tab.hears(f"{name('s', number)} is paused.")
            is_harmless(tab, name("s", number))
            tab.page.set_viewport_size(WIDE)
        assert all(one.paused for one in site.app.inspect.schedules())


@on_one_store
def test_what_is_offered_for_a_search_is_text(window: Window, site: Site) -> None:
    with window.tab(site.url) as tab:
        tab.open("/jobs")
        box = tab.page.get_by_role("combobox", name="Search jobs")
        box.press_sequentially("task:s0")
        expect(tab.page.get_by_role("option")).to_have_text(["task:s0-<script>window.pwned/=/1</script>"])
        is_harmless(tab, "offers")
        box.fill("task:")
        is_harmless(tab, "all offers")


def test_a_hostile_workers_actions_reach_that_worker(window: Window, site: Site) -> None:
    with window.tab(site.url) as tab:
        tab.open("/workers")
        for number in range(len(EVIL)):
            tab.press("Quiet", tab.page.locator("article").filter(has_text=f"w{number}-"))
            with tab.page.expect_response("**/quiet"):  # all say the same when they are done
                tab.sure("Tell this worker to claim nothing more?", "Quiet")
            tab.hears("Told to quiet")
        heard = site.app.store.beat([WorkerInfo(worker(number), slots=4) for number in range(len(EVIL))])
        assert [one.commands for one in heard.values()] == [("quiet",)] * len(EVIL)
        is_harmless(tab, "workers")
