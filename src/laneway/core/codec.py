"""The codec: arguments become JSON and come back typed.

msgspec does the work; this module adds what it leaves open. Values that would change on the way (NaN, a tuple
where nothing says tuple) are refused, sizes have limits, and users' own types go through a pair of functions that
they registered. Nothing is ever unpickled, evaluated or imported.

Enters: Python values.  Leaves: bytes, and the values again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from laneway.errors import GarbageError, PayloadTooLarge

__all__ = ["Codec", "Envelope", "check_size", "check_sizes", "is_pydantic", "open_body"]

MAX_BYTES = 1_000_000
MAX_LEVELS = 100


class Envelope(Struct, array_like=True, frozen=True, gc=False):
    """A job's body, opened but not read: `[[positional], {keyword}]`, and options if there are any."""

    args: list[Raw]
    kwargs: dict[str, Raw]
    options: dict[str, Raw] = {}


_envelope = msgspec.json.Decoder(Envelope)


def open_body(body: bytes) -> Envelope:
    """Open a job's body, or raise GarbageError that says why it is not one."""
    try:
        if not body.isascii():
            body.decode()  # the inside of strings is only read with the arguments
        return _envelope.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise GarbageError(f"this body is not a job's: {error}") from None


class Codec:
    """Encodes and decodes, with the types that an app has registered."""

    def __init__(self) -> None:
        self._types: dict[type, tuple[Callable[[Any], object], Callable[[Any], Any]]] = {}
        self._encoder = msgspec.json.Encoder(enc_hook=self._to_json)
        self._canonical = msgspec.json.Encoder(enc_hook=self._to_json, order="deterministic")

    def register(self, kind: type, encode: Callable[[Any], object], decode: Callable[[Any], Any]) -> None:
        """Let a type travel: `encode` returns something JSON can hold, `decode` restores the value."""
        self._types[kind] = (encode, decode)

    def knows(self, kind: type) -> bool:
        """Return whether values of a type that msgspec does not know can travel."""
        return any(base in self._types for base in kind.__mro__) or is_pydantic(kind)

    def encode(self, value: object, *, canonical: bool = False) -> bytes:
        """Return a value as JSON; raise TypeError or ValueError for what JSON cannot hold.

        Canonical: equal values give the same bytes, in whatever order a dict or a set has them.
        """
        try:
            data = (self._canonical if canonical else self._encoder).encode(value)
        except RecursionError:
            raise PayloadTooLarge(f"the arguments are nested more than {MAX_LEVELS} levels deep, or contain themselves") from None
        except UnicodeEncodeError as error:
            raise ValueError(f"a string has no UTF-8 form: {error}") from None
        # msgspec writes NaN and infinity as null; only then is there anything to look for.
        if b"null" in data and _levels(data) <= MAX_LEVELS:  # deeper values are refused anyway
            for number in _floats(msgspec.to_builtins(value, enc_hook=self._to_json)):
                if not math.isfinite(number):
                    raise ValueError(f"JSON has no {number}: pass None, or leave it out")
        return data

    def encode_all(self, values: Sequence[object]) -> list[bytes]:
        """Return many values as JSON, encoded together if all are safe."""
        data = self._encoder.encode_lines(values)
        lines = data.splitlines()
        # JSON has no line breaks inside, unless a user's Raw brings one.
        if b"null" not in data and len(lines) == len(values):
            return lines
        return [self.encode(value) for value in values]

    def decoder(self, kind: Any) -> msgspec.json.Decoder[Any]:
        """Return a decoder for a type; raise TypeError for a type that cannot make the trip."""
        return msgspec.json.Decoder(kind, dec_hook=self._from_json)

    def _to_json(self, value: Any) -> object:
        for base in cast(type, type(value)).__mro__:
            if base in self._types:
                return self._types[base][0](value)
        if is_pydantic(cast(type, type(value))):
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        if is_django_model(cast(type, type(value))):
            name = type(value).__qualname__
            raise TypeError(f"{name} is a model of Django: pass its primary key ({name.lower()}.pk), and let the task load it")
        raise TypeError(
            f"{type(value).__qualname__} cannot travel as JSON: pass an id or plain values, make it a dataclass, "
            f"or register it: app.codec({type(value).__name__}, encode=…, decode=…)"
        )

    def _from_json(self, kind: type, value: Any) -> object:
        for base in kind.__mro__:
            if base in self._types:
                try:
                    return self._types[base][1](value)
                except Exception as error:  # msgspec adds the place only to a ValueError or TypeError
                    raise ValueError(f"{type(error).__name__}: {error}") from error
        if is_pydantic(kind):
            return cast(Any, kind).model_validate(value)
        raise TypeError(f"{kind.__qualname__} has no codec here: app.codec({kind.__name__}, encode=…, decode=…)")


def is_pydantic(kind: type) -> bool:
    """Return whether a type is a pydantic model, without importing pydantic."""
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def is_django_model(kind: type) -> bool:
    """Return whether a type is a model of Django's, without importing Django."""
    return hasattr(kind, "_meta") and hasattr(kind, "pk") and hasattr(kind, "DoesNotExist")


def check_size(data: bytes) -> None:
    """Raise PayloadTooLarge for more than 1 MB or 100 levels."""
    if len(data) > MAX_BYTES:
        raise PayloadTooLarge(
            f"the arguments are {len(data):,} bytes of JSON, and at most {MAX_BYTES:,} may travel: "
            "store them and pass a reference (an id, a path)"
        )
    # Each level opens a bracket: with few brackets there is nothing to measure.
    if data.count(b"[") + data.count(b"{") > MAX_LEVELS and (levels := _levels(data)) > MAX_LEVELS:
        raise PayloadTooLarge(f"the arguments are nested {levels} levels deep, and at most {MAX_LEVELS} may travel")


def check_sizes(bodies: Sequence[bytes]) -> None:
    """Check many bodies. In a few bytes there is no room for many levels."""
    if max(map(len, bodies), default=0) > MAX_LEVELS:
        for data in bodies:
            check_size(data)


_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def _levels(data: bytes) -> int:
    level = deepest = -2  # the body's own two brackets do not count
    for match in _STRING_OR_BRACKET.finditer(data):
        mark = match.group()
        if mark in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif mark in b"]}":
            level -= 1
    return deepest


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).items():
            for part in item:
                yield from _floats(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in cast("list[Any]", value):
            yield from _floats(item)
