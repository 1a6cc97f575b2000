"""A task's signature: what may be passed, and how it travels.

Built once per task from its annotations. `pack` turns a call into bytes, and reads them back the way a worker will, so that a
mistake surfaces at the caller's line. `pack_all` packs many calls at once. `unpack` is what the worker does.

The bytes keep the call as it was written, `[[positional], {keyword}]`: a program without the task's code can send the same.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import astuple

from laneway.core.codec import Codec, check_size, check_sizes, is_pydantic
from laneway.desk.options import hint_for_arguments
from laneway.errors import BadArguments, DeclarationError, LanewayError, PayloadTooLarge

__all__ = ["Call", "Signature", "annotation", "change", "check_type", "hints_of", "is_loose", "payload_hint"]

#: A call's positional and keyword arguments.
Call = tuple[Sequence[Any], Mapping[str, Any]]

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The parameters of one task, ready to pack and unpack calls."""

    def __init__(self, function: Callable[..., object], codec: Codec, name: str, advice: str = "") -> None:
        self.name = name
        self._codec = codec
        self._advice = advice  # for calls of a function that is not here to be annotated
        self._signature = inspect.signature(function)
        self._parameters = list(self._signature.parameters.values())
        hints = hints_of(function, name)
        self._types = {p.name: hints.get(p.name, Any) for p in self._parameters}
        for parameter, kind in self._types.items():
            check_type(f'parameter "{parameter}" of {name}', kind, codec)
        #: parameters whose annotation leaves the type of some values open: those may change on the way
        self._loose = {p for p, kind in self._types.items() if is_loose(kind)}
        self.positional = [p.name for p in self._parameters if p.kind in _BY_POSITION]
        self._required = sum(p.kind in _BY_POSITION and p.default is p.empty for p in self._parameters)
        self._plain_call_fits = not any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in self._parameters)
        self._variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in self._parameters)
        #: one decode checks a whole call: every type is known
        self._typed = not self._loose and not self._variadic
        self._most = sys.maxsize if any(p.kind is p.VAR_POSITIONAL for p in self._parameters) else len(self.positional)
        #: with this many arguments by position, and none by keyword, a call fits
        self._enough = len(self.positional) if self._plain_call_fits else -1
        self._names = [p.name for p in self._parameters if p.kind in _BY_NAME]
        self._decoder = codec.decoder(list[Raw] if self._variadic else self._call_type())
        self._result = _decoder(codec, hints.get("return", Any))

    def named(self, name: str) -> Signature:
        """Return this signature for a function of another name."""
        other = copy.copy(self)
        other.name = name
        return other

    def _call_type(self) -> type[Struct]:
        """Return the struct that one decode fills with the whole typed call."""
        by_position = msgspec.defstruct(
            "Args", [(f"p{i}", self._types[n], UNSET) for i, n in enumerate(self.positional)],
            array_like=True, forbid_unknown_fields=True, gc=False,
        )  # fmt: skip
        by_name = msgspec.defstruct(
            "Kwargs", [(f"k{i}", self._types[n], UNSET) for i, n in enumerate(self._names)],
            rename={f"k{i}": n for i, n in enumerate(self._names)}, forbid_unknown_fields=True, gc=False,
        )  # fmt: skip
        return msgspec.defstruct(
            "Call", [("args", by_position), ("kwargs", by_name), ("options", dict[str, Any] | None, None)],
            array_like=True, gc=False,
        )  # fmt: skip

    def pack(self, args: Sequence[object], kwargs: Mapping[str, object], options: object = None) -> bytes:
        """Return the call as a body, or raise BadArguments with the reason."""
        call = (args, kwargs, options) if options else (args, kwargs)
        try:
            self._fit(args, kwargs)
            body = self._codec.encode(call)
            check_size(body)
            if self._typed:
                self._decode(body)
                return body
            there = self.unpack(body)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(f"{self.name}: {error}") from None
        except BadArguments as error:
            raise BadArguments(f"{self.name}{self._signature}: {error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise BadArguments(f"{self.name}: {error}") from None
        if self._loose:
            self._compare(args, kwargs, *there)
        return body

    def pack_all(self, calls: Sequence[Call], options: object = None) -> list[bytes]:
        """Return a body for each call, or raise an error for the first call that does not fit.

        Where one decode checks a whole call, many are written and read together. If that fails, each is checked alone.
        """
        if self._typed:
            with contextlib.suppress(LanewayError, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
                for args, kwargs in calls:
                    self._fit(args, kwargs)
                bodies = self._codec.encode_all([(*call, options) for call in calls] if options else calls)
                check_sizes(bodies)
                if len(self._decoder.decode_lines(b"\n".join(bodies))) == len(calls):
                    return bodies
        return [self.pack(args, kwargs, options) for args, kwargs in calls]

    def unpack(self, body: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the typed arguments of a body, or raise BadArguments that names the one that does not fit."""
        return self._read(body)[:2]

    def open(self, body: bytes) -> tuple[list[Any], dict[str, Any], dict[str, Any] | None]:
        """Return the typed arguments of a body and the options that travelled with the job; the whole call fits the function."""
        args, kwargs, options = self._read(body)
        if kwargs or len(args) != self._enough:
            self._fit(args, kwargs)
        return args, kwargs, options

    def _fit(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Refuse a call that the function would not take; one with positional arguments alone is judged by their number."""
        if kwargs or not self._plain_call_fits or not self._required <= len(args) <= self._most:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                stray = [name for name in kwargs if name not in self._signature.parameters]
                raise BadArguments(f"{error}{hint_for_arguments(stray)}") from None

    def _read(self, body: bytes) -> tuple[list[Any], dict[str, Any], dict[str, Any] | None]:
        call = self._decode(body)
        if self._variadic:
            return call[0], call[1], call[2]
        values = astuple(call.args)
        # They are given from the left: the last one shows whether all are.
        args = list(values) if not values or values[-1] is not UNSET else [value for value in values if value is not UNSET]
        if body[-5:] == b"],{}]":  # the usual end: nothing by keyword, no options
            return args, {}, None
        kwargs = {n: v for n, v in zip(self._names, astuple(call.kwargs), strict=True) if v is not UNSET}
        return args, kwargs, call.options

    def _decode(self, body: bytes) -> Any:
        """Decode a body: into a `Call` struct, or for a variadic signature into its parts."""
        try:
            call = self._decoder.decode(body)
            if self._variadic:
                return (*self._unpack_variadic(call), msgspec.json.decode(call[2]) if len(call) > 2 else None)
        except msgspec.MsgspecError as error:
            raise BadArguments(self._explain(str(error))) from None
        except RecursionError:
            raise PayloadTooLarge from None
        except (TypeError, ValueError) as error:  # raised by a user's decode function
            raise BadArguments(str(error)) from error
        return call

    def _unpack_variadic(self, call: list[Raw]) -> tuple[list[Any], dict[str, Any]]:
        """Return the typed arguments for a signature with *args or **kwargs: value by value, since their number is open."""
        if len(call) < 2:
            raise BadArguments("expected [[positional], {keyword}]")
        rest = {p.kind: p.name for p in self._parameters}
        many, extra = rest.get(inspect.Parameter.VAR_POSITIONAL), rest.get(inspect.Parameter.VAR_KEYWORD)
        items = msgspec.json.decode(call[0], type=list[Raw])
        names = [*self.positional, *[many] * (len(items) - len(self.positional))]
        if many is None and len(items) > len(self.positional):
            raise BadArguments(f"takes at most {len(self.positional)} positional arguments")
        args = [self._one(cast(str, name), raw) for name, raw in zip(names, items, strict=False)]
        kwargs: dict[str, Any] = {}
        for key, raw in msgspec.json.decode(call[1], type=dict[str, Raw]).items():
            name = key if key in self._names else extra
            if name is None:
                raise BadArguments(f'has no parameter "{key}"')
            kwargs[key] = self._one(name, raw)
        return args, kwargs

    def _one(self, name: str, raw: Raw) -> Any:
        try:
            return self._codec.decoder(self._types[name]).decode(raw)
        except msgspec.MsgspecError as error:
            raise BadArguments(f'argument "{name}": {error}') from None

    def _explain(self, message: str) -> str:
        """Turn msgspec's path (`$[0][1].x`) into the parameter's name."""
        text, _, path = message.replace("`key` in `$", "`$").partition(" - at `$")
        path = path.rstrip("`")
        if path.startswith("[0][") and (index := path[4 : path.index("]", 4)]).isdigit():
            name, path = self.positional[int(index)], path[path.index("]", 4) + 1 :]
        elif path.startswith("[1]."):
            name = re.split(r"[.\[]", path[4:], maxsplit=1)[0]
            path = path[4 + len(name) :]
        else:
            return text
        return f'argument "{name}": {text}' + (f" (at {path.lstrip('.')})" if path else "")

    def _compare(
        self, args: Sequence[object], kwargs: Mapping[str, object], args_there: list[Any], kwargs_there: dict[str, Any]
    ) -> None:
        """Refuse a value that would arrive as another type, because its annotation does not name the type."""
        many = [p.name for p in self._parameters if p.kind is p.VAR_POSITIONAL]
        names = [*self.positional[: len(args)], *many * max(0, len(args) - len(self.positional))]
        pairs = [*zip(names, args, args_there, strict=True), *((k, kwargs[k], kwargs_there[k]) for k in kwargs)]
        for name, here, there in pairs:
            if (name in self._loose or name not in self._types) and (changed := change(here, there)):
                advice = self._advice or f"Annotate it ({name}: {annotation(here)}), or pass what JSON has."
                raise BadArguments(f'{self.name}: argument "{name}": {changed}, since no annotation says what it is. {advice}')

    def value(self, parameter: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Return what a call passes for a parameter, its default included."""
        if parameter in kwargs:
            return kwargs[parameter]
        if parameter in self.positional and (index := self.positional.index(parameter)) < len(args):
            return args[index]
        default = self._signature.parameters[parameter].default
        return None if default is inspect.Parameter.empty else default

    def call(self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Call another function with a call's arguments, defaults included."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return function(*bound.args, **bound.kwargs)

    def misfit(self, function: Callable[..., object]) -> str:
        """Return why another function cannot be called with the same arguments, or nothing."""
        takes = inspect.signature(function)
        by_position = [p.name for p in self._parameters if p.kind in _BY_POSITION]
        by_name = {p.name: None for p in self._parameters if p.kind is p.KEYWORD_ONLY}
        try:
            takes.bind(*by_position, **by_name)
        except TypeError as error:
            return f"it takes {takes}: {error}"
        return ""

    def __str__(self) -> str:
        return str(self._signature)

    def canonical(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Return a call as bytes that are the same for equal calls, however they are written."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._codec.encode(dict(bound.arguments))

    def canonical_value(self, parameter: str, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Return one argument of a call as bytes that are the same for equal values."""
        return self._codec.encode(self.value(parameter, args, kwargs))

    def decode_result(self, data: bytes) -> Any:
        """Return a result as the task's return annotation says, or plain where that cannot travel."""
        try:
            return self._result.decode(data)
        except (TypeError, msgspec.MsgspecError):
            return msgspec.json.decode(data)


def _decoder(codec: Codec, kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder for a type, or for anything if values of it cannot travel."""
    try:
        return codec.decoder(kind)
    except TypeError:
        return msgspec.json.Decoder()


def hints_of(function: Callable[..., object], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (SyntaxError, AttributeError, TypeError) as error:
        raise DeclarationError(f"{name}: an annotation cannot be read: {error}") from error
    except NameError as error:
        raise DeclarationError(
            f"{name}: the annotation {error.name!r} is not known where the function is: import it at module level, "
            "not only for type checking"
        ) from error


def check_type(what: str, kind: Any, codec: Codec) -> None:
    """Raise DeclarationError if values of a type cannot make the trip."""
    try:
        codec.decoder(kind)
        parts = list(_parts(kind))
    except TypeError as error:
        raise DeclarationError(f"{what} cannot travel as JSON: {error}") from None
    for part in parts:
        if isinstance(part, msgspec.inspect.CustomType) and not codec.knows(part.cls):
            raise DeclarationError(
                f"{what} cannot travel as JSON: {part.cls.__qualname__} is not known. Make it a dataclass, pass an id, "
                f"or register it before the task: app.codec({part.cls.__name__}, encode=…, decode=…)"
            )


def is_loose(kind: Any) -> bool:
    return any(isinstance(part, msgspec.inspect.AnyType) for part in _parts(kind))


def _parts(kind: Any) -> Iterator[msgspec.inspect.Type]:
    """Walk everything a type is made of."""
    if isinstance(kind, type) and is_pydantic(kind):
        return
    seen: set[int] = set()
    waiting: list[object] = [msgspec.inspect.type_info(kind)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple | list):
            waiting.extend(cast("list[object]", part))
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, msgspec.inspect.Type):
                yield part
            waiting.extend(getattr(part, name) for name in part.__struct_fields__)


def change(here: Any, there: Any) -> str:
    """Return how a value would arrive changed, or nothing."""
    if isinstance(here, dict) and isinstance(there, dict):
        mine, theirs = cast("dict[object, object]", here), cast("dict[object, object]", there)
        for key in sorted(mine.keys() - theirs.keys(), key=repr):
            return f"the key {key!r} would be lost" if isinstance(key, str) else f"the key {key!r} would arrive as text"
        return next((changed for key, value in mine.items() if (changed := change(value, theirs[key]))), "")
    if isinstance(here, list) and isinstance(there, list):
        pairs = zip(cast("list[object]", here), cast("list[object]", there), strict=True)
        return next((changed for a, b in pairs if (changed := change(a, b))), "")
    same = type(cast(object, here)) is type(cast(object, there))
    if here == there and (same or not isinstance(here, enum.Enum)):
        return ""
    if same and hasattr(cast(object, here), "__dataclass_fields__"):
        return change(vars(cast(object, here)), vars(cast(object, there)))
    return f"a {_kind_name(cast(object, here))} would arrive as a {_kind_name(cast(object, there))}"


def _kind_name(value: object) -> str:
    return type(value).__name__


def annotation(value: object) -> str:
    """Return an annotation that would let a value arrive as it is."""
    if isinstance(value, dict) and value:
        key, item = next(iter(cast("dict[object, object]", value).items()))
        return f"dict[{annotation(key)}, {annotation(item)}]"
    if isinstance(value, list | tuple | set | frozenset) and value:
        inner = annotation(next(iter(cast("list[object]", value))))
        return f"tuple[{inner}, ...]" if isinstance(value, tuple) else f"{_kind_name(cast(object, value))}[{inner}]"
    return _kind_name(cast(object, value))


def payload_hint(name: str, hint: Any) -> Any:
    """Return the type that `dict[str, list[…]]` holds; Any without one."""
    if hint is None or hint is Any or hint is dict:
        return Any
    said = typing.get_args(hint)
    if isinstance(origin := typing.get_origin(hint), type) and issubclass(dict, origin) and len(said) == 2 and said[0] is str:
        inner = typing.get_args(said[1])
        if said[1] is Any or said[1] is list:
            return Any
        if isinstance(origin := typing.get_origin(said[1]), type) and issubclass(list, origin) and len(inner) == 1:
            return inner[0]
    raise DeclarationError(
        f"{name} is called with its lanes: annotate them with dict[str, list[Order]], or what its payloads are"
    )
