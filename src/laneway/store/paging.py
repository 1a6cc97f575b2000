"""Paging: the orders of lists, and the position from which the next page of a list begins, as an opaque text."""

from __future__ import annotations

import contextlib
from typing import TypeVar, cast

import msgspec

from laneway.errors import ConfigError, NotFound, did_you_mean

__all__ = ["LANE_ORDERS", "read_number", "read_order", "read_position", "write_position"]

Position = TypeVar("Position")

#: Orders for listing lanes; a leading - reverses one.
LANE_ORDERS = {
    "lag": "the longest overdue first",
    "size": "the largest first",
    "attempts": "the most failed attempts first",
    "due": "the first to run first",
    "name": "by name",
}


def read_order(order: str) -> tuple[str, bool]:
    """Return by what lanes are listed, and whether the other way round."""
    by = order.removeprefix("-")
    if by not in LANE_ORDERS:
        near = did_you_mean(by, LANE_ORDERS)
        raise ConfigError(f'order="{order}": lanes have no such order.{near} There are {", ".join(LANE_ORDERS)}')
    return by, by != order


def write_position(position: object) -> str:
    """Return the position of a list's last item as a page's `next`."""
    return msgspec.json.encode(position).decode()


def read_position(after: str, decoder: msgspec.json.Decoder[Position]) -> Position:
    """Return the position that a page's `next` means."""
    position: Position | None = None
    with contextlib.suppress(ValueError, RecursionError):
        position = decoder.decode(after)
    if position is None or any(isinstance(part, int) and abs(part) >= 1 << 63 for part in cast("tuple[object, ...]", position)):
        raise NotFound(f"after={after!r} is not a position in this list. Go on with after=page.next", after=after)
    return position


def read_number(text: str) -> int | None:
    """Return a sequence number, or None if the text is not one that a store gives."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
