"""The ear of tests in a browser: it hears each thing that must not happen, so that the silence of the others means something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from browser import PHONE, WIDE, Tab, Window, open_tab
from webdesk import serving
from workbench import until

pytest_plugins = ("browser_fixtures",)

#: What goes wrong, how a page brings it about, and what is heard of it.
WRONG = {
    "warning": ("console.warn('careful')", "warning on the console: careful"),
    "error": ("console.error('bad')", "error on the console: bad"),
    "exception": ("setTimeout(() => { throw new Error('oh'); })", "error of a script: oh"),
    "promise": ("Promise.reject(new Error('nobody waits'))", "error of a script: nobody waits"),
    "missing": ("fetch('/missing')", "answered 404: "),
    "away": ("fetch('http://127.0.0.1:9/').catch(() => {})", "a request to another host: http://127.0.0.1:9/"),
    "policy": ("try { eval('1'); } catch { /* it is heard all the same */ }", "forbidden by the policy: script-src"),
    "style": ("document.body.setAttribute('style', 'color: red')", "forbidden by the policy: style-src-attr"),
    "dialog": ("setTimeout(() => alert('hello'))", "a dialog: alert hello"),
}
POLICY = "default-src 'none'; script-src 'self'; connect-src *"


@pytest.fixture(scope="module")
def url(browser: Browser) -> Iterator[str]:
    def page(request: Request) -> Response:
        text = f"<!doctype html><link rel=icon href=data:,><body><script src=/{request.path_params['name']}.js></script>"
        return Response(text, headers={"Content-Security-Policy": f"{POLICY}; img-src data:"}, media_type="text/html")

    def script(request: Request) -> Response:
        return Response(WRONG[request.path_params["name"]][0], media_type="text/javascript")

    with serving(Starlette(routes=[Route("/{name}.js", script), Route("/page/{name}", page)])) as found:
        yield found


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_on_a_page_is_heard(window: Window, url: str, name: str) -> None:
    with window.tab(url) as tab:
        tab.page.goto(f"{url}/page/{name}")
        until(lambda: heard(tab), f"a {name}")
        assert WRONG[name][1] in "\n".join(tab.ear.heard)
        tab.ear.heard.clear()
        tab.ear.listens = False


def heard(tab: Tab) -> list[str]:
    tab.page.wait_for_timeout(10)  # events come while the browser is waited for
    return tab.ear.heard


def test_a_tab_that_heard_something_fails_its_test(browser: Browser, url: str) -> None:
    def visit() -> None:
        with open_tab(browser, url) as tab, tab.page.expect_console_message():
            tab.page.goto(f"{url}/page/error")

    with pytest.raises(AssertionError, match="error on the console: bad"):
        visit()


def test_what_a_test_brings_about_itself_is_forgiven(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.ear.forgive("careful")
        with tab.page.expect_console_message():
            tab.page.goto(f"{url}/page/warning")


def test_a_window_that_heard_something_fails_its_test_and_not_the_next(window: Window, url: str) -> None:
    def visit() -> None:
        with window.tab(url) as tab, tab.page.expect_console_message():
            tab.page.goto(f"{url}/page/error")

    with pytest.raises(AssertionError, match="error on the console: bad"):
        visit()
    with window.tab(url) as tab:
        assert heard(tab) == []
        with tab.page.expect_console_message():
            tab.page.goto(f"{url}/page/warning")
        until(lambda: heard(tab), "a warning")
        assert len(tab.ear.heard) == 1
        tab.ear.heard.clear()


def test_a_window_that_was_used_is_like_a_new_one(window: Window, url: str) -> None:
    look = """[innerWidth, innerHeight, matchMedia("(prefers-color-scheme: dark)").matches,
        matchMedia("(prefers-reduced-motion: reduce)").matches, localStorage.length, sessionStorage.length, document.cookie,
        window.isTheSame, (await navigator.permissions.query({ name: "clipboard-read" })).state]"""

    def seen(tab: Tab) -> object:
        tab.ear.forgive("careful")
        tab.page.goto(f"{url}/page/warning")
        return tab.page.evaluate(f"(async () => {look})()")

    with window.tab(url) as tab:
        seen(tab)
        tab.page.set_viewport_size(PHONE)
        tab.page.emulate_media(color_scheme="dark", reduced_motion="no-preference")
        tab.page.context.grant_permissions(["clipboard-read"])
        tab.page.evaluate("localStorage.a = sessionStorage.a = document.cookie = 'a=1'; window.isTheSame = true")
    with window.tab(url) as used, open_tab(window.browser, url) as new:
        assert seen(used) == seen(new)
        assert used.page.viewport_size == WIDE
