"""SQLite's statements: those that all SQL stores share, and its own."""

from __future__ import annotations

from pathlib import Path

from laneway.store.sql.dialect import Dialect
from laneway.store.sql.statements import SHARED, InOrder, load

__all__ = ["DIALECT", "IN_ORDER", "SQL"]

SQL = load(SHARED, Path(__file__).parent)


class _InOrder(dict[str, InOrder]):
    def __missing__(self, text: str) -> InOrder:
        found = self[text] = InOrder(text)
        return found


#: The statements with values in order, by their texts; each is made when it is first used.
IN_ORDER = _InOrder()

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
