"""A PostgreSQL server of a benchmark's own, and the least a job processor on PostgreSQL has to do, by libpq's own calls.

The server is on a disk and waits for it, as one in production: otherwise it is as it comes. The raw layout loses nothing when a
process dies: one table, an index of what is due and one of what runs; one statement settles and claims. No lanes, no priorities,
no counts, no record of finished runs, nothing about who is alive.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from postgresbench import Pooler, Server, pooler_why_not, why_not

__all__ = ["Pooler", "RawPostgres", "Server", "missing", "pooler_missing", "served"]

#: What the tests' servers do otherwise.
AS_IT_COMES = ("fsync=on", "full_page_writes=on", "min_wal_size=80MB", "max_wal_size=1GB")

TABLE = """
create table {0} (
    seq bigint generated always as identity, id text collate "C" primary key, queue text collate "C" not null,
    task text collate "C" not null, due bigint not null, state smallint not null default 0, worker text, token bigint,
    body bytea not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);
create index on {0} (queue, due, seq) where state = 0;
create index on {0} (token) where state = 1;
create sequence {0}_token"""

EXCHANGE = """
with settled as (delete from {0} where state = 1 and token = any ($1::bigint[]) and worker = 'w'),
     claimed as (
        update {0} set state = 1, worker = 'w', token = nextval('{0}_token') where ctid = any (array(
            select ctid from {0} where queue = 'default' and state = 0 and due <= $3 order by due, seq limit $2
            for update skip locked))
        returning token, id, task, body)
select * from claimed"""

PUSH = """
insert into {0} (id, queue, task, due, body)
select id, 'default', 'app.send_email', due, body from unnest($1::text[], $2::bigint[], $3::bytea[]) u(id, due, body)
on conflict (id) do nothing"""

INSERT = """
insert into {0} (id, queue, task, due, body) values ($1, 'default', 'app.send_email', $2, $3) on conflict (id) do nothing"""


def missing() -> str:
    """Say what these benchmarks lack here; empty: nothing."""
    return (lacking := why_not()) and f"the parts about PostgreSQL are left out: {lacking}"


def pooler_missing() -> str:
    """Say what the rows behind a pooler lack here; empty: nothing."""
    return (lacking := pooler_why_not()) and f"the rows behind PgBouncer are left out: {lacking}"


@contextlib.contextmanager
def served(*options: str) -> Generator[Server]:
    """Give a server that is gone afterwards."""
    server = Server(*AS_IT_COMES, *options, quick=False)
    try:
        yield server
    finally:
        server.remove()


class RawPostgres:
    """A table of jobs, as plain as can be. `durable`: commits wait for the disk."""

    def __init__(self, server: Server, *, durable: bool) -> None:
        self._table = "raw_durable" if durable else "raw"
        self.connection = psycopg.connect(server.url, autocommit=True, prepare_threshold=None)
        self._line = self.connection.pgconn
        settings = "set enable_seqscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan"
        self.connection.execute(f"{settings}; set synchronous_commit = {'on' if durable else 'off'}".encode())
        self.connection.execute(TABLE.format(self._table).encode())
        for name, statement in ((b"exchange", EXCHANGE), (b"push", PUSH), (b"insert", INSERT)):
            self._line.prepare(name, statement.format(self._table).encode())

    def push(self, rows: Sequence[tuple[str, int, bytes]]) -> None:
        """Insert rows by one statement."""
        if len(rows) == 1:
            [(id_, due, body)] = rows
            self._ask(b"insert", id_.encode(), b"%d" % due, b"\\x" + body.hex().encode())
            return
        ids = ",".join([id_ for id_, _, _ in rows])
        dues = ",".join([str(due) for _, due, _ in rows])
        bodies = ",".join([f'"\\\\x{body.hex()}"' for _, _, body in rows])
        self._ask(b"push", *(f"{{{values}}}".encode() for values in (ids, dues, bodies)))

    def drain(self, limit: int, now: int) -> int:
        """Claim and delete until nothing is left; return how many."""
        done: list[int] = []
        number = 0
        while True:
            tokens = b"{%b}" % ",".join(map(str, done)).encode()
            rows = self._ask(b"exchange", tokens, b"%d" % limit, b"%d" % now)
            if not rows:
                return number
            done = [token for token, _, _, _ in rows]
            number += len(done)

    def _ask(self, name: bytes, *values: bytes) -> list[tuple[int, str, str, bytes]]:
        """Execute a statement that was prepared; return its rows."""
        result = self._line.exec_prepared(name, values, None, 1)
        if result.status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
            raise RuntimeError(result.error_message.decode())
        reader = Transformer(self.connection)
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)
