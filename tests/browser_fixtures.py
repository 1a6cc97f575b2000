"""The fixtures of tests in a browser: `browser`, `window`, `desk` and `tab`. Loaded as a plugin, by modules that say so.

The browser lives as long as a module: an event loop lives with it, and beside that tests of other modules could have none of
their own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import postgresbench
import redisbench
from browser import CHROMIUM, Desk, Tab, Window, why_not
from conftest import SOAK

#: Pages ask the API alone, which is tested on every store: so a browser looks at one, and at the others with make soak. Some
#: tests say that they run on each.
STORES = ["sqlite", *([pytest.param("redis", marks=pytest.mark.soak)] if SOAK else [])]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; skip if there is none, fail if there must be one."""
    missing = why_not()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


def address(store: str, folder: Path) -> str:
    """Return the URL of an empty store."""
    if store == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}"
    if store == "redis":
        return redisbench.emptied().url
    postgresbench.server().drop("desk")  # in the usual schema the clock may stand still
    return f"{postgresbench.server().url}?schema=desk"


@pytest.fixture(scope="module", params=STORES)
def desk(browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A shop on a store, for all tests of a module; where there is a browser to look at it."""
    folder = tmp_path_factory.mktemp("desk")
    made = Desk(folder, address(request.param, folder))
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Window]:
    """A window for all tests of a module."""
    made = Window(browser)
    yield made
    made.close()


@pytest.fixture
def tab(window: Window, desk: Desk) -> Iterator[Tab]:
    """A tab on the desk's dashboard."""
    with window.tab(desk.url) as opened:
        yield opened
