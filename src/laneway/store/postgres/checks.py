"""What is examined of a PostgreSQL server: what its settings, its sessions and our tables mean for jobs.

The first part asks, in one round trip; the rest is pure: facts come in, findings come out.

Enters: a connection.  Leaves: findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.logs import some
from laneway.store.findings import Finding, megabytes
from laneway.store.postgres.connection import PostgresConnection
from laneway.store.postgres.schema import OLDEST, VERSION

__all__ = [
    "check_connections", "check_dead_rows", "check_durability", "check_holders", "check_horizon", "check_isolation",
    "check_ledger", "check_locks", "check_notifications", "check_replication", "check_rights", "check_slots", "check_vacuum",
    "check_version", "examine",
]  # fmt: skip

#: A share of a limit that is near. The server needs a part of its table of locks for itself.
NEAR, LOCKS_NEAR = 0.9, 0.7
#: A transaction that is open for longer holds vacuum up noticeably: seconds, or where no time is known, transactions since.
OPEN_LONG, MANY_TRANSACTIONS = 300.0, 1_000_000
#: The number of dead rows in a table, if it has fewer live ones, for a note; and for a warning.
DEAD_ROWS, MANY_DEAD_ROWS = 200_000, 2_000_000
#: More rows of the ledger than this are not added up in time. With one worker there are those of the last second.
LEDGER_LONG = 100_000

#: The settings that are examined: as this user gets them in a new session, not as Laneway sets them.
SETTINGS = (
    "autovacuum", "default_transaction_isolation", "default_transaction_read_only", "fsync", "full_page_writes",
    "max_connections",
    "max_locks_per_transaction", "max_prepared_transactions", "superuser_reserved_connections", "synchronous_commit",
    "synchronous_standby_names", "track_counts",
)  # fmt: skip

_MISSING = """
select c.relname || ' (' || string_agg(p, ', ') || ')' from pg_class c,
    unnest(case when c.relkind = 'S' then '{usage,select,update}' when c.relname = 'meta' then '{select}'
           else '{select,insert,update,delete}' end::text[]) p
where c.relnamespace = cast($1 as regnamespace) and c.relkind in ('r', 'S')
    and not case when c.relkind = 'S' then has_sequence_privilege(c.oid, p) else has_table_privilege(c.oid, p) end
group by c.relname
union all
select proname || ' (execute)' from pg_proc
where pronamespace = cast($1 as regnamespace) and not has_function_privilege(oid, 'execute')
order by 1"""

#: Sessions that hold back the horizon: vacuum keeps all rows that they may still read. Sessions in other databases do not count.
_SESSIONS = """
select pid, coalesce(usename::text, ''), application_name, coalesce(state, ''),
    extract(epoch from clock_timestamp() - xact_start)::float8
from pg_stat_activity
where (backend_xmin is not null or backend_xid is not null) and datname = current_database() and backend_type = 'client backend'
    and pid <> pg_backend_pid() and xact_start is not null
