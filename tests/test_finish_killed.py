"""kill -9 and SIGSTOP around the commit that finishes a job: its effect is there exactly once, and no run comes after it."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import pytest

from conftest import SOAK, often
from oncebench import Orders

#: Which store, which is the user's database too, and which driver.
TRIED = [("sqlite", "sqlite3"), ("postgres", "psycopg")] + ([("sqlite", "aiosqlite"), ("postgres", "asyncpg")] if SOAK else [])


@pytest.mark.soak
@pytest.mark.parametrize(("store", "driver"), TRIED)
def test_each_order_is_written_once_and_finished_for_good(store: str, driver: str, tmp_path: Path) -> None:
    orders = Orders(store, store, driver, "finish", tmp_path)
    orders.enqueue(often(2, 25))

    orders.kill(list(islice(cycle(("write", "commit")), often(2, 50))))
    orders.run()
    orders.freeze(list(islice(cycle(("begin", "write", "commit")), often(3, 20))))

    told = orders.check()
    committed = set[str]()
    for line in told:
        point, order = line.split()
        assert point != "begin" or order not in committed, f"order {order} ran after it was finished"
        committed |= {order} if point == "commit" else set()
    lost = [line for line in told if line.startswith("lost")]
    assert len(lost) == len(range(0, often(3, 20), 3)), "who was frozen before it finished has lost its claim"
