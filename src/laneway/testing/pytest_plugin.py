"""Fixtures for users' tests. pytest finds this module by itself where Laneway is installed.

`laneway_fake(app)` and `laneway_inline(app)` put an app under test until the test's end, as `app.testing` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.testing import Testing

__all__ = ["laneway_fake", "laneway_inline"]


@pytest.fixture
def laneway_fake() -> Iterator[Callable[[App], Testing]]:
    """Keep an app's enqueued jobs until the test lets them run: `jobs = laneway_fake(app)`."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(app.testing("fake"))


@pytest.fixture
def laneway_inline() -> Iterator[Callable[[App], Testing]]:
    """Run an app's enqueued jobs at once, in the test's thread: `laneway_inline(app)`."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(app.testing("inline"))
