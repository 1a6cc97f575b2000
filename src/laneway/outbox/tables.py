"""The outbox's tables, as SQL for the user's migrations and for `laneway outbox init`.

* `laneway_outbox`: a row for each job. Programs only insert, relays only read and delete. `seq` is the order of inserts, which is
  not that of commits: numbers are given by the relay.
* `laneway_outbox_meta`: one row. `source` names the outbox in the store, `last` is the last number that was given. `batch` are
  the rows that have numbers and may be on their way: the first number, and the rows by their `seq`. `epoch` grows with each relay
  that takes over; until `until` no other does.
* `laneway_outbox_aside`: rows that can never become jobs, with the reason.

Times are microseconds since 1970, by the database's clock.
"""

from __future__ import annotations

__all__ = ["NAMES", "create"]

NAMES = ("laneway_outbox", "laneway_outbox_meta", "laneway_outbox_aside")

_SQLITE = """\
create table if not exists laneway_outbox (
    seq  integer primary key autoincrement,
    job  text not null,
    made integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
);
create table if not exists laneway_outbox_meta (
    only_row integer primary key check (only_row = 1),
    source   text not null,
    last     integer not null default 0,
    batch    text not null default '',
    epoch    integer not null default 0,
    until    integer not null default 0
);
create table if not exists laneway_outbox_aside (
    seq    integer primary key,
    job    text not null,
    made   integer not null,
    at     integer not null,
    reason text not null
);
insert into laneway_outbox_meta (only_row, source) values (1, lower(hex(randomblob(16)))) on conflict do nothing;
"""

# Rows live for milliseconds: vacuum goes by their number, does not pause, and never cuts the file, which would lock the table.
_POSTGRES = """\
create table if not exists {schema}laneway_outbox (
    seq  bigint generated always as identity primary key,
    job  text not null,
    made bigint not null default (extract(epoch from clock_timestamp()) * 1000000)::bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000, vacuum_truncate = off);
create table if not exists {schema}laneway_outbox_meta (
    only_row integer primary key check (only_row = 1),
    source   text not null,
    last     bigint not null default 0,
    batch    text not null default '',
    epoch    bigint not null default 0,
    until    bigint not null default 0
);
create table if not exists {schema}laneway_outbox_aside (
    seq    bigint primary key,
    job    text not null,
    made   bigint not null,
    at     bigint not null,
    reason text not null
);
insert into {schema}laneway_outbox_meta (only_row, source) values (1, gen_random_uuid()::text) on conflict do nothing;
"""


def create(kind: str, schema: str = "") -> str:
    """Return the statements that make the tables in a database of a kind; `schema` ends with a point, or is empty."""
    return _SQLITE if kind == "sqlite" else _POSTGRES.format(schema=schema)
