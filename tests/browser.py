"""A browser for tests: Chromium on the dashboard of a shop that works, and an ear for all that goes wrong in it.

A `Desk` is a shop on a store of its own: its fleet and its dashboard are the programs that users start. A `Tab` is a page as a
user has it before them. Whatever a test is about, its tab listens: an error or a warning on the console, an error of a script,
something that the policy forbids, a dialog of the browser, a request that fails or goes to another host, and the test fails,
unless it has said before that this would come (`forgive`).

Test modules load `browser_fixtures` as a plugin, and then have a browser, a desk and a tab.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    Request,
    Response,
    ViewportSize,
    WebError,
    expect,
)

import browser_jobs
from laneway import App
from workbench import DEADLINE, until

expect.set_options(timeout=DEADLINE * 1000)

__all__ = ["CHROMIUM", "PHONE", "WIDE", "Desk", "Ear", "Program", "Tab", "Window", "open_tab", "why_not"]

#: The browser's program; another one may be tried.
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), "chromium")
#: Sizes of a window.
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
#: Tells on the console what the policy forbids, wherever it happens.
REPORT = """addEventListener("securitypolicyviolation", (event) =>
    console.error(`forbidden by the policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));"""

#: What a browser says then.
CHANGED = "ERR_NETWORK_CHANGED"
#: Sets how often a page is brought up to date, after it was read and before its scripts run.
HASTE = """document.addEventListener("readystatechange", () => {
    if (document.readyState === "interactive") document.getElementById("main").dataset.every = 4; });"""


def why_not() -> str:
    """Say what is missing for tests in a browser; empty: nothing."""
    return "" if shutil.which(CHROMIUM) else f"no {CHROMIUM} here: apt-get install chromium, or name one: CHROMIUM=/path/to/it"


# -- the shop ----------------------------------------------------------------------------------------------------


class Program:
    """A program of a shop: `laneway worker` or `laneway dashboard`, with what it says in a file."""

    def __init__(self, folder: Path, environment: dict[str, str], name: str, *options: str) -> None:
        self.log = folder / f"{name}-{len(list(folder.glob('*.log'))) + 1}.log"
        command = [sys.executable, "-m", "laneway", name, browser_jobs.__file__, *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def hear(self, pattern: str) -> str:
        """Wait until it says something; return the part of it that is asked for."""

        def heard() -> re.Match[str] | None:
            assert self.process.poll() is None, f"it ended: {self.log.read_text()}"
            return re.search(pattern, self.log.read_text())

        until(heard, f"{pattern!r} in what it says")
        found = heard()
        assert found is not None
        return found[1]

    def stop(self) -> None:
        """End it as users do, and see that it ends well; twice is fine."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            code = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)
            raise AssertionError(f"it did not end: {self.log.read_text()[-2000:]}") from None
        assert code == 0, f"it ended with {code}: {self.log.read_text()[-2000:]}"


class Desk:
    """A shop on a store of its own, with its fleet and its dashboard."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.app = App(store)
        self.tasks = browser_jobs.declare(self.app)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
        self._environment = {**kept, "BROWSER_STORE": store, "TMPDIR": str(folder)}
        self._port = 0
        self._gates = 0
        self._programs: list[Program] = []
        self.url = ""

    def open(self) -> None:
        """Start its fleet and its dashboard, and wait until both are there."""
        self.start_dashboard()
        self.fleet = self.start_fleet("-q", browser_jobs.SERVED)
        until(self.app.inspect.workers, "the first beat of a fleet")

    def start_fleet(self, *options: str) -> Program:
        """Start `laneway worker`; it is heard of five times a second, so that nobody has to wait for it."""
        return self._start("worker", "-s", "4", "--beat", "0.2", "--shutdown-timeout", "1", *options)

    def start_dashboard(self) -> Program:
        """Start `laneway dashboard`; for the second time where it was before."""
        self.dashboard = self._start("dashboard", "--port", str(self._port))
        self.url = self.dashboard.hear(r" on (http://\S+)\. ")
        self._port = urlsplit(self.url).port or 0
        return self.dashboard

    def _start(self, name: str, *options: str) -> Program:
        made = Program(self.folder, self._environment, name, *options)
        self._programs.append(made)
        return made

    # -- what is in it -----------------------------------------------------------------------------------

    def gate(self) -> Path:
        """Return a file that is not there yet: jobs wait for it, or fail without it."""
        self._gates += 1
        return self.folder / f"gate-{self._gates}"

    def state(self, id_: str) -> str | None:
        """Return a job's state; None: it has left the store."""
        found = self.app.inspect.job(id_)
        return None if found is None else found.state

    def until_state(self, id_: str, state: str | None) -> None:
        until(lambda: self.state(id_) == state, f"job {id_} {state or 'gone'} and not {self.state(id_)}")

    def dead(self, number: int = 1, to: str = "ada") -> list[str]:
        """Put in jobs that are dead, and that nobody runs when they are retried."""
        ids = [self.tasks.mail.enqueue(to, f"dead {n}").id for n in range(number)]
        assert self.app.inspect.kill_all(ids=tuple(ids)) == number
        return ids

    def counters(self) -> dict[str, int]:
        """Return what the counters of every page should show."""
        totals = self.app.stats.totals()
        more = {"processed": totals["processed"], "failed": totals["failed"], "workers": len(self.app.inspect.workers())}
        return {**self.app.inspect.counts(), **more}

    def sweep(self) -> None:
        """Take everything out: the next test begins with an empty store and a fleet that has nothing to do."""
        for number in range(1, self._gates + 1):
            (self.folder / f"gate-{number}").touch()
        look = self.app.inspect
        for queue in look.queues():
            if queue.paused:
                look.resume(queue.name)
        until(lambda: not look.delete_all() and not any(look.counts().values()), "an empty store")

    def close(self) -> None:
        with contextlib.ExitStack() as last:
            last.callback(self.app.close)
            for program in self._programs:
                last.callback(program.stop)


# -- the browser -------------------------------------------------------------------------------------------------


class Ear:
    """Hears all that goes wrong on the pages of a context."""

    def __init__(self, context: BrowserContext, home: str) -> None:
        self.heard: list[str] = []
        self.listens = True
        self.changed = False  #: the machine's network has changed, and the browser gave up what was on its way
        self._home = urlsplit(home).netloc
        self._forgiven: list[re.Pattern[str]] = []
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("dialog", self._dialog)
        context.on("request", self._request)
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)

    def leave(self, context: BrowserContext) -> None:
        """Hear nothing more of a context that lives on."""
        context.remove_listener("console", self._console)
        context.remove_listener("weberror", self._error)
        context.remove_listener("dialog", self._dialog)
        context.remove_listener("request", self._request)
        context.remove_listener("requestfailed", self._failed)
        context.remove_listener("response", self._answered)

    def forgive(self, pattern: str) -> None:
        """Let something pass that a test brings about itself."""
        self._forgiven.append(re.compile(pattern))

    def _note(self, text: str) -> None:
        if CHANGED in text:
            self.changed = True
            return
        if self.listens and not any(pattern.search(text) for pattern in self._forgiven):
            self.heard.append(text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._note(f"{message.type} on the console: {message.text} ({message.location.get('url')})")

    def _error(self, error: WebError) -> None:
        self._note(f"error of a script: {error.error}")

    def _dialog(self, dialog: Dialog) -> None:
        self._note(f"a dialog: {dialog.type} {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and parts.netloc != self._home:
            self._note(f"a request to another host: {request.url}")

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self._note(f"answered {answer.status}: {answer.url}")

    def _failed(self, request: Request) -> None:
        # What a page gives up itself, since it is left or paused, has not failed. What is missing or forbidden is heard anyway.
        given_up = request.failure == "net::ERR_ABORTED" and request.resource_type != "document"
        if not given_up:
            self._note(f"a request failed: {request.url} {request.failure}")


class Tab:
    """A page of the dashboard as a user has it before them."""

    def __init__(self, page: Page, url: str, ear: Ear) -> None:
        self.page = page
        self.url = url.rstrip("/")
        self.ear = ear
        self.acted: list[str] = []  #: the paths of actions that the page asked for
        page.on("request", self._asked)

    def leave(self) -> None:
        """Hear nothing more of a page that lives on."""
        self.page.remove_listener("request", self._asked)
        self.ear.leave(self.page.context)

    def _asked(self, request: Request) -> None:
        if request.method == "POST":
            self.acted.append(urlsplit(request.url).path)

    def open(self, path: str = "/") -> Tab:
        """Go to a page, and wait until it is live if it can be."""
        answer = self._load(self.url + path)
        assert answer.ok, answer.text()
        if self.page.locator("[data-live-mark]").is_visible():
            self.is_live()
        return self

    def _load(self, address: str) -> Response:
        """Load a page. Other tests make hosts, and a browser gives up when the machine's network changes: then once more."""
        while True:
            self.ear.changed = False
            try:
                answer = self.page.goto(address)
            except Error as error:
                if CHANGED not in str(error):
                    raise
                continue
            if not self.ear.changed:
                assert answer is not None
                return answer

    def is_live(self) -> None:
        """Wait until figures are live."""
        self.page.locator("[data-mood=live]").wait_for()

    @property
    def mark(self) -> Locator:
        """The mark that says whether figures are live."""
        return self.page.locator("[data-live-mark]")

    def pause(self) -> None:
        """Let the page stand still."""
        self.mark.click()
        expect(self.mark).to_have_text("paused")

    @property
    def question(self) -> Locator:
        """The dialog that is open."""
        return self.page.get_by_role("dialog")

    def button(self, name: str, within: Locator | None = None) -> Locator:
        return (within or self.page.locator("main")).get_by_role("button", name=name, exact=True)

    def press(self, name: str, within: Locator | None = None) -> None:
        self.button(name, within).click()

    def sure(self, asked: str, answer: str) -> None:
        """Read the question, sentence by sentence, and answer it."""
        for sentence in re.split(r"(?<=[?]) ", asked):
            expect(self.question).to_contain_text(sentence)
        self.question.get_by_role("button", name=answer, exact=True).click()
        expect(self.question).to_have_count(0)

    def hears(self, text: str | re.Pattern[str]) -> None:
        """Wait for what the page says after an action."""
        self.page.locator(".toast").filter(has_text=text).last.wait_for()

    def row(self, text: str) -> Locator:
        return self.page.locator("main tbody tr").filter(has_text=text)

    def count(self, name: str) -> Locator:
        return self.page.locator(f'[data-count="{name}"]')

    def shows(self, counters: dict[str, int]) -> None:
        """Wait until the counters at the top show these numbers."""
        for name, value in counters.items():
            expect(self.count(name)).to_have_text(f"{value:,}")

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found


def _new_context(browser: Browser, every: float | None, **options: Any) -> BrowserContext:
    context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options})
    context.set_default_timeout(DEADLINE * 1000)
    context.add_init_script(REPORT)
    if every is not None:
        context.add_init_script(HASTE.replace("4", str(every)))
    return context


@contextlib.contextmanager
def open_tab(browser: Browser, url: str, *, every: float | None = None, **options: Any) -> Iterator[Tab]:
    """Open a tab in a window of its own. Whatever went wrong in it is an error when it is closed.

    With `every` its pages are brought up to date more often than users need it, so that tests need not wait.
    """
    context = _new_context(browser, every, **options)
    ear = Ear(context, url)
    tab = Tab(context.new_page(), url, ear)
    try:
        yield tab
    finally:
        ear.listens = False  # what is on its way while the window closes does not arrive
        context.close()
    assert not ear.heard, "\n".join(ear.heard)


class Window:
    """A tab that tests have one after another: to make one takes a browser half a second of a core.

    Each test finds it as a new one is: an empty page of the usual size, which remembers nothing. After a test that failed it is
    thrown away.
    """

    def __init__(self, browser: Browser, *, every: float | None = None) -> None:
        self.browser = browser
        self._every = every
        self._page: Page | None = None

    @contextlib.contextmanager
    def tab(self, url: str) -> Iterator[Tab]:
        """Open the tab. Whatever went wrong in it is an error when it is left."""
        page, self._page = self._page or _new_context(self.browser, self._every).new_page(), None
        ear = Ear(page.context, url)
        tab = Tab(page, url, ear)
        try:
            yield tab
            ear.listens = False  # what is on its way while the page is left does not arrive
            self._tidy(tab)
            self._page = page
        finally:
            if self._page is None:
                page.context.close()
        assert not ear.heard, "\n".join(ear.heard)

    @staticmethod
    def _tidy(tab: Tab) -> None:
        """Leave nothing of a test: neither listeners nor anything that the browser keeps."""
        page, context = tab.page, tab.page.context
        assert context.pages == [page]
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.goto("about:blank")
        context.clear_cookies()
        context.clear_permissions()
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.set_viewport_size(WIDE)
        tab.leave()

    def close(self) -> None:
        if self._page is not None:
            self._page.context.close()
