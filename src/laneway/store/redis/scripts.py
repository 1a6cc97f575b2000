"""The scripts: Lua files, each with the parts it uses in front.

A header lists the parts of a script. Parts are files whose names begin with an underscore::

    -- uses   clock queue          these parts stand in front, in this order
    -- makes  jobs: record jobs    need('jobs') returns the functions of these parts, made when it is first called;
                                   without such a line, need('bell') those of the part of that name
    -- opens  jobs                 the script uses them under their own names, and makes them at once

A server creates all functions of a script anew in each call, and for a small exchange that would be most of the work: hence
`makes`.

Some names in capitals are replaced: those of keys (see `keys`) by an expression that makes the key where it is needed, as in
``base .. 'meta'``; those of `CONSTANTS` by their values, so that Lua and Python use the same. A queue's `BOOKS` are fields
of a hash, which `_queue.lua` reads all at once: ``books[B_NOW]`` is the one called ``now``.

A script is called by its digest, and its text is sent only if the server does not know it (see `wire`).
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from laneway.store.error_history import KILLED
from laneway.store.redis import record
from laneway.store.redis.keys import QUEUE_KEYS, SHARED_KEYS, WORKER_KEYS
from laneway.store.redis.tokens import STEP

__all__ = ["CONSTANTS", "KEEP_RUNS", "MOVED", "Script", "script", "text_of"]

#: How the error of a store begins that a copy has closed; its part in that copy follows, as JSON.
MOVED = "STOREMOVED"
#: How many finished runs of a queue are kept.
KEEP_RUNS = 1000

#: The fields of a queue's hash: the highest time it has seen, the last sequence number, its number in the registry, `lanes` if
#: it is a collector's, the priorities in use, since when it is paused and the name given with the pause, the counter of its
#: last token, how many jobs came and how many succeeded, how many finished runs are kept, how many jobs are parked, and
#: the store's part in a copy while that has closed it.
BOOKS = ("now", "seq", "number", "kind", "ranks", "paused", "by", "token", "enqueued", "processed", "runs", "blocked", "moved")

#: The values of these names in Lua.
CONSTANTS = {
    **{f"F_{name}": getattr(record, name) for name in ("LANE", "EXPIRES", "UNIQUE", "RAN", "LOST", "NO_END", "HALTS", "FRESH")},
    "F_UNTIL_END": record.UNTIL_END,
    "F_PAYLOAD": record.HALTS,  # in a collector's queue, where no job halts a lane: it is a dead payload
    "PLAIN": record.PLAIN,
    "PLAIN_IN_LANE": record.PLAIN | record.LANE,
    **{f"R_{name}": at + 1 for name, at in record.AT.items()},  # where parts of a record begin
    "E_ID": record.ID_AT + 1,  # where the id begins in an entry of an index, and in that of a postponed job
    "E_POSTPONED_ID": record.POSTPONED_ID_AT + 1,
    "PAYLOAD_HEAD": "'>I8d'",  # a stored payload: arrival, score, then its body
    "PAYLOAD_SIZE": 16,
    "TOKEN_STEP": STEP,
    "KEEP_RUNS": KEEP_RUNS,
    "MOST_PASSED": 1000,  # the most jobs that one claim passes over, so that none is long
    "MOVED_REPLY": f"'{MOVED} '",
    "KILLED": f"'{msgspec.json.encode(KILLED).decode()}'",
}

_FOLDER = Path(__file__).with_name("lua")
_BASE = re.compile(r"^-- KEYS +1 the (queue|store|workers)'s? base", re.MULTILINE)
_NAMES = {"queue": QUEUE_KEYS, "store": SHARED_KEYS, "workers": WORKER_KEYS}
_FUNCTIONS = re.compile(r"^local function (\w+)", re.MULTILINE)
_texts: dict[str, str] = {}


class Script(Struct, frozen=True):
    """A script of the server."""

    name: str
    digest: str
    text: str


@functools.cache
def script(name: str) -> Script:
    """Return a script by the name of its file."""
    own = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    base = _BASE.search(own)
    assert base is not None, name  # noqa: S101 - every header names it
    text = _put_in(_NAMES[base[1]], _put_together(own))
    digest = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - it is how servers name scripts
    _texts[digest] = text
    return Script(name, digest, text)


def text_of(digest: str) -> str:
    """Return the text of a script by its digest."""
    return _texts[digest]


def _put_together(own: str) -> str:
    """Return a script's text with all parts that its header names."""
    uses = [part for listed in _header(own, "uses") for part in listed.split()]
    groups = {name: parts.split() for name, _, parts in (line.partition(":") for line in _header(own, "makes"))}
    straight = "\n".join(map(_part, uses))
    groups |= {name: [name] for name in re.findall(r"\bneed\('(\w+)'\)", straight + own) if name not in groups}
    made = {name: "\n".join(map(_part, parts)) for name, parts in groups.items()}
    opened = "\n".join(_opening(name, made[name], own) for name in _header(own, "opens"))
    if not made:
        return f"local base = KEYS[1]\n{straight}\n{own}"
    whole = "\n".join([straight, *made.values(), opened, own])
    making = "\n".join(_making(name, text, whole) for name, text in made.items())
    need = f"function need(group)\nmade = made or {{}}\n{making}\nreturn made[group]\nend"
    return f"local base, need, made = KEYS[1]\n{straight}\n{need}\n{opened}\n{own}"


def _header(text: str, word: str) -> list[str]:
    return re.findall(rf"^-- {word} +(.*)$", text, re.MULTILINE)


def _part(name: str) -> str:
    return (_FOLDER / f"_{name}.lua").read_text(encoding="utf-8")


def _making(group: str, text: str, whole: str) -> str:
    """Return code that creates a group's functions when they are first needed, and keeps those that the script uses."""
    asked = sorted(set(_FUNCTIONS.findall(text)) & set(re.findall(rf"\bneed\('{group}'\)\.(\w+)", whole)))
    table = ", ".join(f"{name} = {name}" for name in asked)
    return f"if group == '{group}' and not made.{group} then\n{text}\nmade.{group} = {{{table}}}\nend"


def _opening(group: str, text: str, own: str) -> str:
    """Return lines that give a group's functions their own names, if a script mentions them."""
    words = set(re.findall(r"\b\w+\b", re.sub(r"--.*", "", own)))
    return "\n".join(f"local {name} = need('{group}').{name}" for name in _FUNCTIONS.findall(text) if name in words)


def _put_in(keys: dict[str, str], text: str) -> str:
    """Replace the names of keys, books and constants."""
    books = [name for name in BOOKS if re.search(rf"\bB_{name.upper()}\b", text)]
    values = {name: f"base .. '{end}'" for name, end in keys.items()}
    values |= {name: str(value) for name, value in CONSTANTS.items()}
    values |= {f"B_{name.upper()}": str(at) for at, name in enumerate(books, 1)}
    values["BOOKS"] = ", ".join(f"'{name}'" for name in books)
    return re.sub(r"(?<!')\b[A-Z][A-Z_]+\b", lambda found: values.get(found[0], found[0]), text)
