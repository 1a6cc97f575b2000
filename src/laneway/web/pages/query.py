"""The query box: a line of text that says which jobs are meant.

    state:dead queue:mail error:Timeout        what the store can filter by itself
    args:ada@example.com "no money"            what is searched for, newest first, within a budget

`state`, `queue`, `task` and `lane` are exact, `error` is a part of the last error's kind or message, `is:failing` means what has
failed and is not dead. `args:` is a part of the arguments as they are shown, a plain word a part of anything: id, task, queue,
lane, error or arguments; `group:` is the id of a kind of failure, which the page of errors knows. `state:done` and
`state:cancelled` mean finished jobs that are kept, `state:finished` the last runs that the store remembers. All of it must fit.
A text with spaces is in double quotes; a quote or a backslash in it has a backslash before it. Nothing is an error: what cannot
be meant is said in a note, and left out.

Enters: a text.  Leaves: a `Query`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from laneway.core.job import FINISHED as ENDED
from laneway.core.job import STATES
from laneway.errors import did_you_mean
from laneway.present.actions import FILTERS

__all__ = ["EXACT", "FINISHED", "Query", "parse"]

#: What the store can filter by, beside `is:failing`.
EXACT = tuple(name for name in FILTERS if name != "failing")
KEYS = (*EXACT, "group", "args", "is")
#: No state of a job in the store: the last runs.
FINISHED = "finished"
#: The longest text that is read.
LONGEST = 2_000
#: The most terms of a search.
MOST = 10

_TOKEN = re.compile(
    r"""\s* (?: (?P<key>[A-Za-z_]+) : )?                  # a key, and behind its colon
        (?: "(?P<quoted>(?: [^"\\] | \\. )*) (?:"|\\?$)   # a text in quotes; they need not be closed
          | (?P<plain>\S*) )""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = re.compile(r'[^\s"\\:]+')


class Query(Struct, frozen=True, kw_only=True):
    """Which jobs are meant."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    lane: str | None = None
    error: str | None = None
    failing: bool = False
    group: str | None = None  #: the last error is of this kind, by its id
    args: tuple[str, ...] = ()  #: parts of the arguments
    words: tuple[str, ...] = ()  #: parts of anything
    notes: tuple[str, ...] = ()  #: what was not understood, in sentences

    @property
    def which(self) -> dict[str, Any]:
        """What the store filters by, as `app.inspect.jobs` and the API take it."""
        found: dict[str, Any] = {name: getattr(self, name) for name in EXACT if getattr(self, name) is not None}
        return {**found, "failing": True} if self.failing else found

    @property
    def searches(self) -> bool:
        """Whether jobs must be looked into, one by one."""
        return bool(self.args or self.words or self.group)

    @property
    def is_empty(self) -> bool:
        """Whether all jobs are meant."""
        return not self.searches and not self.which

    def but(self, **changes: Any) -> Query:
        """Return a copy with these fields changed, and without notes."""
        return msgspec.structs.replace(self, **{"notes": (), **changes})

    def fits(self, parts: Mapping[str, str]) -> bool:
        """Say whether a job's parts, by name, have in them what is searched for. Case does not matter."""
        args = parts.get("args", "").casefold()
        all_of_it = "\n".join(parts.values()).casefold()
        return all(one.casefold() in args for one in self.args) and all(one.casefold() in all_of_it for one in self.words)

    def __str__(self) -> str:
        parts = [f"{name}:{_quoted(getattr(self, name))}" for name in EXACT if getattr(self, name) is not None]
        parts += ["is:failing"] if self.failing else []
        parts += [f"group:{_quoted(self.group)}"] if self.group else []
        parts += [f"args:{_quoted(one)}" for one in self.args]
        return " ".join([*parts, *(_quoted(one) for one in self.words)])


def parse(text: str, given: Mapping[str, str] | None = None) -> Query:
    """Read a query; `given` are filters that are said otherwise, and count for more.

    >>> parse('state:dead "no money"').which, parse('state:dead "no money"').words
    ({'state': 'dead'}, ('no money',))
    >>> parse("stat:dead").notes
    ('there is no "stat:". Did you mean "state"? It was left out',)
    """
    notes: list[str] = [] if len(text) <= LONGEST else [f"only the first {LONGEST:,} characters were read"]
    exact: dict[str, Any] = {}
    found: dict[str, list[str]] = {"args": [], "words": []}
    for key, value in [*_tokens(_printable(text[:LONGEST])), *((key, _printable(value)) for key, value in (given or {}).items())]:
        if not value:
            notes += [f'"{key}:" has nothing behind it: write {key}:{_EXAMPLES.get(key, "value")}'] if key in KEYS else []
        elif key in found or not key:
            found[key or "words"].append(value)
        elif key in ("is", "state"):
            notes += _read_state(key, value, exact)
        elif key in EXACT or key == "group":
            exact[key] = value
        else:
            notes.append(f'there is no "{key}:".{did_you_mean(key, KEYS)} It was left out')
    for kind, values in found.items():
        if len(values) > MOST:
            notes.append(f"only the first {MOST} {kind} are searched for")
    return Query(**exact, args=tuple(found["args"][:MOST]), words=tuple(found["words"][:MOST]), notes=tuple(dict.fromkeys(notes)))


_EXAMPLES = {"state": "dead", "queue": "mail", "task": "send_mail", "lane": "customer-7", "error": "Timeout", "is": "failing"}


def _read_state(key: str, value: str, exact: dict[str, Any]) -> list[str]:
    """Read `state:dead` or `is:failing`; `is:dead` is meant well."""
    said = value.lower()
    if said in (*STATES, *ENDED, FINISHED):
        exact["state"] = said
    elif said == "failing":
        exact["failing"] = True
    else:
        known = (*STATES, *ENDED, FINISHED, "failing")
        return [f"{key}:{value[:60]}: no job in the store is so.{did_you_mean(said, known)} There are {', '.join(known)}"]
    return []


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Take a text apart into keys and values; a key is empty for a plain word."""
    place = 0
    while found := _TOKEN.match(text, place):
        if found.end() == place:
            return
        place = found.end()
        key, quoted, plain = found["key"] or "", found["quoted"], found["plain"]
        value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
        known = key.lower() in KEYS
        if key and not known and (quoted is not None or not did_you_mean(key.lower(), KEYS)):
            yield "", f"{key}:{value}"  # http://… is no key
        else:
            yield key.lower(), value


def _printable(text: str) -> str:
    """Return a text as the store and its filters take it."""
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()


def _quoted(value: str) -> str:
    """Write a value so that it is read as the same."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
