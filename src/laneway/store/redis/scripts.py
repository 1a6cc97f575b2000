"""The scripts: Lua files, each with the parts it uses and the names of its keys in front.

A server is asked for a script by its digest, and is sent the text only if it does not know it (see `wire`).
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from msgspec import Struct

from laneway.store.redis.keys import QUEUE_KEYS, SHARED_KEYS, WORKER_KEYS

__all__ = ["Script", "script", "text_of"]

_FOLDER = Path(__file__).with_name("lua")
_USES = re.compile(r"^-- uses +(.*)$", re.MULTILINE)
_BASE = re.compile(r"^-- KEYS +1 the (queue|store|workers)'s? base", re.MULTILINE)
_NAMES = {"queue": QUEUE_KEYS, "store": SHARED_KEYS, "workers": WORKER_KEYS}
_texts: dict[str, str] = {}


class Script(Struct, frozen=True):
    """An operation as the server knows it."""

    name: str
    digest: str
    text: str


@functools.cache
def script(name: str) -> Script:
    """Return an operation by the name of its file."""
    own = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    uses = _USES.search(own)
    parts = [part for part in uses[1].split() if part != "none"] if uses else []
    whole = "\n".join([*((_FOLDER / f"_{part}.lua").read_text(encoding="utf-8") for part in parts), own])
    base = _BASE.search(own)
    assert base is not None, name  # noqa: S101 - every header names it
    keys = _NAMES[base[1].removesuffix("'")]
    code = re.sub(r"--.*", "", whole)
    names = [f"local {key} = KEYS[1] .. '{end}'" for key, end in keys.items() if re.search(rf"\b{key}\b", code)]
    text = "\n".join([*names, whole])
    digest = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - it is how servers name scripts
    _texts[digest] = text
    return Script(name, digest, text)


def text_of(digest: str) -> str:
    """Return the text of a script that was asked for by its digest."""
    return _texts[digest]
