"""A request as an answer's function sees it: its user and its parameters, read and checked.

Every mistake in it is a refusal of one line that names the parameter, the value, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from laneway.core.instant import When
from laneway.core.job import FINISHED, STATES, check_lane
from laneway.desk.locate import load_tasks
from laneway.errors import did_you_mean
from laneway.present.words import cut
from laneway.settings import read_duration
from laneway.web.access import Caller
from laneway.web.refused import Refused

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.web.site import Site

__all__ = ["Answer", "WebRequest", "bad", "read_number"]

T = TypeVar("T")

#: The longest text that is looked at.
LONGEST = 2_000


def bad(message: str) -> Refused:
    """Return a refusal of what was sent."""
    return Refused(422, "bad_input", message)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is not just a document."""

    document: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    text: str | None = None  #: in place of the document
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request."""

    site: Site
    caller: Caller
    path: Mapping[str, str]  #: the parameters of the path, by name
    given: Mapping[str, Any]  #: the query's parameters, or the body's fields
    root: str = ""  #: where the dashboard is mounted
    short: bool = False  #: the next request may come to another process, see `exchange.http_scope`

    @property
    def app(self) -> App:
        """The app it is about."""
        return self.site.app

    @property
    def loaded(self) -> App:
        """The app with all its tasks: their modules are imported."""
        load_tasks(self.app)
        return self.app

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text."""
        value = self.given.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > LONGEST:
            raise bad(f"{name}: use a string of at most {LONGEST:,} characters")
        if "\0" in value or not value.isprintable():
            raise bad(f"{name}: use printable characters")
        return value

    def needed(self, name: str) -> str:
        """Return a text that must be there."""
        value = self.text(name)
        if not value:
            raise bad(f"{name} is missing: say which {name} is meant")
        return value

    def lane(self) -> tuple[str, str]:
        """Return the queue and the key of a lane."""
        queue = self.needed("queue")
        try:
            return queue, check_lane(self.given.get("lane"))
        except ValueError as error:
            raise bad(f"lane: {error}") from None

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number."""
        value = self.given.get(name, default)
        try:
            number = int(value) if isinstance(value, str) and len(value) < 20 else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise bad(f"{name}={_short(value)}: use a whole number from {low:,} to {high:,}")
        return number

    def read(self, name: str, read: Callable[[Any], T]) -> T | None:
        """Return what a function reads in a value, such as a duration (30, 5m, 2h); None if it is not given."""
        value = self.given.get(name)
        if value is None:
            return None
        try:
            return read(value)
        except (ValueError, OverflowError) as error:
            raise bad(f"{name}={_short(value)}: {error}") from None

    def flag(self, name: str) -> bool:
        """Return yes or no."""
        value = self.given.get(name, False)
        found = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}
        value = found.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise bad(f"{name}={_short(self.given.get(name))}: use true or false")
        return value

    def when(self) -> When:
        """Return the time that `in` (a duration) or `at` (a moment with its time zone) means."""
        within, at = self.read("in", read_duration), self.text("at")
        if within is not None and at is None:
            return within
        if at is None or within is not None:
            raise bad('say when: {"in": "5m"}, or {"at": "2026-12-24T18:00+01:00"}')
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            raise bad(f"at={_short(at)}: use a date and a time, such as 2026-12-24T18:00+01:00") from None
        if moment.tzinfo is None:
            raise bad(f"at={_short(at)} has no time zone: write {at}Z, or {at}+01:00")
        return moment

    def page(self) -> dict[str, Any]:
        """Return which part of a list is meant."""
        after = self.text("after") or None
        if after is not None and not _may_be_place(after):
            raise bad(f"after={_short(after)}: go on with the next of the page before")
        return {"limit": self.whole("limit", 50, 1, 1_000), "after": after}

    def which(self) -> dict[str, Any]:
        """Return the filters that are given."""
        state = self.text("state") or None
        if state is not None and state not in (known := (*STATES, *FINISHED)):
            near = did_you_mean(state, known)
            raise bad(f"state={_short(state)}: no job in the store is so.{near} States: {', '.join(known)}")
        texts = {name: self.text(name) or None for name in ("queue", "task", "lane", "error")}
        found: dict[str, Any] = {"state": state, **texts, "failing": self.flag("failing")}
        return {name: value for name, value in found.items() if value not in (None, False)}

    def ids(self) -> tuple[str, ...] | None:
        """Return the jobs that are named one by one."""
        value = self.given.get("ids")
        if value is None:
            return None
        named = cast("list[object]", value) if isinstance(value, list) else []
        if not named or len(named) > 10_000 or not all(isinstance(one, str) and 0 < len(one) <= 100 for one in named):
            raise bad("ids: use a list of 1 to 10,000 ids of jobs")
        return tuple(dict.fromkeys(cast("list[str]", named)))

    def only(self, names: Sequence[str]) -> None:
        """Refuse unknown parameters: one may be a filter that was mistyped."""
        for name in self.given:
            if name not in names:
                known = f"There are {', '.join(names)}" if names else "There are none"
                raise bad(f'there is no parameter "{_short(name)}".{did_you_mean(name, names)} {known}')


def read_number(value: Any) -> float:
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 <= number < 1e15:
        raise ValueError("use a number from 0")
    return number


def _may_be_place(after: str) -> bool:
    """Say whether it can be a page's `next`, or a job's id. Numbers in it must be such that a store can count to."""
    if after.startswith("seq:"):
        number = after.split(":")[1]
        return number.isascii() and number.isdigit() and len(number) < 19
    if not after.startswith("["):
        return True
    try:
        parts = msgspec.json.decode(after, type=list[Any])
    except (ValueError, RecursionError):
        return False
    return not any(isinstance(part, int) and abs(part) >= 1 << 63 for part in parts)


def _short(value: object) -> str:
    return cut(str(value), 60)
