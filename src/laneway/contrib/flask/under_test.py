"""While tests run: a job that runs where it is enqueued shares the context there.

A run has neither the context variables nor the context of the code that enqueued it. In mode "inline" it comes before that code
has committed: in a context of its own it would have another session, and would not see the row that it is about.

Enters: an enqueue.  Leaves: the context that is active there, for the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import has_app_context
from flask.globals import app_ctx

from laneway.testing import Testing

if TYPE_CHECKING:
    from laneway.contrib.flask.extension import Laneway

__all__ = ["FlaskTesting"]


class FlaskTesting(Testing):
    """An extension under test."""

    def __init__(self, jobs: Laneway, mode: str) -> None:
        super().__init__(jobs, mode)
        self._jobs = jobs

    def _run_now(self) -> None:
        before = self._jobs.inline
        self._jobs.inline = app_ctx._get_current_object() if has_app_context() else None  # type: ignore[attr-defined]
        try:
            super()._run_now()
        finally:
            self._jobs.inline = before
