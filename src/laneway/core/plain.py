"""Values that can be shown anywhere: as dicts of what JSON has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, cast

from msgspec import Struct

__all__ = ["Plain", "plain", "schema_of", "serializer_of"]


class Plain(Struct, frozen=True):
    """A value that can be had as a dict, for `json.dumps` and web frameworks."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict of plain values: moments as ISO 8601 texts."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield what `as_dict` has: `dict(value)` is what web frameworks make of a value that they do not know."""
        return iter(self.as_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        return schema_of(cls, cls.as_dict)

    @property
    def __pydantic_serializer__(self) -> Any:
        return serializer_of(type(self))


@functools.cache
def serializer_of(kind: Any) -> Any:
    """Return the serializer that pydantic asks a value for, if it does not know its type."""
    from pydantic_core import SchemaSerializer  # noqa: PLC0415 - no dependency of ours: it is there if pydantic calls this

    return SchemaSerializer(kind.__get_pydantic_core_schema__())


def schema_of(kind: type, as_dict: Callable[[Any], dict[str, Any]], **fields: Any) -> Any:
    """Return the schema by which pydantic, and so FastAPI, shows a value as a dict, of these fields if they are named."""
    from pydantic_core import core_schema  # noqa: PLC0415 - the same

    named = {name: core_schema.typed_dict_field(field) for name, field in fields.items()}
    returned = core_schema.typed_dict_schema(named) if named else core_schema.dict_schema()
    shown = core_schema.plain_serializer_function_ser_schema(as_dict, return_schema=returned)
    return core_schema.is_instance_schema(kind, serialization=shown)


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
