"""The relay: rows become jobs, each once and in order, whatever happens to relays, to the store and to the database."""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from conftest import often
from laneway import App, Worker
from laneway.core.job import Job
from laneway.errors import StoreError, StoreUnavailable
from laneway.outbox import relay as relays
from laneway.outbox.relay import Carried, Relay
from laneway.outbox.status import LAGS, check_outbox, retry_aside
from laneway.outbox.tables import NAMES
from laneway.store.contract import Relayed
from laneway.testing import wait_until
from laneway.worker.duties.relay import RelayDuty
from outboxbench import Box
from settling import settled_alike

KINDS = ("sqlite", "postgres")
ran: list[Any] = []


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    made = Box(request.param, tmp_path)
    declare(made.app)
    yield made
    made.close()


def declare(app: App) -> None:
    ran.clear()

    @app.task(name="ship", lane="lane")
    def ship(order: Any, lane: Any = None) -> None:
        ran.append(order)

    @app.collector(name="save")
    def save(lanes: dict[str, list[int]]) -> None:
        ran.append(lanes)


def insert(box: Box, *orders: Any, lane: Any = 1) -> None:
    """Commit rows for orders of a lane."""
    connection = box.connect()
    with box.app.transaction(connection):
        for order in orders:
            box.app.enqueue("ship", order, lane)
    connection.commit()
    connection.close()


def run_all(app: App) -> list[Any]:
    """Run what is there; return what has run so far. Their ids are free then."""
    Worker(app, slots=1).run(burst=True)
    return ran


