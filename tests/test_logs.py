"""The forms of the log's lines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from laneway import App, Retry
from laneway.desk.context import JobContext
from laneway.logs import JsonLines, TextLines, log, log_context
from workbench import burst


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param())
    log.addHandler(handler)
    log_context["worker"] = "w 1"
    yield stream
    log.removeHandler(handler)
    log_context.clear()


def charge_twice(app: App) -> str:
    """Let a job fail once, then for good; return its id."""

    @app.task(name="shop.charge", queue="billing", lane="customer", retry=Retry(times=1, backoff=0))
    def charge(customer: str) -> None:
        raise TimeoutError("no answer")

    @app.collector(name="sync", retry=Retry(times=0))
    def sync(lanes: dict[str, list[int]]) -> None: ...

    @app.on_death
    def dead(job: JobContext) -> None: ...

    job = charge.enqueue("order 7")
    burst(app)
    return job.id


@pytest.mark.parametrize("lines", [TextLines], indirect=True)
def test_a_line_of_text_ends_with_what_is_known_of_the_job(app: App, lines: io.StringIO) -> None:
    id_ = charge_twice(app)
    said = lines.getvalue().splitlines()
    [failed] = [line for line in said if "failed in attempt 1" in line]
    assert failed.endswith(
        f'job_id={id_} task=shop.charge queue=billing lane="order 7" attempt=1 outcome=retrying again_in=0 error=TimeoutError '
        'worker="w 1"'
    )
    at = next(n for n, line in enumerate(said) if "is dead after attempt 2" in line)
    assert re.search(r'attempt=2 outcome=dead error=TimeoutError worker="w 1"$', said[at])
    assert said[at + 1].startswith("Traceback")


@pytest.mark.parametrize("lines", [JsonLines], indirect=True)
def test_a_line_of_json_has_the_same(app: App, lines: io.StringIO) -> None:
    id_ = charge_twice(app)
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    [dead] = [line for line in said if line.get("outcome") == "dead"]
    assert (dead["job_id"], dead["lane"], dead["worker"], dead["level"]) == (id_, "order 7", "w 1", "error")
    assert "TimeoutError: no answer" in dead["exception"]
