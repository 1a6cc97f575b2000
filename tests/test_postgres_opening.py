"""Opening a store in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import postgresbench
from workbench import DEADLINE

SCHEMA = "opening"


@pytest.fixture
def server() -> Iterator[postgresbench.Server]:
    found = postgresbench.server()
    found.drop(SCHEMA)
    yield found
    found.drop(SCHEMA)


@pytest.mark.parametrize("_", range(5))
def test_programs_that_open_a_new_store_at_once_make_its_tables_once(server: postgresbench.Server, _: int) -> None:
    from laneway.store.postgres import PostgresStore  # noqa: PLC0415 - its driver may be missing

    stores = [PostgresStore(server.url, schema=SCHEMA) for _ in range(6)]
    errors: list[Exception] = []

    def use(store: PostgresStore) -> None:
        try:
            store.schedules()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=use, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    for store in stores:
        store.close()

    assert errors == []
