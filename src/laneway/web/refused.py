"""Refusals: every answer with an error status, as one value.

A client gets `{"error": {"kind": …, "message": …}}`: a word for programs, and one line for people that says what to do. What
Laneway itself raises becomes a refusal here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from laneway.errors import GarbageError, LanewayError, NotFound, StoreError

__all__ = ["Refused", "refusal_of"]

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Refused(Exception):
    """The request is not answered as it was meant."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = " ".join(message.split())
        self.headers = headers

    @property
    def document(self) -> dict[str, dict[str, str]]:
        """What the client gets."""
        return {"error": {"kind": self.kind, "message": self.message}}


def refusal_of(error: LanewayError | Refused) -> Refused:
    """Return what Laneway says as an answer: not found, the store is away, or else a mistake in what was asked.

    A refusal stays as it is.

    >>> from laneway.errors import UnknownJob
    >>> (refused := refusal_of(UnknownJob())).status, refused.kind
    (404, 'unknown_job')
    """
    if isinstance(error, Refused):
        return error
    kind = _HUMP.sub("_", type(error).__name__).lower()
    if isinstance(error, NotFound):
        return Refused(404, kind, str(error))
    if isinstance(error, StoreError) and not isinstance(error, GarbageError):  # what cannot be read now cannot be read later
        return Refused(503, kind, str(error), {"Retry-After": "1"})
    return Refused(422, "bad_input" if kind == "config_error" else kind, str(error))
