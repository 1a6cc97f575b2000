"""What only the Redis store has: a server, its connections, its scripts and keys, and what can go wrong with them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import redisbench
from conftest import Clock
from laneway import App
from laneway.cli.top import Top
from laneway.config import safe_url
from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Retrying, Settled, Snoozed
from laneway.errors import (
    BulkError,
    ConfigError,
    SchemaError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from laneway.ids import new_id
from laneway.present.snapshot import Snapshot
from laneway.store.contract import ClaimRequest, Occurrence, WorkerInfo
from laneway.store.inspection import Filter
from settling import settled_alike

if redisbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(redisbench.why_not(), allow_module_level=True)

from laneway.store.redis import RedisInspect, RedisStore, opening, queues
from laneway.store.redis import record as records
from laneway.store.redis.connection import Connection
from laneway.store.redis.keys import QUEUE_KEYS, queue_key
from laneway.store.redis.tokens import STEP, queue_number, tokens_from
from laneway.store.watch import Watch
from workbench import DEADLINE, SOON

T = TypeVar("T")
WANT = [ClaimRequest("default", 100)]
ERROR = ErrorInfo(kind="E", message="no")
JOB = queue_key("default", "JOB")


def job(id_: str | None = None, lane: str | None = None, queue: str = "default", **more: object) -> Job:
    return Job(id_ or new_id(), "app.task", queue, b"[[1],{}]", lane, **more)  # type: ignore[arg-type]


def pay(lane: str, value: int, queue: str = "orders") -> Job:
    return Job(lane_id(queue, lane), "app.sync", queue, b"%d" % value, lane, gather=Gather())


@pytest.fixture
def server() -> redisbench.Server:
    return redisbench.emptied()


@pytest.fixture
def own_server() -> Iterator[Callable[..., redisbench.Server]]:
    """Servers that a test may kill, configure and fill."""
    started: list[redisbench.Server] = []

    def start(*options: str) -> redisbench.Server:
        started.append(redisbench.Server(*options))
        return started[-1]

    yield start
    for one in started:
        one.remove()


@pytest.fixture
def opened() -> Iterator[Callable[..., RedisStore]]:
    stores: list[RedisStore] = []

    def open_one(server: redisbench.Server, **options: float) -> RedisStore:
        stores.append(RedisStore(server.url, **options))  # type: ignore[arg-type]
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(server: redisbench.Server, opened: Callable[..., RedisStore]) -> RedisStore:
    return opened(server)


def ids(claims: list[Claim]) -> list[str]:
    return [claim.unit.id for claim in claims]


def claim(store: RedisStore, limit: int = 100, worker: str = "w", queue: str = "default") -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, limit)], limit).claims


def settle(store: RedisStore, claims: list[Claim], outcome: object, worker: str = "w", keep: int = 0) -> list[str]:
    return store.exchange(worker, [settled_alike(c, outcome, 1, 2, keep) for c in claims], [], 0).refused  # type: ignore[arg-type]


def states(store: RedisStore) -> dict[str, int]:
    return {state: number for state, number in RedisInspect(store).counts().items() if number}


# -- settling as usual ---------------------------------------------------------------------------------------------


def scripts_run(server: redisbench.Server) -> int:
    found = re.search(rb"cmdstat_evalsha:calls=(\d+)", bytes(server.ask("INFO", "commandstats")))
    return int(found[1]) if found else 0


def test_successes_alone_are_settled_by_one_short_script(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job(f"j{n}") for n in range(40)])
    held = claim(store, 30)
    settle(store, held[:10], Done())  # the server may not have known the script
    server.ask("CONFIG", "RESETSTAT")

    assert settle(store, held[10:20], Done()) == []

    assert scripts_run(server) == 1
    assert states(store) == {"ready": 10, "running": 10}
    assert RedisInspect(store).totals()["processed"] == 20
    assert len(RedisInspect(store).recent(100)) == 20


@pytest.mark.parametrize("spoil", ["lost", "twice", "lane", "dead", "result"])
def test_what_is_not_so_simple_is_settled_as_well(store: RedisStore, spoil: str) -> None:
    store.push([job(f"j{n}", lane="l" if spoil == "lane" and n < 2 else None) for n in range(6)])
    held = claim(store)
    settled = [settled_alike(one, Done(), 1, 2) for one in held]
    expected: list[str] = []
    if spoil == "lost":
        store.give_back("w", keep=[one.token for one in held[1:]])
        expected = ["j0"]
    elif spoil == "twice":
        settled.append(settled[0])
        expected = ["j0"]
    elif spoil == "dead":
        settled[0] = settled_alike(held[0], Dead(ErrorInfo(kind="E", message="no")), 1, 2)
    elif spoil == "result":
        settled[0] = settled_alike(held[0], Done(b"7"), 1, 2, keep=60_000_000)

    assert store.exchange("w", settled, [], 0).refused == expected

    left = {"lost": {"ready": 1}, "lane": {"ready": 1}, "dead": {"dead": 1}}
    assert states(store) == left.get(spoil, {})


def test_what_a_run_left_behind_goes_with_a_success(store: RedisStore, server: redisbench.Server) -> None:
    before = set(server.ask("KEYS", "*"))
    store.push([job("a"), job("b")])
    first = claim(store)
    store.exchange("w", [settled_alike(one, Retrying(0, ErrorInfo(kind="E", message="no")), 1, 2) for one in first], [], 0)
    held = claim(store)
    store.note([(one.unit.id, one.token, b'{"log":[]}') for one in held])

    assert settle(store, held, Done()) == []

    left = {key.rsplit(b":", 1)[1] for key in set(server.ask("KEYS", "*")) - before}
    assert left <= {b"meta", b"recent", b"arrived", b"version", b"queues", b"bell"}


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("made", [job, lambda: pay("lane", 1)], ids=["jobs", "payloads"])
def test_a_push_into_a_queue_that_is_known_runs_one_script(
    store: RedisStore, server: redisbench.Server, made: Callable[[], Job], number: int
) -> None:
    for _ in range(2):  # then the server has the scripts
        store.push([made() for _ in range(number)])
    before = scripts_run(server)

    store.push([made() for _ in range(number)])

    assert scripts_run(server) - before == 1


@pytest.mark.parametrize("outcome", [Done(), Cancelled()], ids=lambda outcome: outcome.name)
def test_no_more_runs_are_remembered_than_should_be(
    store: RedisStore, server: redisbench.Server, outcome: Done | Cancelled
) -> None:
    for _ in range(3):
        store.push([job() for _ in range(700)])
        held = claim(store, 700)
        for start in range(0, 700, 10):
            assert settle(store, held[start : start + 10], outcome) == []

    assert len(RedisInspect(store).recent(5000)) == 1000
    assert 100 <= server.ask("LLEN", queue_key("default", "RECENT")) <= 150  # ten in each entry
    assert RedisInspect(store).totals()["processed" if isinstance(outcome, Done) else "cancelled"] == 2100


def test_many_runs_at_once_take_the_places_of_as_many_before_them(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job() for _ in range(1700)])
    for one in claim(store, 300):
        settle(store, [one], Done())

    assert settle(store, claim(store, 1400), Done()) == []

    assert server.ask("LLEN", queue_key("default", "RECENT")) == 1  # all of the 300 are forgotten


def test_records_whose_time_is_over_are_removed_from_all_indexes(server: redisbench.Server) -> None:
    clock = Clock()
    with closing(RedisStore(server.url, clock=clock)) as store:
        for number in range(3):
            store.push([job(f"j{number}")])
            settle(store, claim(store), Done(b"1"), keep=1_000_000)
            clock.advance(2)
        store.push([job("j2")])

    assert not server.all_keys() & {queue_key("default", name) for name in ("FINISHED", "ENDED", "KEPT")}


@pytest.mark.parametrize("made", [job, lambda: pay("lane", 1)], ids=["jobs", "payloads"])
def test_an_occurrence_that_another_fires_between_the_look_and_the_push_fires_once(
    store: RedisStore, server: redisbench.Server, made: Callable[[], Job]
) -> None:
    occurrence = Occurrence("nightly", at=100)

    class Late(RedisStore):
        def _fires(self, *arguments: Any) -> bool:
            fires = super()._fires(*arguments)
            assert store.push([made()], occurrence) == [None]
            return fires

    with closing(Late(server.url)) as late:
        assert late.push([made()], occurrence) == [""]
    assert RedisInspect(store).totals()["enqueued"] == 1


# -- scripts and keys ----------------------------------------------------------------------------------------------


def test_scripts_that_the_server_forgot_are_sent_again(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a"), job("b", queue="mail"), pay("l", 1)])
    for _ in range(2):
        server.ask("SCRIPT", "FLUSH")
        assert store.push([job()]) == [None]
        server.ask("SCRIPT", "FLUSH")
        wants = [ClaimRequest("default", 5), ClaimRequest("mail", 5), ClaimRequest("orders", 5)]
        held = store.exchange("w", [], wants, 15).claims
        server.ask("SCRIPT", "FLUSH")
        assert sorted(store.give_back("w")) == sorted(ids(held))
    assert len(held) == 5


@pytest.mark.parametrize("times", [1, 3])
def test_scripts_that_the_server_forgets_once_more_are_sent_once_more(
    store: RedisStore, server: redisbench.Server, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    store.push([job("a")])
    talk, forgets = Connection.talk, [True] * times

    def forgetful(line: Connection, commands: list[tuple[Any, ...]]) -> list[Any]:
        loads = sum(command[:2] == ("SCRIPT", "LOAD") for command in commands)
        answers = talk(line, commands[:loads])
        if loads and forgets:
            forgets.pop()
            server.ask("SCRIPT", "FLUSH")
        return [*answers, *talk(line, commands[loads:])]

    monkeypatch.setattr(Connection, "talk", forgetful)
    server.ask("SCRIPT", "FLUSH")

    assert store.push([job("b")]) == [None]
    assert not forgets


def use_everything(store: RedisStore) -> None:
    """Do all that a store can, and leave nothing unfinished."""
    inspect = RedisInspect(store)
    store.push(
        [job("a", unique="k", expires=10**9), *(job(f"x{n}", "x") for n in range(3)), job("p", priority=5), job(queue="mail")]
    )
    store.push([job("later", delay=10**9), job("cancelled"), job("killed"), pay("l", 1), pay("l", 2), pay("m", 3)])
    store.push([job("slot")], Occurrence("nightly", at=100))
    store.beat([WorkerInfo("w")])
    inspect.cancel("cancelled")
    inspect.kill("killed")
    inspect.reschedule("later", 0, 0)
    held = store.exchange("w", [], [ClaimRequest("default", 2), ClaimRequest("mail", 1)], 9).claims
    store.note([(c.unit.id, c.token, b'{"log":["hi"]}') for c in held])
    inspect.cancel(held[0].unit.id)
    settle(store, held[1:], Retrying(0, ERROR))
    store.recover("w", "killed", {held[0].token: "crash"})
    settle(store, claim(store, 1), Snoozed(0))
    settle(store, claim(store, 1), Dead(ERROR, halt=True))
    [run] = store.exchange("w", [], [ClaimRequest("orders", 1, 9, 1)], 1).claims
    store.exchange("w", [Settled(run, (Dead(ERROR), Retrying(0, ERROR)), 1, 2)], [], 0)
    inspect.act_all("retry", Filter(state="dead"))
    store.beat([WorkerInfo("w")])
    while held := store.exchange(
        "w", [], [ClaimRequest("default", 9), ClaimRequest("mail", 9), ClaimRequest("orders", 9, 2)], 9
    ).claims:
        store.exchange("w", [settled_alike(c, Done(b"1"), 1, 2, keep=1000) for c in held], [], 0)
    store.recover("w", "over")
    assert sum(inspect.counts().values()) == 0


def lasting(server: redisbench.Server) -> set[str]:
    """The keys that do not go by themselves."""
    return {key for key in server.all_keys() if server.ask("TTL", key) == -1}


def test_finished_work_leaves_no_keys_behind(store: RedisStore, server: redisbench.Server) -> None:
    use_everything(store)
    before = lasting(server)

    for _ in range(3):
        use_everything(store)

    assert lasting(server) == before
    assert {key.rpartition(":")[2] for key in before} == {
        "meta", "recent", "arrived", "slots", "version", "queues", "looked",
    } - {"looked"}  # fmt: skip


def test_every_key_carries_one_hash_tag_and_results_fade(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a"), pay("l", 1)])
    settle(store, claim(store), Done(b"42"), keep=60_000_000)
    store.push([job("b", "x"), job("c", "x")])
    claim(store)

    assert all(re.fullmatch(r"laneway:\{[^{}]+\}:[^{}]+", key) for key in server.all_keys())
    for key in ("FINISHED", "ENDED", "KEPT"):
        assert 0 < server.ask("PTTL", queue_key("default", key)) <= 61_000


def test_what_is_on_its_way_arrives_if_the_calls_end_with_an_error(server: redisbench.Server) -> None:
    app = App(server.url)

    @app.task
    def send(number: int) -> None: ...

    def calls(trouble: object) -> Iterator[tuple[Any, ...]]:
        yield from [(number,) for number in range(40)]
        if isinstance(trouble, Exception):
            raise trouble
        yield (trouble,)

    send.enqueue(0)
    with pytest.raises(ZeroDivisionError):
        send.enqueue_many(calls(ZeroDivisionError()), chunk=20)
    assert app.inspect.counts()["ready"] == 41
    with pytest.raises(BulkError, match="40 were accepted"):
        send.enqueue_many(calls("no number"), chunk=20)
    assert app.inspect.counts()["ready"] == 81
    assert send.enqueue_many(calls(41), chunk=20) == 41
    assert len(app.store.wire.pool) == 1  # type: ignore[attr-defined]
    app.close()


def test_on_a_cluster_every_script_stays_in_one_slot(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    node = own_server("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
    node.ask("CLUSTER", "ADDSLOTS", *range(16384))
    deadline = time.monotonic() + 10
    while b"cluster_state:ok" not in node.ask("CLUSTER", "INFO"):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    use_everything(opened(node))

    def slots(shard: int) -> set[int]:
        return {node.ask("CLUSTER", "KEYSLOT", queue_key("mail", name, "x", shard)) for name in QUEUE_KEYS}

    # A queue with several shards: the keys of each are together, and a token says which one gave it, since each has a number.
    of_shards = [slots(shard) for shard in range(5)]
    assert [len(found) for found in of_shards] == [1] * 5
    assert len(set.union(*of_shards)) == 5
    tokens = [token for number in (1, 2, 4095) for token in itertools.islice(tokens_from(7 * STEP + number), 3)]
    assert [queue_number(token) for token in tokens] == [1, 1, 1, 2, 2, 2, 4095, 4095, 4095]
    assert len(set(tokens)) == 9


@pytest.mark.parametrize("name", sorted(path.stem for path in (Path(opening.__file__).parent / "lua").glob("[!_]*.lua")))
def test_every_script_says_what_it_takes(name: str) -> None:
    text = (Path(opening.__file__).parent / "lua" / f"{name}.lua").read_text(encoding="utf-8")

    assert text.startswith(f"-- {name}.lua: ")
    assert re.search(r"^-- KEYS  1 the (queue's|store's|workers') base$", text, re.MULTILINE)
    assert re.search(r"^-- ARGV  ", text, re.MULTILINE)
    assert not re.search(r"'(KEYS|SCAN)'", text)


def test_a_waiting_job_takes_at_most_270_bytes(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    own = own_server()
    store = opened(own)
    store.push([job()])
    before = used(own)

    for _ in range(100):
        store.push([Job(new_id(), "shop.mail.send_email", "default", b"[[%d],{}]" % n) for n in range(1000)])

    assert (used(own) - before) / 100_000 <= 270


def used(server: redisbench.Server) -> int:
    found = re.search(rb"used_memory:(\d+)", server.ask("INFO", "memory"))
    assert found is not None
    return int(found[1])


def test_tokens_are_new_over_all_queues_and_grow_for_a_worker(store: RedisStore) -> None:
    store.push([job(queue=queue) for queue in "abc" for _ in range(20)])
    seen: list[int] = []
    for queue in "aabcbcaabbcc":
        tokens = [c.token for c in claim(store, 3, queue=queue)]
        assert min(tokens) > max(seen, default=0)
        seen += tokens
    assert len(set(seen)) == len(seen)
    assert max(seen) < 2**53


@pytest.mark.parametrize("made", [job, lambda lane, queue: pay(lane or "", 1, queue)], ids=["jobs", "payloads"])
@pytest.mark.parametrize("lanes", [[None], [None, "x"]])
def test_queues_that_begin_with_one_job_have_numbers_of_their_own(
    server: redisbench.Server, opened: Callable[..., RedisStore], made: Callable[..., Job], lanes: list[str | None]
) -> None:
    tokens: set[int] = set()
    for queue in "ab":
        store = opened(server)  # knows nothing of the tokens of the other
        for lane in lanes:
            store.push([made(lane=lane, queue=queue)])
        tokens |= {one.token for one in claim(store, queue=queue)}

    assert len({queue_number(token) for token in tokens}) == 2


def test_tokens_grow_though_another_client_made_the_claim_before(store: RedisStore, opened: Callable[..., RedisStore]) -> None:
    store.push([job("a")])
    tokens = []
    for client in (store, opened(redisbench.server()), store):
        tokens += [one.token for one in claim(client)]
        client.give_back("w")

    assert tokens == sorted(set(tokens))


def test_there_is_an_end_to_queues(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "NUMBERS", 2)
    store.push([job(queue="a")])
    store.push([job(queue="b")])

    with pytest.raises(StoreError, match='no room for "c": use lanes'):
        store.push([job(queue="c")])
    assert store.push([job(queue="a")]) == [None]


def test_a_store_that_was_emptied_begins_anew(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job()])
    claim(store)
    server.ask("FLUSHALL")

    assert store.push([job("a")]) == [None]

    assert [queue.name for queue in RedisInspect(store).queues()] == ["default"]
    assert ids(claim(store)) == ["a"]


# -- time ----------------------------------------------------------------------------------------------------------


def test_time_is_the_servers_and_does_not_go_back(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a", "x")])
    seconds, _ = server.ask("TIME")
    ahead = (int(seconds) + 3600) * 1_000_000
    server.ask("HSET", queue_key("default", "META"), "now", ahead)  # it was an hour later a moment ago

    store.push([job("b", "x"), job("c")])

    found = RedisInspect(store).job("c")
    assert found is not None
    assert round(found.place_at.timestamp() * 1_000_000) == ahead
    first = claim(store)
    assert ids(first) == ["a", "c"]
    settle(store, first, Done())
    assert ids(claim(store)) == ["b"]


def test_a_worker_hears_the_time_of_the_server(store: RedisStore) -> None:
    assert abs(store.schedules().now / 1_000_000 - time.time()) < 60


# -- connections ---------------------------------------------------------------------------------------------------


def test_a_connection_that_was_cut_while_it_lay_idle_is_replaced(store: RedisStore, server: redisbench.Server) -> None:
    for n in range(3):
        assert store.push([job()]) == [None]
        assert len(claim(store)) == 1
        server.ask("CLIENT", "KILL", "TYPE", "normal")
        assert RedisInspect(store).counts()["running"] == n + 1


def test_connections_can_be_lost_any_number_of_times(store: RedisStore) -> None:
    for _ in range(300):
        store.wire.send_all([("PING",)]).drop()
    assert store.push([job()]) == [None]


def test_a_server_that_is_away_is_one_clear_error_and_it_goes_on_when_it_is_back(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    own = own_server("--appendonly", "yes", "--appendfsync", "always")
    store = opened(own)
    store.push([job("a"), job("x0", "x"), job("x1", "x"), pay("l", 1)])
    held = claim(store)
    own.stop(kill=True)

    for act in (lambda: store.push([job()]), lambda: claim(store), lambda: RedisInspect(store).counts(), store.dead_workers):
        with pytest.raises(StoreUnavailable, match=r"cannot be reached.*is it running") as caught:
            act()
        assert "\n" not in str(caught.value)
    own.start()

    assert settle(store, held, Done()) == []
    assert ids(claim(store)) == ["x1"]
    assert states(store) == {"ready": 1, "running": 1}


def test_a_server_that_does_not_answer_holds_up_nobody_for_long(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    own = own_server()
    store = opened(own, timeout=5, enqueue_timeout=0.2)
    store.push([job("a")])
    with own.frozen(), pytest.raises(StoreUnavailable, match="did not answer in time"):
        store.push([job("b")])

    assert store.push([job("c")]) == [None]
    assert ids(claim(store)) in (["a", "b", "c"], ["a", "c"])  # who asked cannot know


class Late:
    """Stands before a server, and passes on its answers late: each of them, or each byte of the first few."""

    HURRIES_AFTER = 25  #: parts: a client that waits for all of them gets them at last

    def __init__(self, server: redisbench.Server, seconds: float, *, bytewise: bool = False) -> None:
        self._server, self._seconds, self._bytewise = server, seconds, bytewise
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends = threading.Event()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                behind = socket.create_connection(("127.0.0.1", self._server.port))
                for source, to, late in ((client, behind, False), (behind, client, True)):
                    threading.Thread(target=self._pass_on, args=(source, to, late), daemon=True).start()

    def _pass_on(self, source: socket.socket, to: socket.socket, late: bool) -> None:
        with contextlib.suppress(OSError), source, to:
            passed = 0
            while data := source.recv(65536):
                for part in [bytes([byte]) for byte in data] if late and self._bytewise else [data]:
                    if late and passed < self.HURRIES_AFTER and self._ends.wait(self._seconds):
                        return
                    to.sendall(part)
                    passed += 1

    def close(self) -> None:
        self._ends.set()
        self._listener.close()


@pytest.mark.parametrize("bytewise", [False, True], ids=["answers", "bytes"])
@pytest.mark.parametrize("is_open", [False, True], ids=["new", "open"])
def test_the_time_of_an_enqueue_is_not_begun_anew_with_each_answer(
    server: redisbench.Server, monkeypatch: pytest.MonkeyPatch, bytewise: bool, is_open: bool
) -> None:
    deadlines: dict[int, set[float]] = defaultdict(set)  # by thread
    waits: dict[int, set[float]] = defaultdict(set)  # until when a thread was ready to wait for more

    class Watched(Connection):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "until" and value:
                deadlines[threading.get_ident()].add(value)
            super().__setattr__(name, value)

    class Noted(Watch):
        def wait(self, until: float) -> bool:
            waits[threading.get_ident()].add(until)
            return super().wait(until)

    monkeypatch.setattr("laneway.store.redis.connection.Watch", Noted)
    monkeypatch.setattr("laneway.store.redis.wire.Connection", Watched)
    late = Late(server, 0.4, bytewise=bytewise)
    store = RedisStore(late.url, timeout=5, enqueue_timeout=1, connections=1)
    if is_open:
        store.wire._is_open = True
    lend = store.wire.pool.lend

    def lent(to: list[Connection], until: float) -> Connection:
        deadlines[threading.get_ident()].add(until)
        return lend(to, until)

    monkeypatch.setattr(store.wire.pool, "lend", lent)
    all_begin = threading.Barrier(3)

    def fail() -> float:
        all_begin.wait(DEADLINE)
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"did not answer in time|were in use"):
            store.push([job("a"), job("b", queue="mail", unique="k"), job("c"), pay("l", 1)])
        [deadline] = deadlines[threading.get_ident()]
        assert max(waits[threading.get_ident()], default=0) < deadline + 1  # if each byte had a second for itself: far later
        return deadline - begun

    with ThreadPoolExecutor(3) as pool:
        allowed = [future.result(60) for future in [pool.submit(fail) for _ in range(3)]]

    assert all(0.9 < seconds < 4 for seconds in allowed)
    late.close()
    store.close()


def test_nobody_listens_there(opened: Callable[..., RedisStore], server: redisbench.Server) -> None:
    store = RedisStore("redis://127.0.0.1:1/0", timeout=1)

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/0 cannot be reached"):
        store.push([job()])


def test_threads_share_few_connections_and_one_that_waits_too_long_is_told(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    shared = opened(server, connections=2, timeout=SOON, enqueue_timeout=SOON)  # however busy the machine is
    threads = [threading.Thread(target=lambda: [shared.push([job()]) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states(store) == {"ready": 400}
    assert len(shared.wire.pool) <= 2

    narrow = opened(server, connections=1, timeout=0.1)
    # Opening the connection may take as long as it takes.
    held = in_thread(lambda: narrow.wire.send_all([("PING",)], until=time.monotonic() + SOON))
    with pytest.raises(StoreUnavailable, match=r"all 1 connections.*allow more \(connections=\)"):
        narrow.push([job()])
    narrow.reserve(2)
    assert narrow.push([job()]) == [None]
    assert held.hear() == [b"PONG"]
    assert narrow.push([job()]) == [None]


def in_thread(work: Callable[[], T]) -> T:
    """Run something in another thread and return what it returned."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(30)


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked child and return what it returned, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:  # noqa: BLE001 - the child must tell and end, whatever it is
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def test_a_forked_child_uses_connections_of_its_own(store: RedisStore) -> None:
    store.push([job("parent")])
    store.wait(0.01)
    asked = store.wire.send_all([("PING",)])  # in use while we fork

    assert in_child(lambda: (store.push([job("child")]), store.wait(0.01))) in ("([None], True)", "([None], False)")

    assert asked.hear() == [b"PONG"]
    assert store.push([job("again")]) == [None]
    assert ids(claim(store)) == ["parent", "child", "again"]
    store.wait(0.01)
    assert not store.wait(0.01)