@pytest.fixture
def carries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers leave the outbox alone."""
    monkeypatch.setattr(RelayDuty, "drain", lambda _: None)


# -- frozen and killed relays --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("carries_nothing")
def test_a_relay_that_is_frozen_before_its_push_repeats_nothing_when_it_wakes_up(box: Box) -> None:
    insert(box, 1, 2, 3)
    frozen, other = box.relay(at_once=2), box.relay()
    assert frozen._take_over()
    carried = frozen._turn()
    assert carried is not None
    box.lapse()
    while other.step().carried:
        pass
    assert run_all(box.app) == [1, 2, 3], "and their ids are free now"
    insert(box, 4)

    frozen._push(carried)  # it wakes up
    frozen._sent = carried
    assert frozen.step().holds is False
    while other.step().carried:
        pass

    assert run_all(box.app) == [1, 2, 3, 4]
    assert box.status.waiting == 0


@pytest.mark.usefixtures("carries_nothing")
def test_a_relay_that_is_frozen_after_its_push_deletes_nothing_when_it_wakes_up(box: Box) -> None:
    insert(box, 1, 2)
    frozen, other = box.relay(), box.relay()
    assert frozen.step().carried == 2
    assert run_all(box.app) == [1, 2]
    box.lapse()
    assert other.step().carried == 2, "rows that are still there are handed over again, and passed over"
    insert(box, 3)

    assert frozen.step().holds is False
    while other.step().carried:
        pass

    assert run_all(box.app) == [1, 2, 3]
    assert box.status.waiting == 0


@pytest.mark.usefixtures("carries_nothing")
def test_who_comes_after_a_killed_relay_sends_its_batch_first(box: Box) -> None:
    insert(box, 2, 3)
    killed = box.relay()
    assert killed._take_over()
    assert killed._turn() is not None
    killed.database.close()
    box.lapse()
    # This one was inserted before them, and commits only now.
    anyway = "overriding system value" if box.is_postgres else ""
    text = '{"task": "ship", "args": ["late"], "lane": "1"}'
    box.ask(f"insert into laneway_outbox (seq, job) {anyway} values (0, ?)", (text,))  # noqa: S608 - words of ours

    assert box.carry() == 3

    assert run_all(box.app) == [2, 3, "late"]


def test_only_one_relay_works_at_a_time_and_another_takes_over_at_once_when_it_stops(box: Box) -> None:
    first, second = box.relay(), box.relay()
    assert first.step().holds
    assert not second.step().holds
    first.release()
    assert second.step().holds
    assert not first.step().holds


def test_a_lease_from_before_the_clock_was_set_back_is_over(box: Box) -> None:
    box.ask("update laneway_outbox_meta set until = 99999999999999999")
    assert box.relay().step().holds


def test_an_idle_relay_prolongs_its_lease(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = box.relay()
    relay.step()
    monkeypatch.setattr(relay, "_leased", float("inf"))
    [(before,)] = box.ask("select until from laneway_outbox_meta")
    assert relay.step().holds
    assert box.ask("select until from laneway_outbox_meta") == [(before,)], "not with each look"

    monkeypatch.setattr(relay, "_leased", float("-inf"))
    assert relay.step().holds
    [(after,)] = box.ask("select until from laneway_outbox_meta")
    assert after > before


# -- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("carries_nothing")
def test_what_commits_late_is_neither_lost_nor_before_what_committed_earlier(tmp_path: Path) -> None:
    box = Box("postgres", tmp_path)
    declare(box.app)
    late, early = box.connect(), box.connect()
    with box.app.transaction(late):
        box.app.enqueue("ship", "late", 1)
    with box.app.transaction(early):
        box.app.enqueue("ship", "early", 1)
    early.commit()
    relay = box.relay()
    assert relay.step().carried == 1
    late.commit()
    insert(box, "after")
    while relay.step().carried:
        pass

    assert run_all(box.app) == ["early", "late", "after"]
    late.close()
    early.close()
    box.close()


def test_a_batch_is_bounded_by_rows_and_by_bytes(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(box, *range(5))
    relay = box.relay(at_once=3)
    assert [relay.step().carried for _ in range(3)] == [3, 2, 0]

    insert(box, *("x" * 1000 for _ in range(5)))
    monkeypatch.setattr(relays, "BYTES_AT_ONCE", 2500)
    assert [relay.step().carried for _ in range(3)] == [3, 2, 0]


# -- rows that cannot become jobs ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("carries_nothing")
def test_what_can_never_become_a_job_is_set_aside_and_holds_up_nobody(box: Box) -> None:
    insert(box, 1)
    box.ask("insert into laneway_outbox (job) values ('no json')")
    insert(box, 2)
    wrong = '{"task": "save", "queue": "default", "lane": "1", "body": "1", "gather": {}}'
    large = '{"task": "ship", "args": ["%s"]}' % ("x" * 1_000_001)
    for text in (wrong, large):
        box.ask("insert into laneway_outbox (job) values (?)", (text,))
    insert(box, 3)

    assert box.carry() == 6

    assert run_all(box.app) == [1, 2, 3]
    found = box.status
    assert (found.waiting, found.aside) == (0, 3)
    assert ["malformed" in found.reasons[-1].reason, found.reasons[-1].job] == [True, "no json"]
    assert {"collector" in row.reason or "bytes" in row.reason for row in found.reasons[:2]} == {True}
    assert box.app.outbox is not None
    assert check_outbox(box.app.outbox).level == "warning"

    box.ask("""update laneway_outbox_aside set job = '{"task": "ship", "args": [4]}' where job = 'no json'""")
    assert retry_aside(box.database) == 3
    box.carry()
    assert run_all(box.app)[-1] == 4
    assert box.status.aside == 2


def test_a_job_that_cannot_be_sent_is_found_and_set_aside_alone(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(box, *range(20))
    store = box.app.store
    taken = store.relay

    def refuse(source: str, rows: list[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        if any(job.body.startswith(b"[[13,") for _, job in rows):
            raise OverflowError("it cannot be sent")
        return taken(source, rows, timeout)

    monkeypatch.setattr(store, "relay", refuse)
    assert box.carry() == 20
    assert (box.app.inspect.counts()["ready"], box.status.aside) == (19, 1)
    assert box.status.reasons[0].reason == "OverflowError: it cannot be sent"


# -- what is away --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("carries_nothing")
def test_rows_wait_for_a_store_that_is_away(box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    insert(box, 1, 2)
    store, taken = box.app.store, box.app.store.relay
    assert box.app.outbox is not None
    duty = RelayDuty(box.app, box.app.outbox)

    def be_away(source: str, rows: list[tuple[int, Job]], timeout: float | None = None) -> list[Relayed]:
        taken(source, rows[:1], timeout)  # it took some, and its answer got lost
        raise StoreUnavailable("the store cannot be reached")

    monkeypatch.setattr(store, "relay", be_away)
    with caplog.at_level(logging.INFO, "laneway"):
        assert (duty.carry_portion(), duty.carry_portion()) == (1.0, 1.0)
        assert not duty.relay.holds, "another relay may try"
        assert box.status.waiting == 2
        assert run_all(box.app) == [1]
        monkeypatch.undo()
        assert duty.carry_portion() == 0.0
    duty.carry_portion()
    told = [record.getMessage() for record in caplog.records if record.name == "laneway"]
    assert sum("rows of the outbox wait: the store cannot be reached" in line for line in told) == 1
    assert any("goes on" in line for line in told)

    assert run_all(box.app) == [1, 2]
    assert box.status.waiting == 0
    duty.relay.database.close()


def test_a_relay_goes_on_when_the_database_is_there_again(box: Box) -> None:
    insert(box, 1)
    relay = box.relay()
    assert relay.step().carried == 1
    if box.is_postgres:
        box.ask("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'laneway'")
    else:
        shutil.move(box.address, f"{box.address}.away")
        relay.database.close()
    with contextlib.suppress(StoreError) if box.is_postgres else pytest.raises(StoreError):
        relay.step()  # a connection that was closed is replaced
    if not box.is_postgres:
        shutil.move(f"{box.address}.away", box.address)
    box.lapse()
    while relay.step().carried:
        pass
    assert box.status.waiting == 0
    assert box.app.inspect.counts()["ready"] == 1


def test_a_database_that_cannot_be_reached_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    app = App("sqlite://", outbox="postgresql://nobody@127.0.0.1:9/shop?timeout=1")
    assert app.outbox is not None
    duty = RelayDuty(app, app.outbox)
    assert (duty.carry_portion(), duty.carry_portion()) == (1.0, 1.0)
    [told] = [record.getMessage() for record in caplog.records if record.name == "laneway"]
    assert told.startswith("rows of the outbox wait: the outbox's database postgresql://")
    assert check_outbox(app.outbox).level == "problem"


def test_a_relay_that_is_frozen_in_a_transaction_loses_its_session(tmp_path: Path) -> None:
    box = Box("postgres", tmp_path)
    with box.database.writing() as ask:
        assert ask("show idle_in_transaction_session_timeout") == [("10s",)]
        assert ask("show lock_timeout") == [("2s",)]
    box.close()


def test_a_store_that_was_emptied_takes_new_rows(box: Box) -> None:
    insert(box, 1)
    assert box.carry() == 1
    redisbench.emptied()
    box.app.store.close()
    insert(box, 2)
    assert box.carry() == 1
    assert box.app.inspect.counts()["ready"] == 1


# -- a database from a backup --------------------------------------------------------------------------------------


class Dump:
    """The outbox's tables as they were."""

    def __init__(self, box: Box) -> None:
        self._box = box
        if box.is_postgres:
            for name in NAMES:
                box.ask(f"drop table if exists dump_{name}")
                box.ask(f"create table dump_{name} as select * from {name}")  # noqa: S608 - names of ours
        else:
            with sqlite3.connect(box.address) as source, sqlite3.connect(f"{box.address}.dump") as target:
                source.backup(target)
            source.close()
            target.close()

    def restore(self) -> None:
        box = self._box
        box.database.close()
        if not box.is_postgres:
            shutil.copy(f"{box.address}.dump", box.address)
            return
        for name in NAMES:
            box.ask(f"delete from {name}")  # noqa: S608 - as above
            columns = "seq, job, made" if name == "laneway_outbox" else "*"
            overriding = "(seq, job, made) overriding system value" if name == "laneway_outbox" else ""
            box.ask(f"insert into {name} {overriding} select {columns} from dump_{name}")  # noqa: S608 - as above
        last = "(select coalesce(max(seq), 0) + 1 from dump_laneway_outbox)"
        box.ask(f"select setval(pg_get_serial_sequence('laneway_outbox', 'seq'), {last}, false)")


