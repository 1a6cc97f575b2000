"""Plans of the PostgreSQL store: no statement reads a whole table of jobs, however full that is and whatever is known of it.

The server writes each plan into its log, those of statements in functions too (auto_explain).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

import postgresbench

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

from laneway.core.job import Gather, Job, UniformJobs, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.ids import new_ids
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.postgres.statements import VERSION
from settling import settled_alike

BODY = b'[["x"],{}]'
ERROR = ErrorInfo("E", "")
OUTCOMES: tuple[Outcome, ...] = (Done(), Done(), Retrying(0, ERROR), Snoozed(0), Cancelled(), Dead(ERROR))
#: The tables that may be large.
LARGE = "job|ledger|payload|finished"
FULL = 20_000


@pytest.fixture(scope="module")
def server() -> Iterator[postgresbench.Server]:
    postgresbench.server()  # or fail
    own = postgresbench.Server(
        "shared_preload_libraries='auto_explain'", "auto_explain.log_min_duration=0", "auto_explain.log_nested_statements=on",
        "max_wal_size=256MB", "autovacuum=off",  # which would learn of a full table in between
    )  # fmt: skip
    yield own
    own.remove()


@pytest.fixture
def store(server: postgresbench.Server) -> Iterator[PostgresStore]:
    server.drop()
    made = PostgresStore(server.url, timeout=60, enqueue_timeout=60)
    made.migrate()
    yield made
    made.close()


def job(number: int, lane: str | None = None) -> Job:
    return Job(f"j{number}", "t", "jobs", BODY, lane)


def payload(lane: str) -> Job:
    return Job(lane_id("lanes", lane), "t", "lanes", f'"{lane}"'.encode(), lane, gather=Gather())


def use(store: PostgresStore, first: int) -> None:
    """Do what producers and workers do all the time."""
    inspect = PostgresInspect(store)
    worker = f"w{first}"
    store.push([job(first)])
    store.push([job(first + number, f"l{number % 3}" if number % 2 else None) for number in range(1, 20)])
    store.push([payload(f"p{number}") for number in range(5)])
    wants = [ClaimRequest("jobs", 10), ClaimRequest("lanes", 2, lanes=2)]
    settled: list[Settled] = []
    for turn in range(6):
        claims = store.exchange(worker, settled, wants if turn % 2 else wants[:1], 12).claims
        only_done = turn < 2
        settled = [
            settled_alike(claim, Done() if only_done else OUTCOMES[number % 6], keep=turn == 4)
            for number, claim in enumerate(claims)
        ]
    store.beat([WorkerInfo(worker)])
    store.give_back(worker, [item.claim.token for item in settled])
    store.exchange(worker, settled, [], 0)
    store.exchange(worker, [], wants, 12)
    store.recover(worker, "killed")
    store.push([job(first + 500, "l1")])
    inspect.cancel(f"j{first + 500}")
    with store.turn() as turn_:
        turn_.fold(wait=True)
    inspect.counts()
    store.ring()


def whole_scans(server: postgresbench.Server, since: int) -> list[str]:
    """Return the statements since a place in the log whose plans read a whole large table."""
    said = server.log.read_text()[since:]
    plans = re.split(r"LOG:  duration: [\d.]+ ms  plan:", said)[1:]
    assert len(plans) > 200, "the plans are not in the log"
    assert any(f"laneway.exchange_v{VERSION}" in plan for plan in plans)
    assert any("for update skip locked" in plan for plan in plans), "the plans of statements in functions are not in the log"
    found = [plan for plan in plans if re.search(rf"Seq Scan on ({LARGE})\b", plan)]
    return [re.sub(r"\n\S.*", "", plan, flags=re.DOTALL) for plan in found]


def test_no_whole_table_is_read_in_a_store_that_began_empty(server: postgresbench.Server, store: PostgresStore) -> None:
    since = len(server.log.read_text())
    use(store, 0)
    assert whole_scans(server, since) == []


@pytest.mark.parametrize("known", [False, True], ids=["plans of before", "plans that know it"])
def test_no_whole_table_is_read_in_a_full_store(server: postgresbench.Server, store: PostgresStore, known: bool) -> None:
    if not known:
        use(store, 0)  # sessions keep the plans that they made while it was empty
    for lane in (None, "a", "b"):
        store.push(UniformJobs(job(0, lane), new_ids(FULL // 4), [BODY] * (FULL // 4)))
    store.push([payload(f"x{number}") for number in range(500)])
    if known:
        server.ask("ANALYZE")
    since = len(server.log.read_text())
    use(store, 1000)
    assert whole_scans(server, since) == []
