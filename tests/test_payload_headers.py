"""Headers of a collector's payloads: from a client middleware to the run. What stores do with them is in the contract's suite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

import redisbench
from laneway import App, LaneFailures, Retry, Worker, current_job
from laneway.core.job import Gather, Job, lane_id
from laneway.desk.context import JobContext
from laneway.desk.enqueue import LaneDraft
from laneway.errors import BadOption, BulkError, PayloadTooLarge
from workbench import ALL_DONE, burst, url

EVERY_STORE = True

Headers = list[tuple[Mapping[str, str], ...]]


def traced(app: App, *traces: str) -> None:
    """Give each payload that is enqueued the next of these traces."""
    left = iter(traces)

    @app.client_middleware
    def trace(draft: LaneDraft) -> Generator[None]:
        if name := next(left, None):
            draft.headers["trace"] = name
        yield


def collecting(app: App, **options: Any) -> tuple[Any, Headers]:
    """A collector that remembers the headers of its runs."""
    seen: Headers = []

    def collect(lanes: dict[str, list[Any]]) -> None:
        seen.append(current_job().payload_headers)

    declare: Any = app.collector
    return declare(name="collect", **options)(collect), seen


def test_a_run_sees_the_headers_of_all_its_payloads_in_their_order(app: App) -> None:
    traced(app, "1", "2", "", "3", "1", "4")
    collect, seen = collecting(app, max_lanes=9)

    collect.enqueue("a", 1)
    collect.enqueue("a", 2)
    collect.enqueue("a", 3)
    collect.enqueue("a", 1, score=0)  # merged with the first
    collect.enqueue("b", 1)  # of the same trace as the first
    collect.enqueue("b")
    burst(app)

    assert seen == [({"trace": "1"}, {"trace": "3"}, {"trace": "2"}, {"trace": "4"})]


def test_bulk_and_async_calls_have_headers_too(app: App) -> None:
    traced(app, "1", "2", "3", "4", "5")
    collect, seen = collecting(app)

    async def enqueue() -> None:
        await asyncio.gather(collect.aenqueue("a", 3), collect.aenqueue("a", 4))

    collect.enqueue_many([("a", 1), ("a", 2)])
    asyncio.run(enqueue())
    app.enqueue_many([collect.bind("a", 5)])
    burst(app)

    assert seen == [tuple({"trace": str(n)} for n in range(1, 6))]


def test_a_collector_with_a_lane_rule_and_the_newest_alone_sees_those_of_all(app: App) -> None:
    traced(app, "1", "2")
    seen: Headers = []

    @app.collector(name="collect", lane=lambda payload: "a", merge="last")
    def collect(lanes: dict[str, list[int]]) -> None:
        assert lanes == {"a": [2]}
        seen.append(current_job().payload_headers)

    collect.enqueue(1)
    collect.enqueue(2)
    burst(app)

    assert seen == [({"trace": "1"}, {"trace": "2"})]


def test_there_are_none_without_headers_and_none_in_a_tasks_job(app: App) -> None:
    collect, seen = collecting(app)

    @app.task(queue="tasks")
    def task() -> None:
        seen.append(current_job().payload_headers)
        assert current_job().headers == {"of": "task"}

    collect.enqueue("a", 1)
    collect.enqueue("a", 1)
    burst(app)

    @app.client_middleware
    def trace(draft: Any) -> Generator[None]:
        draft.headers["of"] = "task"
        yield

    task.enqueue()
    burst(app)

    assert seen == [(), ()]
    assert app.inspect.counts() == ALL_DONE


def test_a_retry_sees_them_again_with_those_that_came_since(app: App) -> None:
    traced(app, "1", "2", "3")
    seen: Headers = []

    @app.collector(name="collect", max_lanes=5, retry=Retry(times=3, backoff=0))
    def collect(lanes: dict[str, list[int]]) -> None:
        seen.append(current_job().payload_headers)
        if len(seen) == 1:
            collect.enqueue("a", 1)
            raise LaneFailures({"a": ValueError("no")})

    collect.enqueue("a", 1)
    collect.enqueue("b", 1)
    burst(app)

    assert seen == [({"trace": "1"}, {"trace": "2"}), ({"trace": "1"}, {"trace": "3"})]


def test_a_middleware_around_a_run_sees_them_and_a_lane_that_takes_no_part_has_none(app: App) -> None:
    traced(app, "1", "2", "3")
    seen: Headers = []

    @app.middleware
    def around(job: JobContext) -> Generator[None]:
        seen.append(job.payload_headers)
        yield

    @app.collector(name="collect", max_lanes=5)
    def collect(lanes: dict[str, list[int]]) -> None: ...

    collect.enqueue("a", 1)
    collect.enqueue("b", 1)
    app.store.push(
        [Job(lane_id("collect", "b"), "collect", "collect", b'"no number"', "b", gather=Gather(headers='{"trace":"x"}'))]
    )
    burst(app)

    assert seen == [({"trace": "1"},), ({"trace": "2"},)]
    (dead,) = app.inspect.jobs("dead")
    assert dead.args == ["no number"]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_an_isolated_run_sees_them(kind: str, tmp_path: Path) -> None:
    app = App(url(tmp_path) if kind == "sqlite" else redisbench.emptied().url)
    traced(app, "1", "ä", "1")
    told = tmp_path / "told"

    @app.collector(name="collect", isolate=True, max_lanes=5)
    def collect(lanes: dict[str, list[int]]) -> None:
        told.write_text(json.dumps(current_job().payload_headers))

    collect.enqueue_many([("a", 1), ("a", 2), ("b", 1)])
    Worker(app, slots=1).run(burst=True)

    assert json.loads(told.read_text()) == [{"trace": "1"}, {"trace": "ä"}]
    app.close()


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": None}, ["a"], {"a": "\ud800"}], ids=ascii)
def test_what_is_no_header_is_refused_where_it_is_enqueued(app: App, headers: Any) -> None:
    @app.client_middleware
    def wrong(draft: Any) -> Generator[None]:
        draft.headers = headers
        yield

    collect, _ = collecting(app)

    @app.task(queue="tasks")
    def task() -> None: ...

    with pytest.raises(BadOption, match=r"^collect: .*(strings|UTF-8)"):
        collect.enqueue("a", 1)
    with pytest.raises(BadOption, match=r"^collect: .*(strings|UTF-8)"):
        asyncio.run(collect.aenqueue("a", 1))
    with pytest.raises(BulkError, match=r"^collect: "):
        collect.enqueue_many([("a", 1)])
    if "\\ud800" not in ascii(headers):
        with pytest.raises(BadOption, match=r"task: .*strings"):
            task.enqueue()
    assert app.inspect.counts() == ALL_DONE


def test_none_at_all_may_be_none(app: App) -> None:
    @app.client_middleware
    def nothing(draft: Any) -> Generator[None]:
        draft.headers = None
        yield

    collect, seen = collecting(app)
    collect.enqueue("a", 1)
    burst(app)

    assert seen == [()]


def test_payload_and_headers_together_have_a_limit(app: App) -> None:
    traced(app, *["x" * 500_000] * 2)
    collect, seen = collecting(app)

    with pytest.raises(PayloadTooLarge, match=r"^collect, payload and headers: .*at most 1,000,000"):
        collect.enqueue("a", "y" * 500_000)
    collect.enqueue("a", "y" * 400_000)
    burst(app)

    assert seen == [({"trace": "x" * 500_000},)]


def test_very_many_traces_of_one_payload_are_cut_off(app: App) -> None:
    traced(app, *[f"{n:032}" for n in range(1000)])
    collect, seen = collecting(app)

    collect.enqueue_many([("a", 1)] * 1000)
    burst(app)

    ((*found,),) = seen
    assert found == [{"trace": f"{n:032}"} for n in range(len(found))]
    assert 50 < len(found) < 100


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_stored_headers_that_cannot_be_read_are_ignored_and_the_run_goes_on(kind: str, tmp_path: Path) -> None:
    app = App(url(tmp_path) if kind == "sqlite" else redisbench.emptied().url)
    traced(app, *"12345")
    collect, seen = collecting(app)
    collect.enqueue_many([("a", 1), ("a", 2), ("a", 3)])
    garbage = b"\xff\xfe \x00{\n{}}"
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as raw:
            raw.execute("update laneway_payload set headers = cast(? as text) where body in (x'31', x'32')", (garbage,))
    else:
        ask, key = redisbench.server().ask, "laneway:{collect:0}:bodies:a"
        found = ask("HGETALL", key)
        for field, value in zip(found[::2], found[1::2], strict=True):
            if value[16:17] in b"12":
                ask("HSET", key, field, value[:17] + b"\0" + garbage)

    collect.enqueue("a", 1)  # joins what cannot be read
    assert [one.body for one in app.inspect.payloads("collect", "a")] == [b"2", b"3", b"1"]
    burst(app)

    assert seen == [({"trace": "3"}, {"trace": "4"})]
    assert app.inspect.counts() == ALL_DONE
    app.close()
