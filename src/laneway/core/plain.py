"""Values that can be shown anywhere: as dicts of what JSON has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, cast

from msgspec import Struct

__all__ = ["Plain", "plain"]


class Plain(Struct, frozen=True):
    """A value that can be had as a dict, for `json.dumps` and web frameworks."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values: moments as ISO 8601 texts."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}


def plain(value: object) -> Any:
    """Return a value as JSON can hold it.

    >>> plain({"on": date(2026, 1, 2), "pair": (1, b"x")})
    {'on': '2026-01-02', 'pair': [1, 'x']}
    """
    match value:
        case Plain():
            return value.as_dict()
        case date():  # a datetime is one too
            return value.isoformat()
        case bytes():
            return value.decode(errors="replace")
        case Mapping():
            return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [plain(item) for item in cast("list[object] | tuple[object, ...]", value)]
        case _:
            return value
