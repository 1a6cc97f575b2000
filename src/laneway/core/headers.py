"""Headers: short texts by name that client middlewares add to a payload, such as trace ids, and that its run can read.

The headers of a payload are one JSON object as text. Equal payloads of a lane become one, and so do their headers: then the text
has one object per line, each once, those of the payload that arrived earlier first. Objects that would make such a text longer
than `MOST` are dropped; the first always stays.

Pure values, no I/O. `lua/_lanes.lua` joins by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

__all__ = ["check_headers", "join_headers", "read_headers", "write_headers"]

#: The most bytes of joined headers.
MOST = 4000

_encode = msgspec.json.Encoder(order="sorted").encode
_decoder = msgspec.json.Decoder(dict[str, str])


def check_headers(headers: object) -> dict[str, str]:
    """Return headers, or raise ValueError that says what headers look like."""
    if not isinstance(headers, dict):
        raise ValueError(f"{headers!r} are not headers: use a dict of strings")
    for name, value in cast("dict[object, object]", headers).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"header {name!r}: {value!r}: use strings for names and values")
    return cast("dict[str, str]", headers)


def write_headers(headers: object) -> str:
    """Return headers as text, equal ones as equal text; raise ValueError if they are none."""
    checked = check_headers(headers)
    try:
        return _encode({str.__str__(name): str.__str__(value) for name, value in checked.items()}).decode() if checked else ""
    except UnicodeEncodeError as error:
        raise ValueError(f"a header has no UTF-8 form: {error}") from None


def join_headers(earlier: str, later: str) -> str:
    """Return the headers of two equal payloads."""
    if not earlier or not later or earlier == later:
        return earlier or later
    lines = dict.fromkeys(earlier.split("\n"))
    size = len(earlier.encode())
    for line in later.split("\n"):
        longer = size + 1 + len(line.encode())
        if line not in lines and longer <= MOST:
            lines[line] = None
            size = longer
    return "\n".join(lines)


def read_headers(texts: Iterable[str]) -> tuple[dict[str, str], ...]:
    """Return the headers of some payloads in order, equal ones once. Lines that are not headers are left out."""
    found: list[dict[str, str]] = []
    for line in dict.fromkeys(line for text in texts if text for line in text.split("\n")):
        try:
            found.append(_decoder.decode(line))
        except (msgspec.MsgspecError, ValueError, RecursionError):  # another program wrote it; the run does not depend on it
            continue
    return tuple(found)
