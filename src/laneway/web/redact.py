"""Redaction: what may be secret is not shown.

The value of a key that looks like a secret's is replaced, at any depth: in arguments, payloads and results. Positional
arguments have the names of the task's parameters, where the task is known. Keys are taken apart into words (`cardNumber`,
`card-number`), so that short words are found only as whole ones: a `card`, and no `cardinality`.

Enters: plain JSON values.  Leaves: the same without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

__all__ = ["HIDDEN", "Redactor"]

HIDDEN = "[redacted]"
#: Words up to this length are looked for as whole words only.
SHORT = 4

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_NAMING = ("name", "key", "header")


class Redactor:
    """Knows which keys are secrets'.

    >>> Redactor(["password", "card"]).value({"user": "ada", "old_password": "x", "cards": [{"nr": 1}], "cardinality": 7})
    {'user': 'ada', 'old_password': '[redacted]', 'cards': '[redacted]', 'cardinality': 7}
    """

    def __init__(self, words: Sequence[str]) -> None:
        plain = [_joined(word) for word in words]
        self._long = tuple(word for word in plain if len(word) > SHORT)
        self._short = {word for word in plain if 0 < len(word) <= SHORT}

    def secret(self, key: str) -> bool:
        """Return whether the value of a key is secret."""
        joined = _joined(key)
        if any(word in joined for word in self._long):
            return True
        words = [word.lower() for word in _HUMP.split(key) if word]
        return any(word in self._short or word.removesuffix("s") in self._short for word in words)

    def value(self, value: Any) -> Any:
        """Return a value without its secrets."""
        if isinstance(value, dict):
            return self._pairs(cast("dict[Any, Any]", value))
        if isinstance(value, list | tuple):
            return self._items(list(cast("list[Any]", value)))
        return value

    def _pairs(self, found: dict[Any, Any]) -> dict[Any, Any]:
        shown = {key: HIDDEN if self.secret(str(key)) else self.value(value) for key, value in found.items()}
        # {"name": "password", "value": "x"} is a pair as well.
        if "value" in shown and any(isinstance(found.get(name), str) and self.secret(found[name]) for name in _NAMING):
            shown["value"] = HIDDEN
        return shown

    def _items(self, found: list[Any]) -> list[Any]:
        # ["Authorization", "Bearer x"] too.
        if len(found) == 2 and isinstance(found[0], str) and self.secret(found[0]):
            return [found[0], HIDDEN]
        return [self.value(item) for item in found]

    def call(self, args: list[Any] | None, kwargs: dict[str, Any] | None, names: Sequence[str]) -> tuple[Any, Any]:
        """Return a call's arguments without secrets; `names` are those of the positional ones, as far as they are known."""
        if args is None or kwargs is None:
            return args, kwargs
        hidden = [place < len(names) and self.secret(names[place]) for place in range(len(args))]
        shown = [HIDDEN if secret else self.value(value) for value, secret in zip(args, hidden, strict=True)]
        return shown, self._pairs(kwargs)


def _joined(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())
