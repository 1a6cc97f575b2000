"""Somebody else wrote into the store: whoever looks gets an answer, and what cannot be read is said to be so."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import shutil
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import redisbench
from laneway import App
from laneway.cli import laneway
from laneway.core.job import Job
from laneway.desk.stats import Stats
from laneway.errors import StoreCorrupt
from laneway.store.contract import ClaimRequest, Occurrence, WorkerInfo
from laneway.store.paging import LANE_ORDERS
from laneway.web.pages.mount import PAGES
from webdesk import LOOKS, Client, Shop, visiting

#: Where JSON or MessagePack is wanted, or anything.
BLOBS = (
    b"", b"\xff\xfe\x00garbage", b"7", b"{}", b"[" * 20_000, b'[{"kind":1,"message":null}]', b"\x93\xc0\xc0\xc0",
    b"x" * 1_000_000, b'[{"kind":"\\ud800","message":"\\u001b[2J","at":99999999999999999999}]',
    b'[["\\ud800",1e999,99999999999999999999999],{}]',
    b'[{"kind":"E","message":"m\\u001bm","traceback":"t","at":-9000000000000000000,"attempt":-1,"packed":"AAAA"}]',
    b'{"progress":[1e999,-1e999],"log":["\\u001b]0;x"]}', b'{"progress":[1,0],"log":["a\\nb"]}', b"[[" + b"9" * 5_000 + b"],{}]",
    b'{"id":"w-1","host":"h\\nh","pid":-1,"since":9000000000000000000,"runs":[[1,9000000000000000000]],"slots":-5,"rss":-1}',
    b'["id","t\\nt","q",null,9000000000000000000,-9000000000000000000,9000000000000000000,"odd"],', b"-1", b"1e400", b"9" * 30,
)  # fmt: skip
TEXTS = (b"\xff\xfe\xed\xa0\x80", b"new\nline\r\x1b[2J\x00\x7f\xe2\x80\xae", b"", b"x" * 100_000)
NUMBERS = (2**63 - 1, -(2**63), 7, 0, 10**17)


def open_shop(url: str, filled: Shop | None = None) -> Shop:
    shop = Shop(App(url))
    if filled is not None:
        vars(shop).update({name: value for name, value in vars(filled).items() if name in ("done", "dead", "retrying", "ready")})
    return shop


def fill(url: str) -> Shop:
    """Put one or more of everything into a store: also what runs, what is parked, results, figures and failures.

    Many of what has most columns: each row of a table takes another damage, so a store that is full needs fewer looks.
    """
    shop = open_shop(url)
    for number in range(11):
        shop.add.enqueue(number)
    shop.fill()
    shop.charge.enqueue("c-3")
    shop.charge.enqueue("c-3")
    shop.login.enqueue("eve", "x")
    store = shop.app.store
    store.push(
        [Job(id="keyed", queue="mail", task="login", body=b'[["x","y"],{}]', unique="key", expires=10**12)],
        Occurrence("nightly", 2),
    )
    assert store.exchange("w-1", [], [ClaimRequest("billing", 2), ClaimRequest("sync", 1)], 3).claims
    store.beat([WorkerInfo(f"w-{number}", host="h", pid=7, slots=4) for number in range(1, 5)])
    held = store.exchange("w-1", [], [ClaimRequest("mail", 1)], 1).claims
    store.note([(claim.unit.id, claim.token, b'{"progress":[1,2],"log":["x"]}') for claim in held])
    shop.app.inspect.cancel(held[0].unit.id)
    shop.app.inspect.pause("mail")
    shop.app.inspect.pause_schedule("nightly")
    shop.app.inspect.set_schedule("kept-too", shop.sync.bind("a", {"total": 1}), "@daily")
    return shop


#: What `app.stats` has beside totals, recent runs and errors.
STATISTICS = tuple(
    name
    for name, verb in inspect.getmembers(Stats, inspect.isfunction)
    if name[0] != "_" and all(one.default is not one.empty for one in list(inspect.signature(verb).parameters.values())[1:])
)


# -- what is asked -----------------------------------------------------------------------------------------------


def ask_all(shop: Shop) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return all verbs that only look."""
    look, stats, store = shop.app.inspect, shop.app.stats, shop.app.store_inspect
    ids = (shop.ready, shop.dead, shop.retrying, shop.done)
    yield "counts", look.counts
    yield "queues", look.queues
    for newest in (False, True):
        yield "jobs", partial(lambda **which: [(repr(job), job.args, job.kwargs) for job in look.jobs(**which)], newest=newest)
    for state in ("ready", "running", "dead", "retrying", "scheduled", "blocked"):
        yield f"jobs {state}", partial(look.jobs, state)
    yield "jobs by error", partial(look.jobs, error="no money")
    yield "jobs by lane", partial(look.jobs, lane="c-1")
    yield "failing", partial(look.jobs, failing=True, limit=2)
    yield "count", partial(look.count, task="login")
    for id_ in ids:
        yield "job", partial(look.job, id_)
        yield "result", partial(store.result, id_)
    for id_ in ids[:3]:
        yield "explain", partial(lambda id_: look.job(id_) and look.explain(id_), id_)
    for order in LANE_ORDERS:
        yield f"lanes by {order}", partial(look.lanes, order=order)
    yield "payloads", lambda: [payload.value for payload in store.payloads("sync", "o/1 ?", 10, None)]
    yield "workers", lambda: repr(look.workers())
    yield "schedules", look.schedules
    yield "totals", stats.totals
    yield "recent", lambda: [(run.enqueued_at, run.started_at, run.finished_at) for run in stats.recent(100)]
    yield "errors", stats.errors
    for name in STATISTICS:
        yield f"stats.{name}", getattr(stats, name)