order by xact_start"""

_PREPARED = """
select gid, owner::text, extract(epoch from clock_timestamp() - prepared)::float8 from pg_prepared_xacts
where database = current_database() order by prepared"""

_STANDBYS = """
select coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''), coalesce(age(backend_xmin), 0)::bigint
from pg_stat_replication"""

_SLOTS = "select slot_name::text from pg_replication_slots where not active order by 1"

_TABLES = """
select s.relname::text, n_dead_tup, n_live_tup, pg_total_relation_size(s.relid),
    extract(epoch from now() - greatest(last_autovacuum, last_vacuum))::float8,
    exists (select from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_enabled' and not option_value::boolean)
from pg_stat_user_tables s join pg_class c on c.oid = s.relid where schemaname = $1 order by n_dead_tup desc"""

_LEDGER = """
select count(*), {schema}.is_original_v{version}() from (
    select 1 from {schema}.books b, {schema}.ledger l where l.xid >= pg_snapshot_xmax(b.snap) limit {most}) rows"""

_SERVER = """
select pg_is_in_recovery(), pg_has_role('pg_read_all_stats', 'member'),
    (select sum(numbackends)::bigint from pg_stat_database), (select count(*) from pg_locks where not fastpath)"""


def examine(line: PostgresConnection, schema: str) -> list[Finding]:
    """Ask the server, and judge what it says."""
    line.send([
        (_SERVER, ()), ("select name, reset_val from pg_settings where name = any ($1)", ("{" + ",".join(SETTINGS) + "}",)),
        (_MISSING, (schema,)), (_SESSIONS, ()), (_PREPARED, ()), (_STANDBYS, ()), (_SLOTS, ()), (_TABLES, (schema,)),
        (_LEDGER.format(schema=schema, version=VERSION, most=LEDGER_LONG), ()),
    ])  # fmt: skip
    server, given, missing, sessions, prepared, standbys, slots, tables, ledger = (answer.rows for answer in line.read())
    [(recovers, sees, clients, locks)] = server
    settings: dict[str, str] = dict(given)
    return [
        check_version(line.version), check_replication(recovers, settings, standbys), check_durability(settings),
        check_isolation(settings), check_rights([name for (name,) in missing], sees), check_connections(clients, settings),
        check_locks(locks, settings), check_horizon(sessions, prepared, standbys), *check_slots([name for (name,) in slots]),
        check_vacuum(settings, [name for name, *_, off in tables if off]), check_dead_rows(tables), check_ledger(*ledger[0]),
    ]  # fmt: skip


def check_version(version: int) -> Finding:
    """Judge the server's version, as libpq numbers it."""
    name = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < OLDEST:
        return Finding("version", "problem", f"it is {name}, and Laneway needs 13 or newer", "Upgrade the server")
    return Finding("version", "ok", name)


def check_replication(recovers: bool, settings: Mapping[str, str], standbys: Sequence[Sequence[Any]]) -> Finding:
    """Judge the server's role, and whether commits wait for a standby that is not there."""
    if recovers:
        return Finding(
            "replication", "problem", "it is a standby: it takes no writes, so nothing can be enqueued or run",
            "Use its primary's address, or name all hosts and target_session_attrs=read-write",
        )  # fmt: skip
    if settings["default_transaction_read_only"] == "on":
        return Finding(
            "replication", "problem", "its transactions are read-only for this user: nothing can be enqueued or run",
            "Set default_transaction_read_only off for the user, the database or the server",
        )  # fmt: skip
    waits = settings["synchronous_standby_names"] and settings["synchronous_commit"] not in ("off", "local")
    if waits and not any(sync in ("sync", "quorum") for _, _, sync, _ in standbys):
        return Finding(
            "replication", "problem", "commits wait for a synchronous standby, and none is connected: each enqueue times out",
            "Start the standby, or change synchronous_standby_names",
        )  # fmt: skip
    return Finding("replication", "ok", f"a primary; standbys: {len(standbys)}")


def check_durability(settings: Mapping[str, str]) -> Finding:
    """Judge what a crash of the server can take."""
    if off := [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]:
        return Finding(
            "durability", "problem", f"{' and '.join(off)} off: if the machine crashes, the whole database can be damaged",
            "Set both on, and restore a backup after a crash that has happened",
        )  # fmt: skip
    if settings["synchronous_commit"] == "off":
        return Finding(
            "durability", "warning",
            "synchronous_commit is off: if the server crashes, jobs that were enqueued in its last fraction of a second are lost",
            "Set it on for this user, unless that does not matter",
        )  # fmt: skip
    return Finding("durability", "ok", "what was enqueued is on disk")


def check_isolation(settings: Mapping[str, str]) -> Finding:
    """Judge the isolation level that transactions get unless they ask for another."""
    level = settings["default_transaction_isolation"]
    if level == "read committed":
        return Finding("isolation", "ok", level)
    return Finding(
        "isolation", "note",
        f"the default isolation level of this user is {level}. Laneway sets read committed for its own sessions, and its "
        "functions refuse another: behind a pooler that gives it sessions of other programs it may get that error",
        "Behind a pooler: alter role … set default_transaction_isolation = 'read committed'",
    )  # fmt: skip


def check_rights(missing: Sequence[str], sees: bool) -> Finding:
    """Judge what this user may not do. `sees`: it may look at other users' sessions."""
    if missing:
        return Finding(
            "rights", "problem", f"this user lacks rights on {some(list(missing))}: calls will fail",
            "Grant them as its owner: see docs/postgres.md, rights",
        )  # fmt: skip
    if not sees:
        return Finding(
            "rights", "note", "this user may not look at other users' sessions, so not everything could be examined",
            "Run laneway doctor as a user who may, or grant pg_read_all_stats",
        )  # fmt: skip
    return Finding("rights", "ok", "this user may do all that Laneway needs")


def check_connections(clients: int, settings: Mapping[str, str]) -> Finding:
    """Judge how many connections are left. Some are kept for superusers."""
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    text = f"{clients:,} of {most:,} connections"
    if clients <= NEAR * most:
        return Finding("connections", "ok", text)
    return Finding(
        "connections", "warning", f"{text} are in use: then the server refuses further ones",
        "Raise its max_connections, use a pooler, or fewer connections (laneway worker -c)",
    )  # fmt: skip


def check_locks(locks: int, settings: Mapping[str, str]) -> Finding:
    """Judge how much of the server's table of locks is left. A worker needs one for each lane that it settles."""
    sessions = int(settings["max_connections"]) + int(settings["max_prepared_transactions"])
    most = int(settings["max_locks_per_transaction"]) * sessions
    text = f"{locks:,} of about {most:,} locks"
    if locks <= LOCKS_NEAR * most:
        return Finding("locks", "ok", text)
    return Finding(
        "locks", "warning", f"{text} are in use: then statements fail, and are tried again",
        "See in pg_locks which session holds them; raise its max_locks_per_transaction",
    )  # fmt: skip


def check_horizon(
    sessions: Sequence[Sequence[Any]], prepared: Sequence[Sequence[Any]], standbys: Sequence[Sequence[Any]]
) -> Finding:
    """Judge what keeps vacuum from removing rows that are gone: transactions that could still see them."""
    holders: list[tuple[str, str]] = []
    for gid, owner, seconds in prepared:
        if seconds > OPEN_LONG:
            end = f"Commit it or roll it back: rollback prepared '{gid}'"
            holders.append((f"a transaction prepared {seconds:,.0f} s ago by {owner} ('{gid}')", end))
    for pid, user, program, state, seconds in sessions:
        if seconds > OPEN_LONG:
            does = "is idle in a transaction" if state.startswith("idle in transaction") else "has had a transaction open"
            who = f"session {pid} of {user}{f' ({program})' if program else ''} {does} for {seconds:,.0f} s"
            holders.append((who, f"End it: select pg_terminate_backend({pid})"))
    for name, _, _, age in standbys:
        if age > MANY_TRANSACTIONS:
            holders.append((f'a query on standby "{name}" (hot_standby_feedback), {age:,} transactions old', "End it there"))
    if not holders:
        return Finding("horizon", "ok", "nothing keeps vacuum from removing old rows")
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    return Finding(
        "horizon", "warning",
        f"vacuum cannot remove the rows of finished jobs, and the tables grow. What holds it up: {holders[0][0]}{more}",
        holders[0][1],
    )  # fmt: skip


def check_slots(unused: Sequence[str]) -> list[Finding]:
    """Judge replication slots that no standby or program reads."""
    if not unused:
        return []
    return [Finding(
        "slots", "warning",
        f"no program reads replication slot {some(list(unused))}: the server keeps its log (WAL) for it until its disk is full",
        f"Start its reader, or remove it: select pg_drop_replication_slot('{unused[0]}')",
    )]  # fmt: skip


def check_vacuum(settings: Mapping[str, str], without: Sequence[str]) -> Finding:
    """Judge whether vacuum runs by itself. `without`: the tables for which it was switched off."""
    off = [name for name in ("autovacuum", "track_counts") if settings[name] == "off"]
    if off or without:
        which = " and ".join(off) or f"autovacuum of {some(list(without))}"
        return Finding(
            "vacuum", "warning", f"{which} is off: rows of finished jobs are never removed, and the tables grow without end",
            "Set it on",
        )  # fmt: skip
    return Finding("vacuum", "ok", "autovacuum is on")


def check_dead_rows(tables: Sequence[Sequence[Any]]) -> Finding:
    """Judge the rows that vacuum has not removed yet."""
    size = sum(table[3] for table in tables)
    name, dead, live, _, seconds, _ = tables[0]
    text = f"{megabytes(size)} in tables and indexes; table {name}: {dead:,} dead rows, {live:,} live ones"
    if dead < DEAD_ROWS or dead < live:
        return Finding("tables", "ok", text)
    last = "it was never vacuumed" if seconds is None else f"it was last vacuumed {seconds:,.0f} s ago"
    advice = "If this lasts, see what holds vacuum up, and whether its workers are busy elsewhere (autovacuum_max_workers)"
    return Finding("tables", "warning" if dead >= MANY_DEAD_ROWS else "note", f"{text}; {last}", advice)


def check_ledger(rows: int, original: bool) -> Finding:
    """Judge whether the ledger is added up: workers do that. `original`: no jobs that came out of a dump are to be counted."""
    if not original:
        return Finding(
            "ledger", "warning",
            "the tables came out of a dump, and their jobs are not counted yet: counts and totals may be wrong",
            "Run laneway migrate",
        )  # fmt: skip
    if rows < LEDGER_LONG:
        return Finding("ledger", "ok", f"{rows:,} steps are not added up yet")
    return Finding(
        "ledger", "warning", f"{rows:,} steps or more are not added up: counts take long, and the table grows",
        "Start a worker: each adds them up once a second",
    )  # fmt: skip


def check_notifications(reached: bool, passed: bool) -> Finding:
    """Judge whether workers can be woken. `passed`: they listen at an address of their own (listen=)."""
    if reached:
        return Finding("notifications", "ok", "workers are woken by NOTIFY")
    if passed:
        return Finding(
            "notifications", "warning",
            "no notification reaches the address of listen=: idle workers look every 5 to 250 ms instead",
            "Name the server's own address there, of the same database, and not a pooler's",
        )  # fmt: skip
    return Finding(
        "notifications", "note",
        "no notification reaches this address, as behind a pooler in transaction mode: idle workers look every 5 to 250 ms "
        "instead",
        "To have them woken, add the server's own address: &listen=postgresql%3A%2F%2F…",
    )  # fmt: skip


def check_holders(lanes: Sequence[tuple[str, str]]) -> Finding:
    """Judge the lanes that two jobs hold at once: there must be none."""
    if not lanes:
        return Finding("integrity", "ok", "no lane is held twice")
    names = some([f"{lane} of queue {queue}" for queue, lane in lanes])
    return Finding(
        "integrity", "problem", f"two jobs hold the same lane: {names}. Another program wrote to the tables, or this is an error",
        "Delete or cancel one of each: laneway lanes show QUEUE LANE",
    )  # fmt: skip
