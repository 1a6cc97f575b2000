"""What single functions of the PostgreSQL store promise each other, where no worker shows it: rows in, rows out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import postgresbench
from conftest import Clock, postgres

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.store.postgres.statements import VERSION
from laneway.store.sql.rows import BLOCKED, DEAD, READY, RETRYING, RUNNING, SCHEDULED

#: The store's time, microseconds.
NOW = 1_000_000_000
NO_FLOOR = (0, 0, 0)
#: The types of what an exchange is given.
GIVEN = (
    "text", "bigint", "bigint[]", *["text[]"] * 4, "integer[]", "integer", "bigint[]", "bigint[]", "boolean", "bigint", "jsonb",
    "boolean",
)  # fmt: skip


class Answer(NamedTuple):
    """What an exchange has claimed, in order, and the row that it ends with."""

    claims: list[str]
    more: bool
    cut: bool
    nothing: int | None
    next_due: int | None


class Desk:
    """A transaction that is rolled back at the end of a test: each test has its own rows."""

    def __init__(self, line: psycopg.Connection) -> None:
        self._line = line
        self._seq = 0
        self.inbox = False  #: the last exchange said that the inbox is to be looked at
        self.ask("set local statement_timeout = '30s'")  # a walk that does not end is told
        self.ask("insert into laneway.fence (worker, epoch) values ('w', 1)")

    def ask(self, sql: str, *values: object) -> list[Any]:
        answer = self._line.execute(sql.encode(), values or None)
        return answer.fetchall() if answer.description else []

    def call(self, function: str, *values: object) -> Any:
        """Return what a function of this version does."""
        places = ", ".join(["%s"] * len(values))
        return self.ask(f"select laneway.{function}_v{VERSION}({places})", *values)[0][0]

    def put(
        self, id_: str, lane: str | None = None, state: int = READY, *, queue: str = "q", due: int = 10, rank: int = 0,
        holds: bool = False, **more: object,
    ) -> int:  # fmt: skip
        """Insert a job; return its sequence number."""
        self._seq += 1
        row = {
            "seq": self._seq, "id": id_, "queue": queue, "task": "t", "lane": lane, "rank": rank, "place": due, "due": due,
            "state": state, "holds": int(holds), "enqueued": 0, "body": b'[["x"],{}]', **more,
        }  # fmt: skip
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        self.ask(f"insert into laneway.job ({names}) values ({places})", *row.values())  # noqa: S608 - our own names
        self.ask("insert into laneway.queue (name) values (%s) on conflict do nothing", queue)
        return self._seq

    def states(self) -> dict[str, int]:
        return dict(self.ask("select id, state from laneway.job"))

    def counted(self) -> list[Any]:
        """Return the changes of counts: queue, scheduled, ready, retrying, blocked, running."""
        columns = "queue, scheduled, ready, retrying, blocked, running"
        return self.ask(f"select {columns} from laneway.ledger order by queue, ready, running")  # noqa: S608 - the same

    def exchange(
        self, *, most: int = 9, limit: int | None = None, tokens: Sequence[int] = (), lanes: Sequence[str] = (), queue: str = "q",
        wants: Sequence[str] = ("q",), floor: tuple[int, int, int] = NO_FLOOR, lane_floor: tuple[int, int, int] = NO_FLOOR,
        full: bool = True, near: int = 0, durable: bool = False, behind: tuple[int, int, int] = NO_FLOOR, lines: str = "{}",
    ) -> Answer:  # fmt: skip
        """Do an exchange. Floors are of the first queue; `behind` is that of all others."""
        others = behind * (len(wants) - 1)
        rows = self.ask(
            f"select * from laneway.exchange_v{VERSION}({', '.join(f'%s::{kind}' for kind in GIVEN)})",  # noqa: S608 - the same
            "w", 1, list(tokens), ["[]"] * len(tokens), [queue] * len(lanes), list(lanes), list(wants), [most] * len(wants),
            most if limit is None else limit, [*floor, *others], [*lane_floor, *others], full, near, lines, durable,
        )  # fmt: skip
        self.inbox = (end := rows.pop())[11] == "inbox"
        return Answer([row[2] for row in sorted(rows, key=lambda row: row[1])], bool(end[6]), bool(end[10]), end[1], end[8])


@pytest.fixture
def desk() -> Iterator[Desk]:
    store = postgres(Path(), Clock()).store
    with contextlib.closing(store), contextlib.closing(psycopg.connect(postgresbench.server().url)) as line:
        yield Desk(line)
        line.rollback()  # the backend of a connection that is closed keeps its locks for a moment: the next test would meet them


# -- parking -----------------------------------------------------------------------------------------------------


def test_jobs_are_parked_behind_the_holder_of_their_own_lane(desk: Desk) -> None:
    desk.put("holder", "a", RUNNING, holds=True)
    given = [desk.put(f"a{state}", "a", state) for state in (SCHEDULED, READY, RETRYING, BLOCKED, RUNNING, DEAD)]
    desk.put("another", "a")
    desk.put("elsewhere", "b", RUNNING, queue="other", holds=True)
    given += [desk.put("b1", "b"), desk.put("b2", "b")]
    given += [desk.put("waits", "c", holds=True), desk.put("c1", "c")]
    before = desk.states()

    assert desk.call("park", NOW, "q", given) == 4

    parked = {id_ for id_, state in desk.states().items() if state != before[id_]}
    assert parked == {f"a{SCHEDULED}", f"a{READY}", f"a{RETRYING}", "c1"}
    assert desk.counted() == [("q", -1, -2, -1, 4, 0)]
    assert desk.call("park", NOW, "q", given) == 0
    assert len(desk.counted()) == 1  # nothing is written


# -- floors ------------------------------------------------------------------------------------------------------

#: Where a walk begins: before the second of two jobs, or behind both.
BETWEEN, BEHIND = (20, 0, 0), (99, 0, 0)


@pytest.mark.parametrize(
    ("floor", "most", "full", "expected"),
    [
        (NO_FLOOR, 1, False, (["1"], True, False)),
        (NO_FLOOR, 2, False, (["1", "2"], False, False)),
        (NO_FLOOR, 3, False, (["1", "2"], False, False)),
        (BETWEEN, 1, False, (["2"], False, True)),
        (BETWEEN, 2, False, (["2"], False, True)),
        (BETWEEN, 1, True, (["2"], True, False)),
        (BETWEEN, 2, True, (["2", "1"], False, False)),
        (BEHIND, 1, True, (["1"], True, False)),
        (BEHIND, 2, True, (["1", "2"], False, False)),
    ],
)
@pytest.mark.parametrize("lanes", [(None, None), ("a", "b")], ids=["jobs", "lanes"])
@pytest.mark.parametrize("expire", [False, True])
def test_a_walk_begins_at_its_floor_and_says_if_it_was_cut(
    desk: Desk, lanes: tuple[str | None, str | None], floor: tuple[int, int, int], most: int, full: bool, expire: bool,
    expected: tuple[list[str], bool, bool],
) -> None:  # fmt: skip
    """Whether more is due, and whether the walk may have missed something, is told from the floor on, unless it is to be full."""
    for number, lane in enumerate(lanes, 1):
        desk.put(f"{number}", lane, due=10 * number, expires=2 * NOW if expire else None)
    floors = {"floor" if lanes[0] is None else "lane_floor": floor}

    answer = desk.exchange(most=most, full=full, **floors)  # type: ignore[arg-type]

    assert answer[:3] == expected


@pytest.mark.parametrize(
    ("floor", "full", "expected"),
    [
        (NO_FLOOR, True, (["next"], False, False, 3, NOW + 3)),
        (NO_FLOOR, False, (["next"], False, False, 3, NOW + 3)),
        (BETWEEN, True, (["next"], False, False, 3, NOW + 3)),
        (BETWEEN, False, (["next"], False, True, 3, NOW + 3)),
    ],
)
@pytest.mark.parametrize("kind", ["floor", "lane_floor"])
@pytest.mark.parametrize("state", [SCHEDULED, READY, RETRYING, BLOCKED])
def test_a_lane_that_goes_on_alone_says_if_its_walk_was_cut(
    desk: Desk, kind: str, state: int, floor: tuple[int, int, int], full: bool, expected: tuple[list[str], bool, bool, int, int]
) -> None:
    desk.put("elsewhere", due=NOW + 1, state=SCHEDULED, queue="another")
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", state, due=50)
    desk.put("runs", "b", RUNNING, due=NOW + 1, holds=True)
    desk.put("later", due=NOW + 3, state=RETRYING)

    assert desk.exchange(tokens=[7], lanes=["a"], full=full, **{kind: floor}) == expected  # type: ignore[arg-type]
    assert not desk.inbox
    assert desk.counted() == [("q", -(state == SCHEDULED), -(state == READY), -(state == RETRYING), -(state == BLOCKED), 0)]
    assert desk.states() == {"next": RUNNING, "runs": RUNNING, "later": RETRYING, "elsewhere": SCHEDULED}


@pytest.mark.parametrize("lane", [None, "b"])
@pytest.mark.parametrize("full", [False, True])
def test_a_lane_that_goes_on_hides_nothing_in_front_of_the_floor(desk: Desk, lane: str | None, full: bool) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED, due=50)
    desk.put("in front", lane)

    answer = desk.exchange(tokens=[7], lanes=["a"], full=full, floor=BETWEEN, lane_floor=BETWEEN)

    assert answer[:3] == ((["next", "in front"], False, False) if full else (["next"], False, True))


def test_nothing_is_said_of_what_is_due_later_if_more_is_due_now(desk: Desk) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED)
    desk.put("other", due=60)
    desk.put("later", due=2 * NOW, state=SCHEDULED)

    assert desk.exchange(tokens=[7], lanes=["a"], most=1) == (["next"], True, False, 2, None)


OTHERS: dict[str, dict[str, Any]] = {
    "urgent": {"rank": -5},
    "idle": {"rank": 5},
    "a job": {},
    "of another lane": {"lane": "b"},
    "of the lane": {"lane": "a", "due": 60},
    "later": {"due": 2 * NOW, "state": SCHEDULED},
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("state", [SCHEDULED, READY, RETRYING, BLOCKED])
def test_an_exchange_that_looks_no_further_hands_its_lane_on_whatever_else_is_due(desk: Desk, other: str, state: int) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True, line_from=40)
    desk.put("next", "a", state, due=50)
    desk.put(other, **OTHERS[other])
    desk.put("elsewhere", "a", queue="another")

    assert desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW, floor=BETWEEN, full=False) == (["next"], False, False, None, None)
    assert not desk.inbox
    assert desk.counted() == [("q", -(state == SCHEDULED), -(state == READY), -(state == RETRYING), -(state == BLOCKED), 0)]
    assert desk.states() == {"next": RUNNING, other: OTHERS[other].get("state", READY), "elsewhere": READY}


@pytest.mark.parametrize("why", ["nothing is next", "expired", "not due"])
def test_an_exchange_that_cannot_hand_its_lane_on_looks_further(desk: Desk, why: str) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    if why == "expired":
        desk.put("next", "a", expires=1)
    elif why == "not due":
        desk.put("next", "a", RETRYING, due=2 * NOW)
    desk.put("other", due=60)

    assert desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW)[:2] == (["other"], False)
    assert "ended" not in desk.states()
    assert ("next" in desk.states()) == (why == "not due")


def test_an_exchange_that_looks_no_further_hands_no_lane_of_a_paused_queue_on(desk: Desk) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED)
    desk.ask("update laneway.queue set paused = true")

    assert desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW).claims == []
    assert desk.ask("select id, state, holds from laneway.job") == [("next", READY, 1)]
    assert set(booked(desk)) == {("q", 0, -1, "1", 1, "[],"), ("q", 1, 0, None, 0, None)}


def test_an_exchange_that_looks_no_further_hands_no_lane_of_a_collectors_queue_on(desk: Desk) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED)
    desk.ask("update laneway.queue set collects = true")

    with pytest.raises(psycopg.DatabaseError) as caught:
        desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW)
    assert caught.value.sqlstate == "LW005"


def test_an_exchange_that_looks_no_further_hands_no_lane_on_that_the_worker_does_not_hold(desk: Desk) -> None:
    desk.put("ended", "a", RUNNING, worker="v", token=7, holds=True)
    desk.put("next", "a", BLOCKED)

    assert desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW).claims == []
    assert desk.states() == {"ended": RUNNING, "next": BLOCKED}
    assert desk.ask("select totals from laneway.ledger") == [({"refused": 1},)]


def test_an_exchange_that_looks_no_further_hands_no_lane_on_that_others_are_about_to_join(desk: Desk) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED)
    columns = "id, queue, task, lane, rank, delay, at, expires, body"
    desk.ask(f"insert into laneway.inbox ({columns}) values ('new', 'q', 't', 'a', 0, 0, 1, 0, '')")  # noqa: S608 - our own names

    with pytest.raises(psycopg.DatabaseError) as caught:
        desk.exchange(tokens=[7], lanes=["a"], near=2 * NOW)
    assert caught.value.sqlstate == "LW007"


def test_what_is_left_behind_the_floor_is_more(desk: Desk) -> None:
    for number in range(1, 4):
        desk.put(f"{number}", due=10 * number)

    assert desk.exchange(most=1, floor=BETWEEN, full=False)[:3] == (["2"], True, False)


def test_only_what_waits_for_its_time_is_due_next(desk: Desk) -> None:
    """By another clock what is parked or runs may be due later."""
    desk.put("runs", "a", RUNNING, due=NOW + 1, holds=True)
    desk.put("parked", "a", BLOCKED, due=NOW + 2)
    desk.put("later", due=NOW + 3, state=RETRYING)
    desk.put("elsewhere", due=NOW + 1, state=SCHEDULED, queue="other")

    assert desk.exchange() == ([], False, False, 3, NOW + 3)
    asked = f"select * from laneway.queue_due_v{VERSION}(%s, 'q')"  # noqa: S608 - our own name
    assert desk.ask(asked, NOW) == [(False, NOW + 3)]
    desk.put("due", state=SCHEDULED)
    assert desk.ask(asked, NOW) == [(True, NOW + 3)]


def test_a_walk_that_finds_nothing_behind_its_floor_begins_at_the_front(desk: Desk) -> None:
    """Where it may; else it says that it was cut. An exchange that wants nothing hears of all that is due."""
    desk.put("1")

    for most in (0, 1):
        assert desk.exchange(most=most, floor=BEHIND, full=False)[:3] == ([], False, True)
    assert desk.exchange(most=0, floor=BEHIND)[:3] == ([], True, False)
    assert desk.exchange(floor=BEHIND)[:3] == (["1"], False, False)


@pytest.mark.parametrize("rank", [-5, -1, 1, 5])
def test_more_is_said_if_a_job_of_any_priority_is_due(desk: Desk, rank: int) -> None:
    desk.put("runs", state=RUNNING, rank=rank)
    desk.put("later", rank=rank, due=2 * NOW)
    assert not desk.exchange(most=0).more
    desk.put("1", rank=rank)

    assert desk.exchange(most=0).more


@pytest.mark.parametrize(("jobs", "nothing"), [([], 3), ([None], 3), (["a"], 1), ([None, "a"], 1)])
def test_it_is_told_which_walks_found_no_more(desk: Desk, jobs: list[str | None], nothing: int) -> None:
    """Bit 0: of jobs without lanes; bit 1: of lanes, none of which was due; for the second queue these are bits 2 and 3."""
    desk.put("another", queue="first", state=RUNNING)
    for number, lane in enumerate(jobs):
        desk.put(f"{number}", lane)
    desk.put("later", due=2 * NOW)

    assert desk.exchange(wants=["first", "q"]).nothing == 3 | nothing << 2


def test_a_walk_of_another_priority_tells_nothing_of_the_others(desk: Desk) -> None:
    desk.put("urgent", rank=-5)
    for number in range(3):
        desk.put(f"{number}")

    assert desk.exchange(most=2) == (["urgent", "0"], True, False, 2, None)


def test_lanes_before_their_floor_are_left_to_a_walk_from_the_front(desk: Desk) -> None:
    """A second queue, whose walk is not cut, does not change what is said of the first."""
    desk.put("1", "a", SCHEDULED)
    desk.put("another", queue="second", state=RUNNING)

    assert desk.exchange(lane_floor=BEHIND, full=False, wants=["q", "second"]) == ([], False, True, 15, None)
    assert desk.exchange(lane_floor=BEHIND, full=False, wants=["q", "unknown"], behind=BEHIND)[:3] == ([], False, True)
    assert desk.exchange(lane_floor=BEHIND)[:3] == (["1"], False, False)


@pytest.mark.parametrize(("floor", "claims"), [(NO_FLOOR, ["first", "other", "next"]), (BEHIND, ["first", "next"])])
def test_a_lane_that_goes_on_before_the_floor_is_found(desk: Desk, floor: tuple[int, int, int], claims: list[str]) -> None:
    desk.put("leaves", "a", RUNNING, worker="w", token=1, holds=True)
    desk.put("next", "a", BLOCKED, due=20)
    desk.put("first")
    desk.put("other", "b", due=15)

    assert desk.exchange(tokens=[1], lanes=["a"], lane_floor=floor, full=False).claims == claims


def test_a_floor_is_for_jobs_without_a_priority(desk: Desk) -> None:
    for number, rank in enumerate((0, -5, 5, 0), 1):
        desk.put(f"{number}", rank=rank, due=10 * number)

    assert desk.exchange(floor=(30, 0, 0), full=False) == (["2", "4", "3"], False, True, 3, None)


@pytest.mark.parametrize(("lane", "nothing"), [("a", 1), (None, 2)])
def test_what_walks_of_many_queues_found_is_told_of_the_first_thirty(desk: Desk, lane: str | None, nothing: int) -> None:
    desk.put("1", lane)
    desk.put("2", lane)
    others = [f"q{n}" for n in range(40)]
    for queue in others:
        desk.put(queue, queue=queue, state=RUNNING)

    found = desk.exchange(wants=["q", *others], most=1, limit=99).nothing

    assert found is not None
    assert found & 3 == (0 if lane else nothing)
    assert found.bit_length() == 60


# -- leaving -----------------------------------------------------------------------------------------------------


def booked(desk: Desk) -> list[Any]:
    columns = "queue, ready, running, totals ->> 'processed', number, runs"
    return desk.ask(f"select {columns} from laneway.ledger order by queue")  # noqa: S608 - our own names


def test_successes_of_several_queues_are_counted_by_queue_and_their_runs_once(desk: Desk) -> None:
    for token, queue in enumerate("bab", 1):
        desk.put(f"{token}", None, RUNNING, queue=queue, worker="w", token=token)

    desk.exchange(tokens=[1, 2, 3], wants=[])

    assert booked(desk) == [("a", 0, -1, "1", 3, "[],[],[],"), ("b", 0, -2, "2", 0, None)]


@pytest.mark.parametrize(
    ("settled", "expected"),
    [("q", [("q", -1, 0, "1", 1, "[],")]), ("a", [("a", 0, -1, "1", 1, "[],"), ("q", -1, 1, None, 0, None)])],
)
def test_what_leaves_and_what_is_claimed_are_counted_together_if_they_are_of_one_queue(
    desk: Desk, settled: str, expected: list[object]
) -> None:
    desk.put("leaves", None, RUNNING, queue=settled, worker="w", token=1)
    desk.put("claimed")

    assert desk.exchange(tokens=[1]).claims == ["claimed"]

    assert booked(desk) == expected


def test_behind_the_next_of_a_lane_that_goes_straight_on_others_are_claimed(desk: Desk) -> None:
    desk.put("leaves", "a", RUNNING, worker="w", token=1, holds=True)
    desk.put("next", "a", BLOCKED)
    desk.put("other", "b", due=11)
    desk.put("plain", due=12)

    assert desk.exchange(tokens=[1], lanes=["a"])[:3] == (["next", "other", "plain"], False, False)


# -- lanes -------------------------------------------------------------------------------------------------------


def test_many_lanes_are_claimed_in_order(desk: Desk) -> None:
    lanes = [f"{n:03}" for n in range(150)]
    for lane in reversed(lanes):
        desk.put(lane, lane, due=int(lane))

    assert desk.exchange(most=70)[:3] == (lanes[:70], True, False)
    assert desk.exchange(most=99)[:3] == (lanes[70:], False, False)


def test_a_lane_that_somebody_has_locked_is_more(desk: Desk) -> None:
    """Alone, or among others. It is left, and the worker asks again."""
    desk.put("1", "a")
    with psycopg.connect(postgresbench.server().url) as other:
        other.execute("select pg_advisory_xact_lock(laneway.lane_key('q', 'a'))")
        assert desk.exchange()[:2] == ([], True)
        desk.put("2", "b")
        assert desk.exchange()[:2] == (["2"], True)
        desk.put("3", queue="second")
        assert desk.exchange(wants=["q", "second"], most=1, limit=2)[:2] == (["3"], True)
    assert desk.exchange()[:2] == (["1"], False)


def test_nobody_is_parked_in_a_lane_that_somebody_has_locked(desk: Desk) -> None:
    desk.put("holder", "a", RUNNING, holds=True)
    desk.put("waits", "a")
    desk.put("free", "b")
    with psycopg.connect(postgresbench.server().url) as other:
        other.execute("select pg_advisory_xact_lock(laneway.lane_key('q', 'a'))")
        assert desk.exchange()[:2] == (["free"], True)
        assert desk.states()["waits"] == READY
    assert desk.exchange()[:2] == ([], False)
    assert desk.states()["waits"] == BLOCKED


def test_lanes_behind_many_that_somebody_has_locked_are_found(desk: Desk) -> None:
    """What is due before or between them and has no lane comes in order, too."""
    for number in range(80):
        desk.put(f"{number}", f"{number}", due=number)
    desk.put("before", due=5)
    desk.put("between", due=35)
    with psycopg.connect(postgresbench.server().url) as other:
        other.execute("select pg_advisory_xact_lock(laneway.lane_key('q', n::text)) from generate_series(0, 34) n")
        assert desk.exchange(most=4)[:2] == (["before", "35", "between", "36"], True)
        assert desk.exchange(most=99)[:2] == ([f"{number}" for number in range(37, 80)], True)
    assert desk.exchange(most=99)[:2] == ([f"{number}" for number in range(35)], False)


def test_a_holder_knows_from_where_on_the_others_of_its_lane_stand(desk: Desk) -> None:
    desk.put("plain")
    desk.put("first", "a")
    desk.put("holder", "b", holds=True, line_from=3)

    desk.exchange()

    assert desk.ask("select id, holds, line_from from laneway.job order by seq") == [
        ("plain", 0, None), ("first", 1, 10), ("holder", 1, 3),
    ]  # fmt: skip


def test_a_walk_looks_at_no_place_of_a_lane_before_the_one_that_is_remembered(desk: Desk) -> None:
    for lane in "ab":
        desk.put(f"holder of {lane}", lane, RETRYING, due=NOW * 2000, place=10, holds=True)
        desk.put(f"next of {lane}", lane, due=20)
    desk.put("early", "c", due=30)
    desk.put("late", "c", due=40)

    assert desk.exchange(lines='{"q": {"a": 11, "c": 31}, "other": {"b": 11}}').claims == ["next of a", "late"]


def test_a_step_locks_few_lanes_of_which_no_job_can_be_claimed(desk: Desk) -> None:
    for number in range(150):
        desk.put(f"holder {number}", f"{number}", RETRYING, due=2 * NOW, holds=True)
        desk.put(f"{number}", f"{number}", due=number)

    assert desk.exchange()[:2] == ([], True)
    assert 64 <= list(desk.states().values()).count(BLOCKED) < 128
    assert desk.exchange()[:2] == ([], False)


def test_what_is_in_a_lane_is_committed_to_the_disk(desk: Desk) -> None:
    def waits(**asked: Any) -> bool:
        desk.ask("set local synchronous_commit = on")
        desk.exchange(**asked)
        return bool(desk.ask("show synchronous_commit") == [("on",)])

    desk.put("plain")
    assert not waits()
    assert waits(durable=True)
    desk.put("1", "a")
    assert waits()
    [(token,)] = desk.ask("select token from laneway.job where id = '1'")
    assert waits(tokens=[token], lanes=["a"])
    assert not waits()


def test_the_next_of_a_lane_is_the_first_that_is_parked_or_due(desk: Desk) -> None:
    """Of its own lane and queue, from a place on; neither what runs or is dead, nor a lane of a collector."""

    def head(place: int, seq: int = 0) -> list[Any]:
        found = f"laneway.line_head_v{VERSION}(%s, 'q', 'a', %s, %s)"
        return desk.ask(f"select seq, parked from {found}", NOW, place, seq)  # noqa: S608 - our own names

    desk.put("running", "a", RUNNING, due=1)
    desk.put("dead", "a", DEAD, due=1)
    desk.put("collects", "a", due=1, side=0)
    desk.put("another", "b", BLOCKED, due=1)
    desk.put("elsewhere", "a", BLOCKED, queue="other", due=1)
    desk.put("later", "a", SCHEDULED, due=2 * NOW, place=2)
    assert head(0) == []

    due = desk.put("due", "a", due=30)
    assert head(0) == [(due, False)]
    parked = desk.put("parked", "a", BLOCKED, due=2 * NOW, place=20)
    assert head(0) == head(20) == [(parked, True)]
    assert head(21) == head(20, parked + 1) == [(due, False)]
    assert head(20, parked) == [(parked, True)]
    first = desk.put("first", "a", due=10)
    assert head(0) == [(first, True)]


def test_the_next_of_a_lane_holds_it_if_some_are_parked_there(desk: Desk) -> None:
    """No other job of the lane has an earlier place than was quiet; none has its own, if that is before."""
    states = (SCHEDULED, READY, RETRYING, BLOCKED, READY)
    given = [desk.put(f"{n}", f"{n}", state, queue="qr"[n % 2]) for n, state in enumerate(states)]
    parked = [True, True, True, True, False]

    assert desk.call("hold_lanes", NOW, 5, given, list(states), parked) is True

    assert desk.ask("select id, state, holds, line_from from laneway.job order by id") == [
        *((f"{n}", READY, 1, 4) for n in range(4)), ("4", READY, 0, None),
    ]  # fmt: skip
    assert desk.counted() == [("q", -1, 2, -1, 0, 0), ("r", 0, 1, 0, -1, 0)]
    assert desk.call("hold_lanes", NOW, 5, given[:1], [READY], [False]) is False
    assert desk.call("hold_lanes", NOW, 5, None, None, None) is False


def test_a_job_is_compared_with_those_of_its_queue_that_wait_for_their_time(desk: Desk) -> None:
    desk.put("another queue's", queue="other", state=SCHEDULED, due=5)
    desk.put("ready", due=5)
    desk.put("equal", state=RETRYING, due=10)
    assert desk.call("is_first", "q", 10)

    desk.put("sooner", state=SCHEDULED, due=9)
    assert not desk.call("is_first", "q", 10)


def test_a_new_job_is_ready_or_waits_for_its_time_and_is_counted_so(desk: Desk) -> None:
    desk.ask(
        f"select laneway.push_v{VERSION}('{{a,b}}', array['x', 'y']::bytea[], '{{q,q}}', '{{t,t}}', '{{null,null}}', '{{0,0}}', "
        "'{0,60000000}', '{0,0}', '{null,null}', '{null,null}', '{0,0}', false, false)"
    )

    assert desk.states() == {"a": READY, "b": SCHEDULED}
    assert desk.counted() == [("q", 1, 1, 0, 0, 0)]


def test_who_has_room_is_told_to_look_at_the_inbox(desk: Desk) -> None:
    desk.exchange()
    assert not desk.inbox
    desk.put("1")
    desk.ask("""select laneway.enqueue('{"task": "t", "unique": "k"}')""")
    desk.exchange(most=1)
    assert not desk.inbox
    desk.exchange()
    assert desk.inbox


@pytest.mark.parametrize(("lane", "most"), [("b", 1), ("b", 2), ("a", 2)])
def test_a_lane_that_goes_on_looks_at_the_inbox(desk: Desk, lane: str, most: int) -> None:
    desk.put("ended", "a", RUNNING, worker="w", token=7, holds=True)
    desk.put("next", "a", BLOCKED)
    desk.ask("select laneway.enqueue(%s)", f'{{"task": "t", "unique": "k", "queue": "q", "lane": "{lane}"}}')

    if lane == "a":  # it may come before the next one
        with pytest.raises(psycopg.Error, match="the inbox has jobs of these lanes"):
            desk.exchange(most=most, tokens=[7], lanes=["a"])
    else:
        assert desk.exchange(most=most, tokens=[7], lanes=["a"]).claims == ["next"]
        assert desk.inbox == (most > 1)
