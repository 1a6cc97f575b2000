"""A user's connection: runs steps, in threads or on an event loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from laneway.errors import BadOption
from laneway.transactions.steps import Ask, InSQLite, Look, Step, Steps

if TYPE_CHECKING:
    import asyncio
    import sqlite3

__all__ = ["AsyncUserConnection", "SyncUserConnection", "UserConnection", "complaint"]

T = TypeVar("T")


class UserConnection(ABC):
    """A connection that belongs to the user's program."""

    name: str  #: what it is, for messages
    is_async = False  #: it is used from an event loop
    has_mode = True  #: autocommit is a mode of it; else transactions are always begun by a call of the user's
    database: str  #: the kind of its database: `sqlite`, `postgresql`, or another
    begin: str  #: what to write in order to begin a transaction, for messages

    def __init__(self, given: Any) -> None:
        self.given = given  #: what the user gave us

    def __str__(self) -> str:
        return f"this {self.name}"

    @abstractmethod
    def commits_each_statement(self) -> bool:
        """Return whether it is in autocommit mode and no transaction was begun in spite of it. Asks no server."""

    @abstractmethod
    def in_transaction(self) -> bool:
        """Return whether a transaction is open, as far as the driver knows. Asks no server."""

    @property
    def session(self) -> object:
        """The driver's own connection, which stays the same as long as the session does."""
        return self.given

    def after_commit(self, function: Callable[[], None]) -> None:  # noqa: B027 - most cannot
        """Call a function when the transaction has committed, where the driver can tell."""

    def check_mode(self, what: str = "the job") -> None:
        """Raise BadOption in autocommit mode: a statement there is a transaction of its own."""
        if self.commits_each_statement():
            raise BadOption(
                f"this {self.name} is in autocommit mode, where each statement is committed at once: what you write and {what} "
                f"would not be one transaction. Begin one first: {self.begin}"
            )

    def run(self, steps: Steps[T]) -> T:  # noqa: ARG002 - for connections of threads
        """Run steps, and return their result."""
        raise BadOption(
            f"this {self.name} is for an event loop: write `async with` and await the async form of the call (`aenqueue`)"
        )

    async def arun(self, steps: Steps[T]) -> T:  # noqa: ARG002 - for connections of event loops
        """Run steps from an event loop, and return their result."""
        raise BadOption(
            f"this {self.name} is not for an event loop, which it would block: write `with` and call the plain form "
            "(`enqueue`), or use an async connection"
        )


class SyncUserConnection(UserConnection):
    """A connection that is used from threads."""

    @abstractmethod
    def execute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""

    def call(self, function: Callable[[sqlite3.Connection], T]) -> T:  # noqa: ARG002 - for connections to files
        """Call a function with the `sqlite3.Connection`."""
        raise BadOption(f"this {self.name} leads to {self.database}, and not to a file of SQLite")

    def run(self, steps: Steps[T]) -> T:
        """Run steps, and return their result."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self.do(step)
                except BaseException as error:  # noqa: BLE001 - raised again where the step was yielded
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def do(self, step: Step) -> Any:
        """Do one step; return its answer."""
        if isinstance(step, Ask):
            return self.execute(*step)
        if isinstance(step, Look):
            return step.call(self)
        return self.call(step.call) if isinstance(step, InSQLite) else step.call()


class AsyncUserConnection(UserConnection):
    """A connection that is used from an event loop. Calls that come at the same time wait for each other."""

    is_async = True
    _lock: asyncio.Lock | None = None

    @abstractmethod
    async def aexecute(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""

    async def acall(self, function: Callable[[sqlite3.Connection], T]) -> T:  # noqa: ARG002 - for connections to files
        """Call a function with the `sqlite3.Connection`, in the thread that may use it."""
        raise BadOption(f"this {self.name} leads to {self.database}, and not to a file of SQLite")

    async def alook(self, function: Callable[[UserConnection], T]) -> T:
        """Call a function with the connection, where it may be looked at."""
        return function(self)

    async def arun(self, steps: Steps[T]) -> T:
        """Run steps from an event loop, and return their result."""
        import asyncio  # noqa: PLC0415 - loaded already: it runs this

        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            try:
                step = next(steps)
                while True:
                    try:
                        answer = await self._ado(step)
                    except BaseException as error:  # noqa: BLE001 - raised again where the step was yielded
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def _ado(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return await self.aexecute(*step)
        if isinstance(step, InSQLite):
            return await self.acall(step.call)
        if isinstance(step, Look):
            return await self.alook(step.call)
        import asyncio  # noqa: PLC0415 - as above

        return await asyncio.get_running_loop().run_in_executor(None, step.call)


def complaint(error: BaseException) -> tuple[str, str]:
    """Return the database's code, if it has one, and message, whatever driver's error this is, and whatever is around it."""
    found: BaseException | None = error
    while found is not None:
        code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if isinstance(code, str):
            return code, str(found).partition("\n")[0]
        found = getattr(found, "orig", None) or found.__cause__
    return "", str(error)
