"""Paging: where a list goes on, as an opaque text that both ends of it are written and read with."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from laneway.errors import NotFound

__all__ = ["read_place", "write_place"]

Place = TypeVar("Place")


def write_place(place: object) -> str:
    """Return the place of a list's last item as a page's `next`."""
    return msgspec.json.encode(place).decode()


def read_place(after: str, places: msgspec.json.Decoder[Place]) -> Place:
    """Return the place that a page's `next` stands for."""
    try:
        return places.decode(after)
    except (ValueError, RecursionError):
        raise NotFound(f"after={after!r} is no place in this list. Go on with after=page.next", after=after) from None
