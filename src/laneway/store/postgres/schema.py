"""The tables' version.

A database without Laneway's schema gets it on first use, where the role may create one. Tables of another version are never
touched by accident: older ones are brought forward by `migrate`, newer ones need a newer Laneway.
"""

from __future__ import annotations

import contextlib

from laneway.errors import SchemaError
from laneway.logs import log
from laneway.store.postgres.connection import Broken, PostgresConnection, PostgresError
from laneway.store.postgres.statements import VERSION, functions, migration
from laneway.store.postgres.wire import PostgresWire

__all__ = ["MIGRATIONS", "OLDEST", "VERSION", "ensure", "migrate", "read_version", "recount", "script"]

#: The oldest server, as libpq numbers it: 13 has xid8.
OLDEST = 130_000
#: What each migration does, by the version it leads to.
MIGRATIONS = {
    1: "make the tables and functions",
    2: "replace the functions: they settle and claim in one way; note where the tables were made",
    3: "replace the functions: a push says whether a worker sleeps",
    4: "add a sequence, and replace the functions: an exchange that hands one lane on takes less time",
    5: "replace the functions: of the exchanges that hand one lane on, most look for no other job",
}


def ensure(line: PostgresConnection, name: str, schema: str) -> None:
    """Create the tables if there are none, and raise SchemaError if they are of another version."""
    if line.version < OLDEST:
        raise SchemaError(f"{name} is PostgreSQL {line.version // 10_000}, and Laneway needs 13 or newer")
    found = version(line, schema)
    if found is None:
        migrate(line, name, schema)
    elif found < VERSION:
        raise SchemaError(
            f"{name} has tables of version {found}, and this Laneway uses version {VERSION}. "
            "Stop all workers, make a backup, then run: laneway migrate",
            found=found, expected=VERSION,
        )  # fmt: skip
    elif found > VERSION:
        raise _newer(found, name)
    else:
        try:
            recount(line, schema)
        except PostgresError as error:
            log.warning("%s: its jobs could not be counted after a restore (%s): run laneway migrate", name, error)


def recount(line: PostgresConnection, schema: str) -> None:
    """Count all anew if the tables came out of a dump. One statement, so the server finishes it even if the caller is gone."""
    line.ask(f"select {schema}.recount_v{VERSION}()")


def version(line: PostgresConnection, schema: str) -> int | None:
    """Return the version of the tables; None: there are none."""
    # Not to_regclass: after a lock was waited for, its cache may still say that there is no such schema.
    there = "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'meta'"
    if not line.ask(there, (schema,)):
        return None
    return int(line.ask(f"select version from {schema}.meta")[0][0])


def read_version(wire: PostgresWire, schema: str) -> int | None:
    """Return the version of a database's tables, and make none; None: there are none."""
    found: list[int | None] = []
    wire.dial(opened=lambda line: found.append(version(line, schema))).close()
    return found[0]


def migrate(line: PostgresConnection, name: str, schema: str) -> None:
    """Bring the tables to this version, all or nothing. Two programs at once do it once."""
    line.ask("begin isolation level read committed")
    try:
        line.ask("select pg_advisory_xact_lock(hashtextextended($1, 81))", (schema,))
        line.ask("select from pg_catalog.pg_class limit 1")  # the session learns of tables made during the wait for the lock
        found = version(line, schema) or 0
        if found > VERSION:
            raise _newer(found, name)
        if found < VERSION:
            line.run_script(script(schema, found))
        recount(line, schema)
        line.ask("commit")
    except BaseException:
        with contextlib.suppress(Broken):  # its session ends, and so does the transaction
            line.ask("rollback")
        raise


def script(schema: str, found: int = 0) -> str:
    """Return the statements that bring tables of a version to this one, without the transaction around them."""
    parts = [_drop_functions(schema) if found else _create_schema(schema)]
    parts += [migration(version, schema) for version in range(found + 1, VERSION + 1)]
    parts += [functions(schema), f"revoke execute on all functions in schema {schema} from public;"]
    parts.append(f"update {schema}.meta set version = {VERSION};")
    return "\n".join(parts)


def _create_schema(schema: str) -> str:
    """Return a statement that makes the schema if it is missing: `if not exists` would ask for the right to create one anyway."""
    return f"do $$ begin if to_regnamespace('{schema}') is null then create schema {schema}; end if; end $$;"


def _drop_functions(schema: str) -> str:
    """Return a statement that drops the functions and types of the version before; not those that others have rights to."""
    return f"""do $$ declare it text; begin
    for it in select format('function %s', oid::regprocedure) from pg_proc
        where pronamespace = '{schema}'::regnamespace and proname not in ('enqueue', 'finish')
        union all select format('type %s', reltype::regtype) from pg_class
            where relnamespace = '{schema}'::regnamespace and relkind = 'c' loop
        execute format('drop %s cascade', it);
    end loop; end $$;"""


def _newer(found: int, name: str) -> SchemaError:
    return SchemaError(
        f"{name} has tables of version {found}, and this Laneway knows versions up to {VERSION}: upgrade Laneway here",
        found=found, expected=VERSION,
    )  # fmt: skip