@pytest.mark.usefixtures("carries_nothing")
def test_a_database_from_an_older_backup_repeats_no_row_that_had_a_number_and_takes_new_ones(box: Box) -> None:
    insert(box, 1, 2)
    killed = box.relay()
    assert killed._take_over()
    assert killed._turn() is not None
    killed.database.close()
    dump = Dump(box)
    box.lapse()
    box.carry()
    insert(box, 3, 4)
    box.carry()
    assert run_all(box.app) == [1, 2, 3, 4]

    dump.restore()
    box.lapse()
    insert(box, 5)
    assert box.carry() == 3, "1 and 2 have their old numbers, and are passed over"

    assert run_all(box.app) == [1, 2, 3, 4, 5]
    assert box.status.waiting == 0


@pytest.mark.usefixtures("carries_nothing")
def test_numbers_are_new_also_if_the_clock_is_behind_the_old_ones(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = Dump(box)
    monkeypatch.setitem(box.database._words, "now", "4000000000000000")
    insert(box, 1)
    relay = box.relay()
    relay.database._words["now"] = "4000000000000000"  # a clock that is far ahead
    while relay.step().carried:
        pass
    relay.release()
    assert box.app.store.taken(box.status.source) >= 4_000_000_000_000_000

    dump.restore()
    insert(box, 2)
    assert box.carry() == 1
    assert run_all(box.app) == [1, 2]


@pytest.mark.usefixtures("carries_nothing")
def test_rows_of_a_copied_database_are_not_lost_though_both_relay(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    relay = box.relay()
    relay.step()
    source = box.status.source
    box.app.store.relay(source, [(8_000_000_000_000_000, Job("other", "ship", "default", b'[["other"],{}]'))])
    insert(box, 1, 2)

    with caplog.at_level(logging.WARNING, "laneway"):
        while relay.step().carried or box.status.waiting:
            pass

    assert run_all(box.app) == ["other", 1, 2]
    assert any("needs a source of its own" in record.getMessage() for record in caplog.records)


# -- by chance -----------------------------------------------------------------------------------------------------


class Chance:
    """Random steps of users, relays and jobs; the store and the database are the real ones.

    Relays do their steps one by one, in any order: each of them may be left where it is for long, while others take over.
    """

    def __init__(self, seed: int, folder: Path, kind: type[Relay] = Relay) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.folder = folder
        self.app = App("sqlite://", outbox=f"sqlite:///{folder}/shop.db")
        assert self.app.outbox is not None
        self.database = relays_database(self.app)
        self.database.create()
        self.kind = kind
        self.relays: list[tuple[Relay, Iterator[None]]] = []
        self.hidden: dict[int, str] = {}  # rows of open transactions, by their seq
        self.committed: list[str] = []
        self.before: dict[str, set[str]] = {}  # row → those that had committed when it was enqueued
        self.taken: list[str] = []
        self.lanes: dict[str, str] = {}
        self.seq = 0

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.random.choices([self.enqueue, self.end, self.finish, self.cut, self.relay], [20, 15, 10, 4, 51])[0]()
            while self.hidden:
                self.end()
            self.settle()
            self.check()
        finally:
            self.database.close()
            for relay, _ in self.relays:
                relay.database.close()
            self.app.close()

    def enqueue(self) -> None:
        """A transaction takes the next number of the table, and commits later, or never: nobody sees it until then."""
        self.seq += 1
        name, lane, queue = f"r{self.seq}", self.random.choice("ab"), self.random.choice(["one", "two"])
        self.lanes[name] = f"{queue}/{lane}"
        self.before[name] = set(self.committed)
        self.hidden[self.seq] = f'{{"task":"t","id":"{name}","queue":"{queue}","lane":"{lane}"}}'

    def end(self) -> None:
        if self.hidden:
            seq = self.random.choice(sorted(self.hidden))
            text = self.hidden.pop(seq)
            if self.random.random() < 0.9:
                with self.database.writing() as ask:
                    ask("insert into laneway_outbox (seq, job) values (?, ?)", (seq, text))
                self.committed.append(f"r{seq}")

    def finish(self) -> None:
        """Jobs are done, and their ids are free."""
        store = self.app.store
        from laneway.core.outcome import Done  # noqa: PLC0415
        from laneway.store.contract import ClaimRequest  # noqa: PLC0415

        wants = [ClaimRequest("one", 2), ClaimRequest("two", 2)]
        claims = store.exchange("w", [], wants, self.random.randint(1, 4)).claims
        self.taken += [one.unit.id for one in claims]
        store.exchange("w", [settled_alike(one, Done(), 1, 2, 0) for one in claims], [], 0)

    def cut(self) -> None:
        """The lease is over: others may take over. The relay may be dead, or go on whenever it likes."""
        with self.database.writing() as ask:
            ask("update laneway_outbox_meta set until = 0")
        if self.relays and self.random.random() < 0.5:
            relay, _ = self.relays.pop(self.random.randrange(len(self.relays)))
            relay.database.close()

    def relay(self) -> None:
        if len(self.relays) < 3:
            made = self.kind(relays_database(self.app), lambda: self.app.store, at_once=self.random.randint(1, 4))
            self.relays.append((made, self.life(made)))
        next(self.random.choice(self.relays)[1])

    def life(self, relay: Relay) -> Iterator[None]:
        while True:
            if relay.holds or relay._take_over():
                yield
                carried = relay._turn()
                yield
                if carried is not None and carried.rows:
                    relay._push(carried)
                    yield
                    relay._sent = carried
            yield

    def settle(self) -> None:
        """All relays go on, then one carries the rest."""
        for _, life in self.relays:
            for _ in range(6):
                next(life)
        with self.database.writing() as ask:
            ask("update laneway_outbox_meta set until = 0")
        last = self.kind(relays_database(self.app), lambda: self.app.store, at_once=3)
        self.relays.append((last, iter(())))
        for _ in range(4 * self.seq + 20):
            last.step()
        for _ in range(4 * self.seq + 20):
            self.finish()

    def check(self) -> None:
        twice = [name for name, number in Counter(self.taken).items() if number > 1]
        assert not twice, f"taken twice: {twice}"
        assert set(self.taken) == set(self.committed), "lost" if set(self.committed) - set(self.taken) else "made up"
        at = {name: place for place, name in enumerate(self.taken)}
        overtaken = [
            (earlier, name)
            for name in self.taken
            for earlier in self.before[name]
            if self.lanes[earlier] == self.lanes[name] and at[earlier] > at[name]
        ]
        assert not overtaken, f"overtaken: {overtaken}"


def relays_database(app: App) -> Any:
    from laneway.outbox.database import open_database  # noqa: PLC0415

    assert app.outbox is not None
    return open_database(app.outbox)


@pytest.mark.soak
def test_by_chance_each_row_is_taken_once_and_in_order(tmp_path: Path) -> None:
    for seed in range(often(25, 3000)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            Chance(seed, folder).run(200)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        shutil.rmtree(folder)


class ByInsert(Relay):
    """Rows have the numbers of their insert."""

    def _next(self, ask: Any, last: int, now: int) -> Any:
        last, carried, written = super()._next(ask, last, now)
        carried.rows = [(seq, seq, job, age) for seq, _, job, age in carried.rows]
        carried.is_new = False
        return last, carried, written

    def _again(self, ask: Any, written: str, now: int) -> Any:
        carried = super()._again(ask, written, now)
        if carried is not None:
            carried.rows = [(seq, seq, job, age) for seq, _, job, age in carried.rows]
        return carried


class Forgetful(Relay):
    """Nobody sends the batch of another relay first: its rows get other numbers."""

    def _again(self, ask: Any, written: str, now: int) -> Carried | None:
        return None


class WithoutMarks(Relay):
    """The store takes what is not there, whatever its number."""

    def _hand_over(self, jobs: list[tuple[int, Job]]) -> list[Any]:
        return list(self._store().push([job for _, job in jobs])) if jobs else []


@pytest.mark.parametrize(
    ("without", "found"), [(ByInsert, "lost"), (Forgetful, "taken twice"), (WithoutMarks, "taken twice")]
)  # fmt: skip
def test_each_rule_is_needed(without: type[Relay], found: str, tmp_path: Path) -> None:
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            Chance(seed, folder, without).run(200)
        except AssertionError as error:
            if found in str(error):
                return
    raise AssertionError("nothing was noticed")


# -- as a duty -----------------------------------------------------------------------------------------------------


def test_a_worker_relays_soon_after_the_commit_and_hands_over_when_it_stops(box: Box) -> None:
    worker = Worker(box.app, slots=1)
    thread = started(worker.run)
    try:
        insert(box, 1)
        wait_until(lambda: ran == [1], timeout=10)
        insert(box, 2)
        wait_until(lambda: ran == [1, 2], timeout=10)
    finally:
        worker.stop()
        thread.join(10)
    assert box.status.waiting == 0
    assert not box.status.relayed, "another one may take over at once"


def test_a_relay_that_stops_right_after_a_push_leaves_no_row_that_is_a_job(box: Box) -> None:
    insert(box, 1)
    duty = RelayDuty(box.app, box.app.outbox or pytest.fail("no outbox"))
    carry_portion = duty.carry_portion

    def stopped_meanwhile() -> float:
        pause = carry_portion()
        if duty.carried:
            duty._stopping.set()  # the store has the job, and the row is not deleted yet
        return pause

    duty.carry_portion = stopped_meanwhile  # type: ignore[method-assign]
    duty.run()

    assert box.status.waiting == 0
    assert not box.status.relayed
    assert run_all(box.app) == [1]


def test_a_relay_that_stops_after_another_took_over_leaves_all_to_that_one(box: Box) -> None:
    insert(box, 1)
    late, other = box.relay(), box.relay()
    assert late.step().carried == 1
    box.lapse()
    assert other.step().carried == 1

    late.release()

    assert (box.status.waiting, box.status.relayed) == (1, True)
    other.release()
    assert (box.status.waiting, box.status.relayed) == (0, False)
    assert run_all(box.app) == [1]


def started(target: Callable[[], object]) -> Any:
    import threading  # noqa: PLC0415

    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_a_worker_with_burst_carries_what_is_there(box: Box) -> None:
    insert(box, 1, 2)
    assert run_all(box.app) == [1, 2]
    assert box.status.waiting == 0


def test_an_outbox_that_lags_is_a_problem(box: Box) -> None:
    insert(box, 1)
    assert box.app.outbox is not None
    assert check_outbox(box.app.outbox).level == "ok"
    box.ask("update laneway_outbox set made = made - ?", (round((LAGS + 1) * 1_000_000),))
    assert check_outbox(box.app.outbox).level == "problem"
    assert box.status.oldest >= LAGS


def test_a_store_in_another_database_is_served_too(tmp_path: Path) -> None:
    box = Box("sqlite", tmp_path, store=postgresbench.emptied().url)
    declare(box.app)
    insert(box, 1, 2)
    assert run_all(box.app) == [1, 2]
    assert box.status.waiting == 0
    box.close()
