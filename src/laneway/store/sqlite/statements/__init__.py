"""SQLite's statements: those that all SQL stores share, and its own."""

from __future__ import annotations

from pathlib import Path

from laneway.store.sql.dialect import Dialect
from laneway.store.sql.statements import SHARED, load

__all__ = ["DIALECT", "SQL"]

SQL = load(SHARED, Path(__file__).parent)

DIALECT = Dialect(
    elements="select value from json_each({})",
    numbers="select value from json_each({})",
    pairs="select json_extract(value, '$[0]') as queue, json_extract(value, '$[1]') as rank from json_each({})",
    error_has="""case when json_valid(cast(errors as text)) then
        instr(json_extract(cast(errors as text), '$[#-1].kind'), {0})
        or instr(json_extract(cast(errors as text), '$[#-1].message'), {0})
    end""",
    by_arrival="not indexed",
)
