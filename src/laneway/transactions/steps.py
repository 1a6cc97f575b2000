"""Steps: what is done on a user's connection, as values.

A generator yields steps and gets their answers; an error of a step is raised inside it, where it was yielded. So one function
serves connections of threads and of event loops::

    def steps() -> Steps[int]:
        [(number,)] = yield Ask("select count(*) from orders where customer = ?", (7,))
        return number
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import sqlite3

    from laneway.transactions.connection import UserConnection

__all__ = ["Ask", "Aside", "InSQLite", "Look", "Step", "Steps"]

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement on the user's connection; its answer is a list of tuples. Each `?` in the text is a value; it has no `%`."""

    text: str
    values: Sequence[Any] = ()


class InSQLite(NamedTuple):
    """A function of the `sqlite3.Connection` behind it, called in the thread that may use it; the answer is its result."""

    call: Callable[[sqlite3.Connection], Any]


class Look(NamedTuple):
    """A function of the connection that asks its database nothing, such as for its mode; its answer is the result."""

    call: Callable[[UserConnection], Any]


class Aside(NamedTuple):
    """A function that waits for something else, such as the store's own connection; never called on an event loop."""

    call: Callable[[], Any]


Step = Ask | InSQLite | Look | Aside
Steps = Generator[Step, Any, T]
