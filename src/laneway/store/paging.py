"""Paging: the orders of lists, and the place where one goes on, as an opaque text."""

from __future__ import annotations

import contextlib
from typing import TypeVar, cast

import msgspec

from laneway.errors import ConfigError, NotFound, did_you_mean

__all__ = ["LANE_ORDERS", "read_number", "read_order", "read_place", "write_place"]

Place = TypeVar("Place")

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


def write_place(place: object) -> str:
    """Return the place of a list's last item as a page's `next`."""
    return msgspec.json.encode(place).decode()


def read_place(after: str, places: msgspec.json.Decoder[Place]) -> Place:
    """Return the position that a page's `next` means."""
    place: Place | None = None
    with contextlib.suppress(ValueError, RecursionError):
        place = places.decode(after)
    if place is None or any(isinstance(part, int) and abs(part) >= 1 << 63 for part in cast("tuple[object, ...]", place)):
        raise NotFound(f"after={after!r} is not a place in this list. Go on with after=page.next", after=after)
    return place


def read_number(text: str) -> int | None:
    """Return a sequence number, or None if the text is not one that a store gives."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