def pages_of(client: Client, shop: Shop) -> Iterator[tuple[str, Callable[[], object]]]:
    def get(path: str, accept: str = "text/html") -> None:
        answer = client.ask("GET", path, headers={"accept": accept})
        assert answer.status_code in (200, 404, 503 if "healthz" in path else 200), answer.text[:3000]
        assert not set("\x1b\x00\x7f\u202e") & set(answer.text if accept == "text/html" else "")

    for id_ in (shop.ready, shop.dead):
        yield f"page of job {id_}", partial(get, f"/jobs/{id_}")
        yield f"document of job {id_}", partial(get, f"/api/v1/jobs/{id_}", "*/*")
    pages = [page.path for page in PAGES if "{" not in page.path and page.path != "/lane"]
    for path in (
        *pages,
        "/lane?queue=sync&lane=o/1%20?",
        "/lane?queue=billing&lane=c-3",
        "/jobs?q=state:finished",
        "/jobs?q=money",
    ):
        yield f"page {path}", partial(get, path)
    for one in LOOKS:
        if "{" not in one.path and not one.path.startswith("/api/v1/lane/") and one.path != "/api/v1/lane":
            yield f"GET {one.path}", partial(get, one.path, "*/*")


COMMANDS = (
    ["status"], ["jobs", "list"], ["queues", "list"], ["lanes", "list"], ["workers", "list"], ["jobs", "list", "--json"],
)  # fmt: skip


def commands_of(shop: Shop) -> Iterator[tuple[str, Callable[[], object]]]:
    def run(words: list[str]) -> None:
        done = CliRunner().invoke(laneway, [*words, "--store", shop.app.url], prog_name="laneway")
        assert done.exit_code == 0 or (words[1:2] == ["show"] and done.exit_code == 1), (done.stderr, done.exception)
        assert not set("\x1b\x00\x7f\r") & set(done.output)

    for words in (*COMMANDS, ["jobs", "show", shop.ready], ["jobs", "show", shop.dead]):
        yield f"laneway {' '.join(words)}", partial(run, words)


def complaints(shop: Shop, number: int, *, commands: bool = True) -> list[str]:
    """Ask everything, and return what went wrong."""
    found: list[str] = []
    with visiting(shop.app) as client:
        for name, call in (*ask_all(shop), *pages_of(client, shop), *(commands_of(shop) if commands else ())):
            try:
                call()
            except Exception as error:  # noqa: BLE001 - each is a finding
                last = traceback.extract_tb(error.__traceback__)[-1]
                found.append(f"{name}: {type(error).__name__}: {str(error)[-300:]} ({last.filename}:{last.lineno})")
    if not found and (listed := len(shop.app.inspect.jobs(limit=1000))) < number:
        found.append(f"of {number} jobs {listed} are listed")
    return found


# -- SQLite ------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[Any, ...]] = {"TEXT": TEXTS, "INTEGER": NUMBERS, "BLOB": BLOBS, "REAL": (1e308, -1e308, float("inf"))}
#: Without these there is no store.
ROOTS = ("only_row", "version", "books", "seq")
WAVES = 8


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Shop]:
    file = tmp_path_factory.mktemp("hostile") / "jobs.db"
    shop = fill(f"sqlite:///{file}")
    shop.app.close()
    with contextlib.closing(sqlite3.connect(file)) as raw:
        raw.execute("pragma wal_checkpoint(truncate)")
    return file, shop


