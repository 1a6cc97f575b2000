"""kill -9 and SIGSTOP around the commit of a receipt: each order is written exactly once, with every store."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import pytest

from conftest import SOAK, often
from oncebench import Orders
from transactbench import SEATS

#: Which store, which database of the user's, and which driver. In the soak all drivers, with a store elsewhere.
TRIED = [("redis", *seat) for seat in SEATS] if SOAK else [("redis", "sqlite", "sqlite3"), ("redis", "postgres", "psycopg")]
FROZEN = [("redis", "postgres", "psycopg"), ("sqlite", "sqlite", "sqlite3"), ("postgres", "postgres", "psycopg")]
TRIED += [("sqlite", "sqlite", "aiosqlite"), ("postgres", "postgres", "asyncpg"), ("postgres", "sqlite", "sqlite3")]


@pytest.mark.soak
@pytest.mark.parametrize(("store", "kind", "driver"), TRIED)
def test_each_order_is_written_once_wherever_its_worker_is_killed(store: str, kind: str, driver: str, tmp_path: Path) -> None:
    orders, number = Orders(store, kind, driver, "once", tmp_path), often(1, 25)
    orders.enqueue(number)

    orders.kill(("write", "commit") * number)
    orders.run()

    told = orders.check()
    assert any(line.startswith("again") for line in told), "a run came after one that had committed"


@pytest.mark.soak
@pytest.mark.parametrize(("store", "kind", "driver"), FROZEN)
def test_each_order_is_written_once_though_its_worker_was_frozen(store: str, kind: str, driver: str, tmp_path: Path) -> None:
    if not SOAK and store != "redis":
        pytest.skip("as the other one")
    orders = Orders(store, kind, driver, "once", tmp_path)

    orders.freeze(list(islice(cycle(("begin", "commit")), often(1, 20))))

    told = orders.check()
    assert len([line for line in told if line.startswith("again")]) >= often(1, 20), "the frozen one came second, or the other"