def test_a_closed_store_opens_again(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a")])
    store.wait(0.01)
    store.close()
    deadline = time.monotonic() + DEADLINE
    while (others := int(re.findall(rb"connected_clients:(\d+)", server.ask("INFO", "clients"))[0])) > 1:
        assert time.monotonic() < deadline, others
        time.sleep(0.01)

    assert ids(claim(store)) == ["a"]


# -- how it is reached ---------------------------------------------------------------------------------------------


def test_a_socket_a_password_and_a_database_in_the_url(own_server: Callable[..., redisbench.Server], tmp_path: Path) -> None:
    own = own_server("--unixsocket", str(tmp_path / "s"))
    own.ask("CONFIG", "SET", "requirepass", "open sesame")
    for url in (
        f"unix://:open%20sesame@{tmp_path}/s?db=3&connections=2",
        f"redis://:open%20sesame@127.0.0.1:{own.port}/3?timeout=2",
    ):
        app = App(url)
        app.enqueue("app.task", 1)
        assert app.inspect.counts()["ready"] >= 1
        app.close()
    own.url = f"redis://:open%20sesame@127.0.0.1:{own.port}/3"
    assert int(own.ask("HLEN", JOB)) == 2

    app = App(f"redis://:wrong@127.0.0.1:{own.port}/3")
    with pytest.raises(StoreUnavailable, match=r"does not let us in.*check the user and the password") as caught:
        app.enqueue("app.task", 1)
    assert "wrong@" not in str(caught.value)


def test_a_push_of_many_steps_has_one_deadline(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr("laneway.store.redis.wire.Connection.wait_until", lambda _, until: seen.append(until))
    before = time.monotonic()

    store.push([job("a", unique="k"), job("b", queue="mail", unique="l"), job("c")], timeout=1.5)

    assert len(seen) > 3
    assert len(set(seen)) == 1
    assert before + 1.5 <= seen[0] <= time.monotonic() + 1.5


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make a certificate with")
def test_over_tls(own_server: Callable[..., redisbench.Server], tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    options = ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", str(key), "-out", str(cert), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    plain = own_server()
    if not plain.ask("CONFIG", "GET", "tls-port"):
        pytest.skip("this server was built without TLS")
    port = plain.port + 1
    for setting, value in (("tls-cert-file", cert), ("tls-key-file", key), ("tls-auth-clients", "no"), ("tls-port", port)):
        plain.ask("CONFIG", "SET", setting, str(value))
    store = RedisStore(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={cert}")

    for _ in range(20):
        assert store.push([job()]) == [None]
    held = claim(store)
    assert settle(store, held, Done()) == []
    assert (len(held), len(store.wire.pool)) == (20, 1)
    waiter = Waiter(store)
    store.push([job()])
    assert waiter.woken(10)
    store.close()

    app = App(f"valkeys://127.0.0.1:{port}/0?ssl_ca_certs={cert}")
    assert app.enqueue("t").cancel()
    app.close()

    stranger = RedisStore(f"rediss://127.0.0.1:{port}/0")
    with pytest.raises(StoreUnavailable, match="certificate"):
        stranger.push([job()])

    # A client's key may be encrypted.
    locked = tmp_path / "locked.pem"
    command = ["openssl", "rsa", "-aes256", "-in", str(key), "-out", str(locked), "-passout", "pass:s3cr&t"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    plain.ask("CONFIG", "SET", "tls-ca-cert-file", str(cert))
    plain.ask("CONFIG", "SET", "tls-auth-clients", "yes")
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={cert}&ssl_certfile={cert}&ssl_keyfile={locked}&ssl_keyfile_password="
    with closing(App(f"{url}s3cr%26t")) as app:
        assert app.inspect.counts()["ready"] == 1
    with closing(App(f"{url}wr0ng")) as app, pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        app.inspect.counts()
    assert "wr0ng" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://localhost/0?conections=5", 'no option "conections". Did you mean "connections"?'),
        ("redis://localhost/0?connections=0", "connections=0: use a whole number"),
        ("redis://localhost/0?timeout=soon", "timeout=soon: use a positive number"),
        ("unix://", "name the socket"),
    ],
)
def test_a_url_that_cannot_work_is_refused_where_the_app_is_made(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        App(url)
    assert words in str(caught.value)


def test_without_the_driver_it_is_said_what_to_install() -> None:
    code = """
        import sys
        sys.modules["hiredis"] = None
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "hiredis" else find(name)
        from laneway import App
        try:
            App("redis://localhost")
        except Exception as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == 'redis://localhost needs a driver that is not installed here: pip install "laneway[redis]"\n', (
        done.stderr
    )


def test_an_app_of_another_store_loads_no_driver() -> None:
    code = "import sys; from laneway import App; App('sqlite://').enqueue('t'); print({'redis', 'hiredis'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "set()\n", done.stderr


# -- what the server says ------------------------------------------------------------------------------------------


def test_a_server_without_memory_is_one_clear_error(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    own = own_server()
    store = opened(own)
    store.push([job("a", "x"), pay("l", 1)])
    own.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(StoreFull, match=r"no memory left.*raise its maxmemory"):
        store.push([job("b")])

    [held] = claim(store)  # what is there gets out: that makes room
    assert settle(store, [held], Done()) == []
    [run] = claim(store, queue="orders")
    assert settle(store, [run], Done()) == []
    assert states(store) == {}


def test_a_replica_is_said_to_be_one(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore], caplog: pytest.LogCaptureFixture
) -> None:
    primary = own_server("--repl-diskless-sync-delay", "0")  # else it waits five seconds for more replicas
    store = opened(primary)
    store.push([job("a")])
    replica = own_server("--replicaof", f"127.0.0.1 {primary.port}")
    deadline = time.monotonic() + 20
    while b"master_link_status:up" not in replica.ask("INFO", "replication"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    looking = opened(replica)

    assert RedisInspect(looking).counts()["ready"] == 1
    with pytest.raises(StoreReadOnly, match="primary's address"):
        looking.push([job("b")])
    with pytest.raises(StoreReadOnly):
        looking.dead_workers()  # who cannot write judges nobody
    assert [record.message for record in caplog.records if "it is a replica" in record.message]


def test_what_may_cost_jobs_is_said_once(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore], caplog: pytest.LogCaptureFixture
) -> None:
    own = own_server("--maxmemory-policy", "allkeys-lru")
    with caplog.at_level(logging.WARNING, "laneway"):
        for _ in range(2):
            opened(own).push([job()])

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "allkeys-lru" in said[0]
    assert "throws jobs away" in said[0]
    assert "all jobs are lost" in said[1]


@pytest.mark.parametrize("options", [("--appendonly", "yes"), ("--save", "60 1000")])
def test_where_all_is_well_nothing_is_said(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore], caplog: pytest.LogCaptureFixture,
    options: tuple[str, ...],
) -> None:  # fmt: skip
    opened(own_server(*options)).push([job()])
    assert caplog.records == []


# -- versions ------------------------------------------------------------------------------------------------------


def test_a_newer_version_needs_a_newer_laneway(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    store.push([job()])
    server.ask("SET", "laneway:{store}:version", "99")

    for act in (lambda: opened(server).push([job()]), lambda: opened(server).migrate()):
        with pytest.raises(SchemaError, match=r"version 99.*upgrade Laneway"):
            act()
    assert server.ask("GET", "laneway:{store}:version") == b"99"


def test_an_older_version_waits_for_migrate(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push([job("a")])
    monkeypatch.setattr(opening, "VERSION", 2)
    monkeypatch.setitem(opening.MIGRATIONS, 1, ("add a key", lambda line: line.ask(("SET", "laneway:{store}:new", 1))))
    newer = opened(server)

    with pytest.raises(SchemaError, match="migrate"):
        newer.push([job("b")])
    newer.migrate()

    assert newer.push([job("b")]) == [None]
    assert server.ask("GET", "laneway:{store}:new") == b"1"
    newer.migrate()  # once more does nothing


@pytest.mark.parametrize("value", [("SET", "mine"), ("RPUSH", "mine")])
def test_somebody_elses_key_of_our_name_is_not_touched(
    store: RedisStore, server: redisbench.Server, value: tuple[str, str]
) -> None:
    server.ask(value[0], "laneway:{store}:version", value[1])

    with pytest.raises(SchemaError, match="another database"):
        store.push([job()])


# -- garbage -------------------------------------------------------------------------------------------------------


def bury(store: RedisStore, claims: list[Claim]) -> None:
    """Let die what is no job, as a worker does."""
    for one in claims:
        if one.garbage:
            settle(store, [one], Dead(ErrorInfo(kind="garbage", message=one.garbage)))


@pytest.mark.parametrize("rules", [0, 1, 255])
@pytest.mark.parametrize("lane", [None, "x"])
@pytest.mark.parametrize("attempt", [0, 2])
def test_a_record_is_read_as_it_was_written(rules: int, lane: str | None, attempt: int) -> None:
    flags = records.RAN if attempt else 0
    kept = records.Record(flags, 105, attempt, 2**56 - 1, 7, 7, 7, None, lane, None, "app.task", b"[[],{}]", rules)
    raw = records.write(kept)
    again = records.read(raw)
    assert (again.rules, raw[2], again.seq, again.rank, again.attempt) == (rules, rules, kept.seq, 105, attempt)
    assert (again.lane, again.task, again.body, records.write(again)) == (lane, "app.task", kept.body, raw)
    assert records.read_simple(raw) == (None if rules or attempt else (7, lane, "app.task", kept.body))


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\x00garbage", b"null", b"\x80" * 30, bytes(30), b"\x07" * 40, b"\x81\x64" + b"\xff" * 60, b"x" * 1000],
    ids=lambda raw: repr(raw[:12]),
)
def test_a_record_that_is_none_is_claimed_as_such_and_stays_dead(
    store: RedisStore, server: redisbench.Server, garbage: bytes
) -> None:
    store.push([job("before"), job("bad"), job("after")])
    server.ask("HSET", JOB, "bad", garbage)
    assert RedisInspect(store).job("bad") is not None
    assert len(RedisInspect(store).jobs(Filter(), 10, None)) == 3

    claims = claim(store)
    bury(store, claims)

    assert [(one.unit.id, bool(one.garbage)) for one in claims] == [("before", False), ("bad", True), ("after", False)]
    assert RedisInspect(store).totals()["failed"] == 1
    dead = RedisInspect(store).job("bad")
    assert dead is not None
    assert (dead.state, dead.args, dead.errors[-1].kind) == ("dead", None, "garbage")
    assert garbage in dead.body or dead.body in garbage
    assert states(store) == {"running": 2, "dead": 1}
    assert RedisInspect(store).delete("bad")


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"[1,{}]", b"[[],{},{}", b"[" * 100_000, b'[["\xff"],{}]'], ids=lambda raw: repr(raw[:12])
)
@pytest.mark.parametrize("holds", [False, True])
def test_a_body_that_is_none_does_not_stop_its_lane(
    store: RedisStore, server: redisbench.Server, body: bytes, holds: bool
) -> None:
    store.push([job(f"x{n}", "x") for n in range(3)])
    if holds:
        settle(store, claim(store, 1), Retrying(0, ERROR))
    record = server.ask("HGET", JOB, "x0")
    server.ask("HSET", JOB, "x0", record.removesuffix(b"[[1],{}]") + body)

    bury(store, claim(store))
    assert ids(claim(store)) == ["x1"]

    dead = RedisInspect(store).job("x0")
    assert dead is not None
    assert (dead.state, dead.body, dead.args, dead.errors[-1].kind) == ("dead", body, None, "garbage")
    assert states(store) == {"blocked": 1, "running": 1, "dead": 1}


def test_a_record_of_a_lanes_holder_that_is_none_does_not_stop_the_lane(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job(f"{lane}{n}", lane) for lane in "xy" for n in range(3)])
    settle(store, claim(store, 1), Retrying(0, ERROR))
    held = claim(store, 5, worker="other")
    store.give_back("other", keep=[one.token for one in held if one.unit.lane == "y"])
    server.ask("HSET", JOB, "x0", b"garbage")

    bury(store, claim(store))
    assert ids(claim(store)) == ["x1"]  # and of the other lane none, since its holder runs


def test_a_parked_record_that_is_none_is_claimed_as_such_and_its_lane_goes_on(
    store: RedisStore, server: redisbench.Server
) -> None:
    store.push([job(f"x{n}", "x") for n in range(3)])
    first = claim(store)
    server.ask("HSET", JOB, "x1", b"garbage")

    settle(store, first, Done())
    claims = claim(store)

    assert {one.unit.id: bool(one.garbage) for one in claims} == {"x1": True, "x2": False}
    bury(store, claims)
    assert states(store) == {"running": 1, "dead": 1}


@pytest.mark.parametrize("how", ["retrying", "given back", "recovered"])
def test_a_record_that_is_damaged_during_its_run_is_claimed_as_such(
    store: RedisStore, server: redisbench.Server, how: str
) -> None:
    store.push([job(f"x{n}", "x") for n in range(2)])
    claims = claim(store)
    server.ask("HSET", JOB, "x0", b"garbage")

    if how == "retrying":
        settle(store, claims, Retrying(0, ERROR))
    elif how == "given back":
        store.give_back("w")
    else:
        store.recover("w", "it is gone")
    again = claim(store)

    assert [(one.unit.id, bool(one.garbage)) for one in again] == [("x0", True)]
    bury(store, again)
    assert ids(claim(store)) == ["x1"]
    assert states(store) == {"running": 1, "dead": 1}


@pytest.mark.parametrize("garbage", [b"garbage", b"\x80" * 30, b"x" * 1000])
def test_a_lanes_record_that_is_none_is_claimed_as_such_and_stays_dead(
    store: RedisStore, server: redisbench.Server, garbage: bytes
) -> None:
    store.push([pay("a", 1), pay("b", 2), pay("c", 3)])
    key = queue_key("orders", "JOB")
    server.ask("HSET", key, lane_id("orders", "b"), garbage)

    claims = store.exchange("w", [], [ClaimRequest("orders", 10, lanes=10)], 10).claims

    assert [bool(one.garbage) for one in claims] == [False, True, False]
    assert [lane.lane for one in claims for lane in one.units if not one.garbage] == ["a", "c"]
    store.give_back("w", keep=[one.token for one in claims if not one.garbage])
    (again,) = store.exchange("w", [], [ClaimRequest("orders", 10, lanes=10)], 10).claims
    bury(store, [again])
    assert states(store) == {"running": 2, "dead": 1}
    assert RedisInspect(store).totals()["failed"] == 1
    assert settle(store, [again], Dead(ERROR)) == [again.unit.id]


def test_lanes_whose_payloads_or_records_are_missing_leave_and_hold_up_nobody(
    store: RedisStore, server: redisbench.Server
) -> None:
    store.push([pay(lane, n) for lane in "abcdefg" for n in range(2)])
    server.ask("DEL", queue_key("orders", "WAITS", "a"), queue_key("orders", "BODIES", "a"))
    server.ask("HDEL", queue_key("orders", "JOB"), lane_id("orders", "b"))
    server.ask("DEL", queue_key("orders", "BODIES", "c"))
    for digest in server.ask("HKEYS", queue_key("orders", "BODIES", "e")):
        server.ask("HSET", queue_key("orders", "BODIES", "e"), digest, "short")

    claims = [one for _ in range(3) for one in store.exchange("w", [], [ClaimRequest("orders", 1)], 1).claims]

    assert [[lane.lane for lane in one.units] for one in claims] == [["d"], ["f"], ["g"]]
    assert states(store) == {"running": 3}


def test_lanes_whose_records_are_those_of_jobs_are_claimed_one_by_one(store: RedisStore, server: redisbench.Server) -> None:
    store.push([*(pay(lane, 1) for lane in "abcd"), job("x")])
    for lane in "bc":
        server.ask("HSET", queue_key("orders", "JOB"), lane_id("orders", lane), server.ask("HGET", JOB, "x"))

    claims = store.exchange("w", [], [ClaimRequest("orders", 10, lanes=10)], 10).claims

    assert [bool(one.garbage) for one in claims] == [False, True, True, False]
    bury(store, claims)
    assert states(store) == {"ready": 1, "running": 2, "dead": 2}


def test_an_entry_without_a_record_is_passed_over(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a"), job("b")])
    server.ask("HDEL", JOB, "a")
    server.ask("ZADD", queue_key("default", "DUE", "0"), 5, "nonsense", 6, b"\xff\xfe", 7, "")

    assert ids(claim(store)) == ["b"]
    assert states(store) == {"running": 1}


@pytest.mark.parametrize("garbage", [b"\xff", b"7", b"\x91\x07", b"\x91\xa1\xff", msgspec.msgpack.encode(["{}", "[", "7"])])
def test_errors_and_notes_that_cannot_be_read_are_no_reason_to_fail(
    store: RedisStore, server: redisbench.Server, garbage: bytes
) -> None:
    store.push([job("a")])
    server.ask("HSET", queue_key("default", "ERRORS"), "a", garbage)
    server.ask("HSET", queue_key("default", "NOTES"), "a", garbage)

    found = RedisInspect(store).job("a")

    assert found is not None
    assert found.errors[0].kind == "garbage"
    assert found.log == ["(the notes of this run cannot be read)"]
    assert RedisInspect(store).act_all("kill", Filter(error="E")) == 0
    assert settle(store, claim(store), Retrying(0, ERROR)) == []
    assert RedisInspect(store).count(Filter(error="E")) == 1


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff", b"null", b"[]", b'{"id":7}', b'{"id":"bad","x":' + b"[" * 100_000, b'{"id":"good"}']
)
def test_a_worker_that_cannot_be_read_harms_nobody(store: RedisStore, server: redisbench.Server, garbage: bytes) -> None:
    store.push([job("a")])
    store.beat([WorkerInfo("good", slots=5), WorkerInfo("bad", slots=5)])
    claim(store, worker="bad")
    server.ask("HSET", "laneway:{workers}:info", "bad", garbage)
    server.ask("HSET", "laneway:{workers}:at", "bad", garbage)
    server.ask("HSET", "laneway:{workers}:beats", "bad", garbage)

    bad, good = RedisInspect(store).workers()

    assert (bad.id, [held.id for held in bad.jobs]) == ("bad", ["a"])
    assert (good.id, good.slots) == ("good", 5)
    assert store.dead_workers() == []


#: What a key that is continued goes on with, in the tests below.
MORE = {
    "DUE": "0",
    "PARKED": "x",
    "RUNNING": "w",
    "RESULT": "a",
    "DROPPED": "x",
    "WAITS": "x",
    "RUNS": "x",
    "BODIES": "x",
    "RUN_BODIES": "x",
}


@pytest.mark.parametrize("name", sorted(QUEUE_KEYS))
def test_a_key_of_another_type_is_reported_and_the_other_queues_go_on(
    store: RedisStore, server: redisbench.Server, name: str
) -> None:
    store.push([job("good", queue="good")])
    server.ask("SADD" if name != "HOLDERS" else "RPUSH", queue_key("default", name, MORE.get(name, "")), "garbage")
    store.queues.number("default")

    for act in (
        lambda: store.push([job("a", "x"), job("b", "x")]),
        lambda: claim(store),
        lambda: RedisInspect(store).jobs(Filter(), 10, None),
        lambda: store.beat([WorkerInfo("w")]),
    ):
        try:
            act()
        except (StoreCorrupt, StoreUnavailable) as error:
            assert "\n" not in str(error)  # noqa: PT017 - whether it meets the key is its own affair

    try:
        both = store.exchange("w", [], [ClaimRequest("default", 5), ClaimRequest("good", 5)], 5)
    except StoreUnavailable:  # an answer got lost over it
        store.give_back("w")
        both = store.exchange("w", [], [ClaimRequest("default", 5), ClaimRequest("good", 5)], 5)
    assert "good" in ids(both.claims)
    [good] = [c for c in both.claims if c.unit.id == "good"]
    assert settle(store, [good], Done()) == []


@pytest.mark.parametrize(
    "name", sorted(QUEUE_KEYS.keys() - {"JOB", "WAITS", "RUNS", "BODIES", "RUN_BODIES", "RESULT", "DROPPED", "SLOTS"})
)
def test_a_key_of_another_type_is_set_aside_and_all_jobs_are_done(
    store: RedisStore, server: redisbench.Server, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    store.push([job("a"), *(job(f"x{n}", "x") for n in range(3)), job("u", unique="k"), job("p", priority=7), job("r"), job("d")])
    held = claim(store, 8)
    settle(store, [c for c in held if c.unit.id == "r"], Retrying(0, ERROR))
    settle(store, [c for c in held if c.unit.id == "d"], Dead(ERROR))
    store.give_back("w")
    claim(store, 3)  # some run
    key = queue_key("default", name, MORE.get(name, ""))
    server.ask("DEL", key)
    server.ask("SADD" if name != "HOLDERS" else "RPUSH", key, "garbage")

    done: list[str] = []
    deadline = time.monotonic() + 10
    while set(done) != {"a", "x0", "x1", "x2", "u", "p", "r"}:
        assert time.monotonic() < deadline, (name, done, states(store))
        try:
            store.give_back("w")  # what it never heard of
            answer = store.exchange("w", [], WANT, 9)
            done += ids(answer.claims)
            settle(store, answer.claims, Done())
        except (StoreCorrupt, StoreUnavailable):
            assert "another program wrote were renamed" in caplog.text
    assert done.index("x0") < done.index("x1") < done.index("x2") or name in ("LANES", "PARKED")
    unused = ("BELL", "RECENT", "ARRIVED", "UNIQUE", "ERRORS", "NOTES", "LOST", "MARKS", "HALTED", "RETRY", "DEAD")
    if name not in (*unused, "FINISHED", "ENDED", "KEPT", "SOURCES"):
        assert "another program wrote were renamed" in caplog.text
    assert RedisInspect(store).counts()["ready"] == 0


def test_schedules_go_on_though_a_queue_has_a_key_of_another_type(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job("a")])
    store.push([job("b", queue="other")], Occurrence("nightly", at=100))
    server.ask("HSET", queue_key("other", "META"), "now", 1 << 52)  # later than any clock says
    key = queue_key("default", "META")
    server.ask("DEL", key)
    server.ask("SET", key, "garbage")

    found = store.schedules()
    assert (found.now, found.last) == (1 << 52, {"nightly": 100})


# -- waiting -------------------------------------------------------------------------------------------------------


class Waiter:
    """A store that waits in a thread, when what has rung so far has faded."""

    def __init__(self, store: RedisStore, timeout: float = 30) -> None:
        self.store = store
        self.heard: bool | None = None
        self.quiet = threading.Event()
        self.thread = threading.Thread(target=self._wait, args=(timeout,))
        self.thread.start()
        assert self.quiet.wait(10)

    def _wait(self, timeout: float) -> None:
        self.store.exchange("w", [], WANT, 0)
        while self.store.wait(0.01):
            pass
        self.quiet.set()
        self.heard = self.store.wait(timeout)

    def woken(self, within: float) -> bool:
        self.thread.join(within)
        return not self.thread.is_alive()


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what rings is heard."""
    monkeypatch.setattr("laneway.store.redis.bell.LOOK_EVERY", 60)


def blocked(server: redisbench.Server, number: int) -> None:
    """Wait until so many clients are at the bell."""
    deadline = time.monotonic() + 10
    while b"blocked_clients:%d\r" % number not in server.ask("INFO", "clients"):
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.skipif(redisbench.version() < (7,), reason="an old server does not count CLIENT UNBLOCK by itself")
@pytest.mark.usefixtures("no_looking")
def test_a_wait_that_was_rung_leaves_nothing_that_ends_the_next_one(
    own_server: Callable[..., redisbench.Server], opened: Callable[..., RedisStore]
) -> None:
    own = own_server()
    store, rings, stop = opened(own), threading.Semaphore(0), threading.Event()
    store.push([job()])

    def listen() -> None:
        while not stop.is_set():
            store.exchange("w", [], WANT, 100)
            store.wait(60)
            rings.release()

    def ended_by_us() -> int:
        return sum(map(int, re.findall(rb"cmdstat_client(?:\|unblock)?:calls=(\d+)", own.ask("INFO", "commandstats"))))

    thread = threading.Thread(target=listen)
    thread.start()
    blocked(own, 1)
    store.push([job()])  # on a connection of its own, whose greeting old servers count as well
    assert rings.acquire(timeout=10)
    blocked(own, 1)
    before = ended_by_us()
    for _ in range(5):
        while rings.acquire(blocking=False):
            pass
        store.push([job()])
        assert rings.acquire(timeout=10)
        blocked(own, 1)
    assert ended_by_us() == before
    stop.set()
    store.wake()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.usefixtures("no_looking")
def test_one_job_wakes_one_and_what_it_leaves_wakes_another(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    store.push([job()])  # a new queue rings for itself
    claim(store)
    waiters = [Waiter(opened(server)) for _ in range(3)]
    blocked(server, 3)

    store.push([job(), job()])
    deadline = time.monotonic() + 10
    while not any(waiter.woken(0.001) for waiter in waiters):
        assert time.monotonic() < deadline
    blocked(server, 2)

    assert len(claim(store, 1)) == 1  # one is left: the next one hears of it
    blocked(server, 1)
    for waiter in waiters:
        waiter.store.wake()
        assert waiter.woken(10)


@pytest.mark.usefixtures("no_looking")
def test_the_next_of_a_lane_rings_though_another_job_of_the_step_is_due_later(
    store: RedisStore, server: redisbench.Server
) -> None:
    store.push([job("x0", "x"), job("x1", "x"), job("y"), Job("soon", "t", "default", b"[[1],{}]", delay=30_000_000)])
    outcomes: list[Done | Retrying] = [Done(), Retrying(60_000_000, ERROR)]
    settled = [settled_alike(one, outcome, 1, 2) for one, outcome in zip(claim(store), outcomes, strict=True)]
    server.ask("DEL", queue_key("default", "BELL"))

    store.exchange("w", settled, [], 0)

    assert queue_key("default", "BELL") in server.all_keys()


@pytest.mark.parametrize("seconds", [(10, 20), (20, 10)])
def test_of_several_jobs_that_a_step_puts_off_the_first_that_is_due_rings(
    store: RedisStore, server: redisbench.Server, seconds: tuple[int, int]
) -> None:
    store.push([job("a"), job("b"), job("soon", delay=30_000_000)])
    puts_off = zip(claim(store), seconds, strict=True)
    settled = [settled_alike(one, Retrying(after * 1_000_000, ERROR), 1, 2) for one, after in puts_off]
    server.ask("DEL", queue_key("default", "BELL"))

    store.exchange("w", settled, [], 0)

    assert queue_key("default", "BELL") in server.all_keys()


@pytest.mark.parametrize(
    ("pushed", "rings"),
    [
        ([{}], True), ([{}, {}], True), ([{}, {"lane": "x"}], True),
        ([{"delay": 20}], True), ([{"delay": 20}, {"delay": 10}], True), ([{"delay": 10}, {"delay": 20}], True),
        ([{"delay": 20}, {"delay": 40, "priority": 5}], True), ([{"delay": 40}, {"delay": 20, "priority": 5}], True),
        ([{"delay": 40}], False), ([{"delay": 40}, {"delay": 50, "priority": 5}], False),
    ],
)  # fmt: skip
def test_who_waits_hears_of_what_is_due_before_all_else_and_of_nothing_else(
    store: RedisStore, server: redisbench.Server, pushed: list[dict[str, Any]], rings: bool
) -> None:
    store.push([job(delay=30_000_000), job(delay=30_000_000, priority=5)])
    server.ask("DEL", queue_key("default", "BELL"))

    store.push([job(**{**one, "delay": one.get("delay", 0) * 1_000_000}) for one in pushed])

    assert (queue_key("default", "BELL") in server.all_keys()) == rings


@pytest.mark.parametrize("number", [1, 3])
def test_what_comes_behind_what_is_ready_rings_for_nobody(store: RedisStore, server: redisbench.Server, number: int) -> None:
    store.push([job()])
    server.ask("DEL", queue_key("default", "BELL"))

    store.push([job() for _ in range(number)])

    assert queue_key("default", "BELL") not in server.all_keys()


def test_what_goes_back_to_a_paused_queue_rings_for_nobody(store: RedisStore, server: redisbench.Server) -> None:
    store.push([job()])
    claim(store)
    RedisInspect(store).pause("default", True)
    server.ask("DEL", queue_key("default", "BELL"))

    assert len(store.give_back("w")) == 1

    assert queue_key("default", "BELL") not in server.all_keys()


def test_who_has_stopped_waiting_takes_no_ring(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    gone = Waiter(opened(server))
    blocked(server, 1)
    gone.store.wake()
    assert gone.woken(10)
    blocked(server, 0)
    waiter = Waiter(opened(server))
    blocked(server, 1)

    store.push([job()])

    assert waiter.woken(10)


def test_a_lost_ring_is_found_by_looking(store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]) -> None:
    waiter = Waiter(opened(server))
    blocked(server, 1)

    assert waiter.woken(10)

    assert waiter.heard


@pytest.mark.usefixtures("no_looking")
def test_a_wait_whose_connection_is_cut_ends_and_the_next_one_hears_again(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    waiter = Waiter(opened(server))
    blocked(server, 1)
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    assert waiter.woken(10)
    assert waiter.heard

    again = Waiter(waiter.store)
    blocked(server, 1)
    store.push([job()])
    assert again.woken(10)


@pytest.mark.usefixtures("no_looking")
def test_who_waits_for_all_queues_hears_of_a_new_one(
    store: RedisStore, server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    other = opened(server)
    assert other.exchange("w", [], [], 5).loads == {}
    waiter = threading.Thread(target=lambda: other.wait(30))
    waiter.start()
    blocked(server, 1)

    store.push([job(queue="brand-new")])

    waiter.join(10)
    assert not waiter.is_alive()
    assert other.exchange("w", [], [], 5).loads == {"brand-new": 1}


# -- processes -----------------------------------------------------------------------------------------------------


def _exchange_all(url: str, name: str, start: threading.Barrier, done: multiprocessing.Queue[tuple[str, list[str]]]) -> None:
    store = RedisStore(url)
    mine: list[str] = []
    claims: list[Claim] = []
    start.wait()
    while True:
        settled = [settled_alike(held, Done()) for held in claims]
        claims = store.exchange(name, settled, [ClaimRequest("default", 10), ClaimRequest("mail", 10)], 15).claims
        if not claims:
            break
        mine += ids(claims)
    store.close()
    done.put((name, mine))


def test_two_processes_share_the_work_and_nothing_is_lost_or_doubled(store: RedisStore, server: redisbench.Server) -> None:
    pushed = [job(lane=f"lane-{n}" if n % 3 == 0 else None, queue="mail" if n % 5 == 0 else "default") for n in range(10_000)]
    store.push(pushed)
    context = multiprocessing.get_context("spawn")
    start, done = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_exchange_all, args=(server.url, name, start, done)) for name in ("ann", "bob")]
    for worker in workers:
        worker.start()
    shares = dict([done.get(timeout=60), done.get(timeout=60)])
    for worker in workers:
        worker.join(10)

    assert Counter(shares["ann"] + shares["bob"]) == Counter(found.id for found in pushed)
    assert states(store) == {}


def test_threads_that_push_equal_jobs_into_one_queue_push_each_once(store: RedisStore) -> None:
    answers: list[list[str | None]] = []

    def push() -> None:
        answers.append([store.push([job(unique=f"k{n}")])[0] for n in range(100)])

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [[row[n] for row in answers].count(None) for n in range(100)] == [1] * 100
    assert states(store) == {"ready": 100}


# -- what URLs say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://host/abc", "a database's number"),
        ("redis://host/0/5", "a database's number"),
        ("redis://:sec/ret@host/0", "as %2F"),
        ("redis://host/0?ssl_ca_certs=x", "write rediss://"),
        ("valkey://host/0?ssl_ca_certs=x", "write valkeys://"),
        ("valkey://host/abc", "a database's number"),
        ("redis://host/0#x", "%23"),
        ("unix://", "name the socket"),
    ],
)
def test_a_url_that_would_mean_something_else_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        App(url)
    assert "ret@" not in str(caught.value)


def test_a_valkey_address_is_that_of_the_same_server(own_server: Callable[..., redisbench.Server]) -> None:
    own = own_server()
    app, same = App(own.url.replace("redis:", "valkey:")), App(own.url)
    assert app.url.startswith("valkey://")
    handle = app.enqueue("t")
    assert same.inspect.job(handle.id) == app.inspect.job(handle.id)
    app.close()
    same.close()


def test_passwords_are_not_shown() -> None:
    assert safe_url("valkeys://ada:s3cret@store/0") == "valkeys://ada:***@store/0"
    assert safe_url("redis://ada:s3/c@ret@store/0?password=more&db=1") == "redis://ada:***@store/0?password=***&db=1"


def test_what_a_url_says_of_connections_counts_in_a_worker_too() -> None:
    app = App(f"{redisbench.emptied().url}?connections=2")
    app.need_connections(9)
    store: Any = app.store
    assert store.wire.pool.most == 2
    other = App(redisbench.emptied().url)
    other.need_connections(9)
    store = other.store
    assert store.wire.pool.most == 9


def test_a_socket_needs_no_password(own_server: Callable[..., redisbench.Server], tmp_path: Path) -> None:
    own_server("--unixsocket", str(tmp_path / "redis.sock"))
    app = App(f"unix://{tmp_path / 'redis.sock'}?db=1&connections=3")
    assert app.inspect.counts()["ready"] == 0
    app.close()


def test_a_bell_whose_connection_the_server_has_forgotten_gets_another(
    server: redisbench.Server, opened: Callable[..., RedisStore]
) -> None:
    store = opened(server, timeout=0.3)
    claim(store)
    store.wait(0.01)
    (ear,) = store.bell.ears
    before = ear.line
    ear.client = str(10**9)  # half open: the server knows nothing of it, and nobody told us
    begun = time.monotonic()

    store.wait(0.05)

    assert time.monotonic() - begun < SOON
    assert ear.line is not before
    waiter = Waiter(store)
    store.push([job()])
    assert waiter.woken(10)


def test_a_fleet_says_once_what_may_cost_jobs(own_server: Callable[..., redisbench.Server], tmp_path: Path) -> None:
    own = own_server()
    (tmp_path / "app.py").write_text(f"from laneway import App\napp = App({own.url!r})\n\n@app.task\ndef work(): ...\n")
    App(own.url).enqueue("app.work")
    command = [sys.executable, "-m", "laneway", "worker", "-p", "3", "--burst"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr.count("it keeps nothing on disk") == 1


# -- in plain words ------------------------------------------------------------------------------------------------


def test_what_was_never_sent_was_not_written_and_what_was_may_have_been(own_server: Callable[..., redisbench.Server]) -> None:
    server = own_server()
    tasks = [App(server.url, enqueue_timeout=0.3).task(name="work")(lambda: None) for _ in range(2)]
    for task in tasks:
        task.enqueue()  # each has a connection: servers differ in whether a new one is greeted during a pause
    task, other = tasks
    server.ask("CLIENT", "PAUSE", "2000")

    with pytest.raises(StoreUnavailable, match=r"did not answer in time.* may have been done all the same") as caught:
        task.enqueue()
    assert caught.value.written is None
    with pytest.raises(BulkError, match="may have been accepted too"):
        other.enqueue_many([()])
    server.stop()
    with pytest.raises(StoreUnavailable, match=r"is it running, and is the address right\? Nothing was written\.$") as caught:
        task.enqueue()
    assert caught.value.written is False
    with pytest.raises(BulkError, match=r"enqueue the rest again\)$"):
        task.enqueue_many([()])
    for one in tasks:
        one.app.close()


def test_a_server_that_takes_no_more_clients_says_so(own_server: Callable[..., redisbench.Server]) -> None:
    server = own_server("--maxclients", "1")
    with contextlib.ExitStack() as stack:
        while True:  # the connection that saw it start may not be gone yet
            other = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            other.sendall(b"PING\r\n")
            if other.recv(100).startswith(b"+PONG"):
                break
        with pytest.raises(StoreUnavailable, match=r"takes no more connections .* raise its maxclients"):
            RedisStore(server.url).schedules()


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_an_address_names_must_be_there(option: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no file /nowhere.pem, which {option} names"):
        RedisStore(f"rediss://localhost/0?{option}=/nowhere.pem").schedules()


def test_a_database_that_is_not_there_is_told(server: redisbench.Server) -> None:
    with pytest.raises(StoreUnavailable, match="no database of that number"):
        RedisStore(server.url.removesuffix("/0") + "/99").schedules()


def test_a_look_at_the_store_shows_no_password(own_server: Callable[..., redisbench.Server]) -> None:
    server = own_server()
    server.ask("CONFIG", "SET", "requirepass", "s3cret")
    app = App(f"redis://:s3cret@127.0.0.1:{server.port}/0")

    assert Snapshot.of(app, 1).store == f"redis://:***@127.0.0.1:{server.port}/0"
    app.close()


def test_who_watches_a_store_that_is_away_sees_how_it_was_until_it_is_back(own_server: Callable[..., redisbench.Server]) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    app = App(server.url)
    app.task(name="work")(lambda: None).enqueue()
    top = Top(app, 1.0)
    before, _ = top.look()

    server.stop()
    assert top.look()[0] is before
    assert "the store is away" in top.phase
    server.start()

    assert top.look()[0].counts == before.counts
    assert "away" not in top.phase
    app.close()