def damages(raw: sqlite3.Connection, table: str) -> list[tuple[str, list[Any]]]:
    """Return columns of a table with one value for each of its rows, so that each value comes once to each column."""
    number = raw.execute(f"select count(*) from {table}").fetchone()[0]  # noqa: S608 - our own names
    found: list[tuple[str, list[Any]]] = []
    for _, column, kind, *_ in raw.execute(f"pragma table_info({table})").fetchall():
        if column not in ROOTS and number:
            values = VALUES[kind]
            rounds = -(-len(values) // number)
            found += [(column, [values[(turn * number + row) % len(values)] for row in range(number)]) for turn in range(rounds)]
    return found


def damage(raw: sqlite3.Connection, table: str, column: str, values: list[Any]) -> None:
    raw.text_factory = str
    names = [(row[1], row[2]) for row in raw.execute(f"pragma table_info({table})")]
    raw.text_factory = bytes
    at = [name for name, _ in names].index(column)
    rows = raw.execute(f"select * from {table}").fetchall()  # noqa: S608 - our own names
    given = ", ".join("cast(? as text)" if kind == "TEXT" else "?" for _, kind in names)
    raw.execute(f"delete from {table}")  # noqa: S608
    for row, value in zip(rows, values, strict=True):
        damaged = (*row[:at], value, *row[at + 1 :])
        try:
            raw.execute(f"insert into {table} values ({given})", damaged)  # noqa: S608
        except sqlite3.IntegrityError:  # it must be unique, and is not
            raw.execute(f"insert into {table} values ({given})", row)  # noqa: S608


@pytest.mark.parametrize("part", range(WAVES))
def test_whatever_stands_in_the_tables_can_be_looked_at(filled_file: tuple[Path, Shop], tmp_path: Path, part: int) -> None:
    file, filled = filled_file
    with contextlib.closing(sqlite3.connect(file)) as raw:
        number = raw.execute("select count(*) from laneway_job").fetchone()[0]
        tables = [name for (name,) in raw.execute("select name from sqlite_master where type = 'table' and name like 'laneway%'")]
        each = [[(table, *one) for one in damages(raw, table)] for table in tables]
    waves = list(itertools.zip_longest(*each))
    found: list[str] = []
    for wave in waves[part::WAVES]:
        copy = tmp_path / "jobs.db"
        shutil.copyfile(file, copy)
        with contextlib.closing(sqlite3.connect(copy)) as raw:
            raw.execute("pragma ignore_check_constraints = on")
            for one in filter(None, wave):
                damage(raw, *one)
            raw.commit()
        shop = open_shop(f"sqlite:///{copy}", filled)
        named = ", ".join(f"{table}.{column}" for table, column, _ in filter(None, wave))
        found += [f"{one} (damaged: {named})" for one in complaints(shop, number)]
        shop.app.close()
        for left in tmp_path.glob("jobs.db*"):
            left.unlink()
    assert not found, "\n".join(found)


def test_books_that_cannot_be_read_are_told_in_one_line(filled_file: tuple[Path, Shop], tmp_path: Path) -> None:
    told: list[str] = []
    for place, value in enumerate(BLOBS):
        copy = tmp_path / f"{place}.db"
        shutil.copyfile(filled_file[0], copy)
        with contextlib.closing(sqlite3.connect(copy)) as raw:
            raw.execute("update laneway_meta set books = ?", (value,))
            raw.commit()
        app = App(f"sqlite:///{copy}")
        try:
            app.inspect.queues()
        except StoreCorrupt as error:
            told.append(str(error))
        app.close()
    assert told
    assert [text for text in told if "\n" in text] == []


# -- Redis -------------------------------------------------------------------------------------------------------

#: A key of ours, and what it is. `laneway:{store}:version` says whether this is a store.
_KEY = re.compile(rb"laneway:\{.*?\}:([a-z_]+)")


class Server:
    """A server with a filled store, which can be damaged and restored."""

    def __init__(self) -> None:
        self.bench = redisbench.emptied()
        self.url = self.bench.url
        self.filled = fill(self.url)
        self.number = len(self.filled.app.inspect.jobs(limit=1000))
        self.filled.app.close()
        self._kept = {key: self.bench.ask("DUMP", key) for key in self.bench.ask("KEYS", "*")}
        kinds = {found[1].decode() for key in self._kept if (found := _KEY.match(key))}
        self.kinds = sorted(kinds - {"version"})

    def restore(self) -> None:
        self.bench.ask("FLUSHALL")
        for key, value in self._kept.items():
            self.bench.ask("RESTORE", key, 0, value)

    def damage(self, kind: str, turn: int) -> int:
        """Write something else into all keys of a kind: of a hash into each of its values."""
        values = itertools.islice(itertools.cycle(BLOBS), turn, None)
        keys = [key for key in sorted(self._kept) if (found := _KEY.match(key)) and found[1].decode() == kind]
        for key in keys:
            self._spoil(key, values)
        return len(keys)

    def _spoil(self, key: bytes, values: Iterator[bytes]) -> None:
        ask = self.bench.ask
        match ask("TYPE", key):
            case b"hash":
                for field in (*ask("HKEYS", key), *TEXTS[:2]):
                    ask("HSET", key, field, next(values))
            case b"zset":
                for entry in (*ask("ZRANGE", key, 0, -1), *TEXTS):
                    ask("ZADD", key, next(SCORES), entry)
            case b"set":
                ask("SADD", key, *TEXTS, b"7")
            case b"list":
                for place in range(ask("LLEN", key)):
                    ask("LSET", key, place, next(values))
                ask("RPUSH", key, *BLOBS)
            case _:
                ask("SET", key, next(values))


SCORES = itertools.cycle(("inf", "-inf", "1e300", "-1", "0", "7.5"))


@pytest.fixture(scope="module")
def redis() -> Server:
    return Server()


@pytest.mark.parametrize("part", range(WAVES))
def test_whatever_stands_in_the_keys_can_be_looked_at(redis: Server, part: int) -> None:
    kinds = redis.kinds
    assert len(kinds) > 25
    third = -(-len(kinds) // 3)
    found: list[str] = []
    # Three kinds at once, and each kind twice: with other values, and beside other kinds.
    for place in range(part, third, WAVES):
        for turn, damaged in ((0, kinds[place::third]), (9, kinds[3 * place : 3 * place + 3])):
            redis.restore()
            assert 0 not in [redis.damage(kind, turn) for kind in damaged]
            shop = open_shop(redis.url, redis.filled)
            found += [f"{one} (damaged: {damaged} {turn})" for one in complaints(shop, 0, commands=turn == 0)]
            shop.app.close()
    assert not found, "\n".join(found)


# -- what is shown -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "redis"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    made = App(f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else redisbench.emptied().url)
    yield made
    made.close()


def test_a_name_with_a_line_break_is_one_row_and_is_shown_escaped(other: App) -> None:
    other.store.push([Job(id=f"j{n}", queue="q", task="a\nb\x1b[2J", body=b"[[],{}]") for n in range(3)])
    listed = CliRunner().invoke(laneway, ["jobs", "list", "--store", other.url], prog_name="laneway").output
    shown = CliRunner().invoke(laneway, ["jobs", "show", "j1", "--store", other.url], prog_name="laneway").output
    with visiting(other) as client:
        page = client.ask("GET", "/jobs", headers={"accept": "text/html"}).text
    assert len(listed.splitlines()) == 4
    for text in (listed, shown, page):
        assert "\\x1b[2J" in text
        assert "\x1b" not in text
    assert "a\\nb" in listed
    assert "a\\nb" in shown


def test_what_cannot_be_read_is_marked(other: App) -> None:
    shop = Shop(other).fill()
    if other.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(other.url.removeprefix("sqlite:///"))) as raw:
            raw.execute("update laneway_meta set tail = x'ff2c'")
            raw.execute("update laneway_worker set info = x'ff'")
            raw.execute("update laneway_job set body = x'ff', errors = x'ff', notes = x'ff' where state = 5")
            raw.commit()
    else:
        ask = redisbench.server().ask
        ask("HSET", "laneway:{workers}:info", "w-1", b"\xff")
        ask("HSET", "laneway:{billing:0}:errors", shop.dead, b"\xff")
        ask("HSET", "laneway:{billing:0}:notes", shop.dead, b"\xff")
        ask("LSET", "laneway:{billing:0}:recent", 0, bytes(12) + b"\xff")
    job = other.inspect.job(shop.dead)
    assert job is not None
    assert (job.errors[-1].kind, job.log) == ("garbage", ["(the notes of this run cannot be read)"])
    assert [worker.phase for worker in other.inspect.workers()] == ["unreadable"]
    assert "unreadable" in [run.outcome for run in other.stats.recent(10)]
    with visiting(other) as client:
        for path in ("/jobs?q=state:finished", "/workers"):
            assert "unreadable" in client.ask("GET", path, headers={"accept": "text/html"}).text
