"""PostgreSQL's statements: those that all SQL stores share, and its own; and the functions that live in the database.

The tables are in a schema of their own, whose name is put in here: `laneway_job` in a shared statement is `laneway.job`, and
`laneway_enrol_vN` the function `enrol` of this version.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from laneway.store.sql.dialect import Dialect
from laneway.store.sql.rows import WORDS
from laneway.store.sql.statements import SHARED, InOrder, load

__all__ = ["DIALECT", "VERSION", "call", "functions", "in_schema", "migration", "numbered", "statements"]

#: The version of the tables and functions.
VERSION = 5

_HERE = Path(__file__).parent
_FUNCTIONS = ("common", "push", "enqueue", "finish", "restore", "fold", "exchange", "moving")
#: Plans must not depend on statistics: the tables are empty at one moment and full at the next.
_PLANNER = (
    "set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off"
)
#: Nor are they made anew for each call.
_GENERIC = "set plan_cache_mode = force_generic_plan"
#: No call waits longer for a lock: its caller may have given up, and others would pile up behind it.
_PATIENCE = "set lock_timeout = '1500ms'"
#: The next token. Given in the order of what is chosen, and not in the order in which rows are changed, which is the planner's.
_NEXT_TOKEN = "(v_now / 1000 << 22) | (nextval('$schema.token') & 4194303)"  # noqa: S105 - no password
#: The jobs that an exchange may settle, and what its claims write.
_OURS = "state = $running and worker = p_worker"
_CLAIMS = (
    "state = $running, worker = p_worker, holds = (j.lane is not null)::integer, "
    "unique_key = case when j.end_key is not null then j.unique_key end, "
    "line_from = case when j.holds = 1 then j.line_from when j.lane is not null then least(v_quiet - 1, j.place) end"
)
#: Of a lane's holder that leaves: from where on the others of its lane stand, see line_head.
_LIVE = "coalesce(line_from, 0) as live_from, case when line_from = place then seq else 0 end as live_seq"
#: How many entries and blocks this transaction has read of the indexes that walks use, and how many entries of those by lane.
#: Entries that the server knows to be dead are not counted, but their blocks are.
_WALKED = " + ".join(
    f"pg_stat_get_xact_{what}('$schema.{index}'::regclass)"
    for what in ("tuples_returned", "blocks_fetched")
    for index in ("job_due", "job_due_lane")
)
_LINED = (
    "pg_stat_get_xact_tuples_returned('$schema.job_line'::regclass) + "
    "pg_stat_get_xact_tuples_returned('$schema.job_holder'::regclass)"
)
_WORD = re.compile(r"\$([a-z]+)\b")
_TABLE = re.compile(r"\blaneway_([a-z0-9_]+)")

DIALECT = Dialect(
    elements="select jsonb_array_elements_text(cast({} as jsonb))",
    numbers="select cast(jsonb_array_elements_text(cast({} as jsonb)) as bigint)",
    pairs="select value ->> 0 as queue, cast(value ->> 1 as smallint) as rank from jsonb_array_elements(cast({} as jsonb))",
    error_has="laneway_error_has(errors, {0})",
    by_arrival="",
)


#: Returns a statement with its values by number, as the server takes them.
numbered = functools.cache(functools.partial(InOrder, numbered=True))


@functools.cache
def statements(schema: str) -> dict[str, str]:
    """Return all statements by name, for tables in a schema."""
    found = load(SHARED, _HERE)
    return {name: in_schema(text.replace("_vN(", f"_v{VERSION}("), schema) for name, text in found.items()}


@functools.cache
def call(schema: str, function: str, number: int) -> str:
    """Return the call of a function of this version, with this many values."""
    places = ", ".join(f"${n}" for n in range(1, number + 1))
    return f"select * from {schema}.{function}_v{VERSION}({places})"


def in_schema(text: str, schema: str) -> str:
    """Return a shared statement for tables in a schema."""
    return _TABLE.sub(rf"{schema}.\1", text)


def migration(version: int, schema: str) -> str:
    """Return the text that makes the tables of a version out of the one before."""
    return _fill((_HERE.parent / "migrations" / f"{version:04}.sql").read_text(encoding="utf-8"), schema)


def functions(schema: str) -> str:
    """Return the text that makes the functions."""
    files = [_HERE.parent / "functions" / f"{name}.sql" for name in _FUNCTIONS]
    return _fill("\n".join(file.read_text(encoding="utf-8") for file in files), schema)


def _fill(text: str, schema: str) -> str:
    words = {
        **WORDS,
        "schema": schema,
        "version": f"v{VERSION}",
        "number": str(VERSION),
        "planner": f"{_PLANNER} {_GENERIC}",
        "generic": _GENERIC,
        "patience": _PATIENCE,
    }
    put = functools.partial(_WORD.sub, lambda found: words.get(found[1], found[0]))
    words |= {"token": put(_NEXT_TOKEN), "ours": put(_OURS), "claims": put(_CLAIMS), "walked": put(_WALKED), "lined": put(_LINED)}
    words["live"] = _LIVE
    return put(text)
