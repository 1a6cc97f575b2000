"""Dialects: parts of statements that differ between SQL databases."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Dialect"]


class Dialect(Struct, frozen=True):
    """Parts of statements. Braces stand for the name of a value, with its colon."""

    elements: str  #: a query of the elements of a JSON array of texts
    numbers: str  #: the same of numbers alone
    pairs: str  #: a query of the columns `queue` and `rank`, from a JSON array of pairs
    error_has: str  #: the last error's kind or message contains a text; errors are JSON, but other programs may have written them
    by_arrival: str  #: behind a table's name: read it by arrival, since another index would need to sort all matching rows
