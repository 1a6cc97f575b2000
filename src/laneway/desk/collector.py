"""A collector: a function whose payloads gather per lane while they wait, and run together.

It owns a queue of its name. A payload is enqueued into a lane; there it waits with the others of that lane, equal ones merged,
until a run takes them all, in the order of their scores. What comes during a run gathers for the next one.

Enters: payloads.  Leaves: drafts, and in a worker what the function is called with.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, Unpack, cast

import msgspec

from laneway.core.codec import check_size
from laneway.core.instant import micros
from laneway.core.job import Unit, check_queue
from laneway.desk.enqueue import LaneDraft, computed
from laneway.desk.handle import LaneHandle
from laneway.desk.options import LaneOptions, check_bound, check_lane_options
from laneway.desk.signature import annotation, change, check_type, hints_of, is_loose, payload_hint
from laneway.desk.task import Bound
from laneway.desk.task_base import INTROSPECTION_LOCK, TaskBase
from laneway.errors import BadArguments, DeclarationError, PayloadTooLarge
from laneway.locks import this_frame

if TYPE_CHECKING:
    from laneway.desk.app import App

__all__ = ["LEFT_OUT", "AnyCollector", "Collector", "Gathering", "KeyedCollector", "KeyedGathering", "is_collector"]

T = TypeVar("T")  # a payload
C = TypeVar("C")  # what a plain call returns
Lane = str | int

#: The default of `max_wait`, as a multiple of `debounce`.
PATIENCE = 10


class _LeftOut:
    """Stands for a payload that was left out."""

    def __repr__(self) -> str:
        return "(left out)"


LEFT_OUT: Any = _LeftOut()


class AnyCollector(TaskBase, Generic[T, C]):
    """What all collectors have: a function, its policy, and the codec of its payloads."""

    retries = 25

    def __init__(self, app: App, function: Callable[[dict[str, list[T]]], C], options: Mapping[str, Any]) -> None:
        super().__init__(app, function, options)
        try:
            self.queue = check_queue(self.name)
        except ValueError as error:
            raise DeclarationError(
                f"{self.name}: a collector's queue has its name, and {error}. Give it one with name="
            ) from None
        self._payload: _PayloadType | None = None
        self.lane: Callable[[Any], object] | None = options.get("lane")
        self.score: Callable[[Any], object] | None = options.get("score")
        self.max_lanes: int = options.get("max_lanes", 1)
        self.max_payloads: int | None = options.get("max_payloads")
        self.last_only: bool = options.get("merge", "all") == "last"
        self._quiet = micros(options.get("debounce", 0))
        self._longest = micros(options.get("max_wait", 0)) or PATIENCE * self._quiet
        self._check(options)

    def _check(self, options: Mapping[str, Any]) -> None:
        """Find mistakes at the declaration."""
        if "max_wait" in options and "debounce" not in options:
            raise DeclarationError(f"{self.name}: max_wait= goes with debounce=")
        if self.last_only and self.max_payloads is not None:
            raise DeclarationError(f'{self.name}: merge="last" hands over the newest of all, and max_payloads= cuts it off')
        if self._longest < self._quiet:
            raise DeclarationError(f"{self.name}: max_wait= is the most that debounce= may add up to: it cannot be shorter")
        parameters = [*inspect.signature(self.function).parameters.values()]
        others = [p for p in parameters[1:] if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) or others:
            raise DeclarationError(
                f"{self.name}{inspect.signature(self.function)}: a collector is called with one argument, its lanes: "
                "def collect(lanes: dict[str, list[Order]]) -> None"
            )
        try:
            _ = self.payload
        except DeclarationError as error:
            # A name that is defined further down is known when the collector is first used.
            if not isinstance(error.__cause__, NameError):
                raise

    @property
    def payload(self) -> _PayloadType:
        """The codec of the payloads."""
        if self._payload is None:
            with INTROSPECTION_LOCK.held(this_frame()):
                self._payload = self._payload or self._look()
        return self._payload

    def _look(self) -> _PayloadType:
        hints = hints_of(self.function, self.name)
        first = next(iter(inspect.signature(self.function).parameters))
        return _PayloadType(self.app, self.name, payload_hint(self.name, hints.get(first)))

    def prepare(self) -> None:
        """Read the annotations."""
        with contextlib.suppress(DeclarationError):
            _ = self.payload

    def __call__(self, lanes: dict[str, list[T]]) -> C:
        """Run the function in this thread, without a job."""
        return cast(C, self.function(lanes))

    def read(self, unit: Unit) -> list[T]:
        """Return a lane's payloads as the function gets them, or raise BadArguments if one cannot be read."""
        bodies = [payload.body for payload in unit.payloads if payload.body]
        return self.payload.unpack_all(bodies[-1:] if self.last_only else bodies)

    def spoilt(self, unit: Unit) -> tuple[bytes, ...]:
        """Return those of a lane's payloads that cannot be read."""
        return tuple(payload.body for payload in unit.payloads if payload.body and not self.payload.can_read(payload.body))

    def draft(self, lane: object, payload: object, score: object, options: Mapping[str, Any]) -> LaneDraft:
        """Return the draft of a payload for a lane."""
        if score is None and self.score is not None and payload is not LEFT_OUT:
            rule = self.score
            score = computed(f"{self.name}, score=", lambda: rule(payload))
        when, connection = options.get("run_after"), options.get("connection")
        return LaneDraft(self.name, self.payload.pack, lane, payload, score, when, self._quiet, self._longest, connection)

    def keyed(self, payload: object) -> object:
        """Return the lane of a payload."""
        assert self.lane is not None  # noqa: S101 - only called on collectors with a lane rule
        rule = self.lane
        return computed(f"{self.name}, lane=", lambda: rule(payload))


class _Sending(Generic[T]):
    """Puts drafts of a collector into its store."""

    def __init__(self, collector: AnyCollector[T, Any], options: Mapping[str, Any]) -> None:
        self._collector = collector
        self._options = options  # checked

    def _send(self, draft: LaneDraft) -> LaneHandle:
        app = self._collector.app
        app.desk.enqueue(app.store, draft)
        return self._handle(draft)

    async def _asend(self, draft: LaneDraft) -> LaneHandle:
        app = self._collector.app
        await app.desk.aenqueue(app.store, draft)
        return self._handle(draft)

    def _send_many(self, drafts: Iterable[LaneDraft], chunk: int) -> int:
        app = self._collector.app
        return app.desk.enqueue_many(app.store, drafts, chunk, self._options.get("connection"))

    async def _asend_many(self, push: Callable[[Any], int], items: Iterable[Any] | AsyncIterable[Any], chunk: int) -> int:
        app = self._collector.app
        return await app.desk.aenqueue_many(app.store, push, items, chunk, self._options.get("connection"))

    def _handle(self, draft: LaneDraft) -> LaneHandle:
        return LaneHandle(self._collector.app, self._collector.queue, str(draft.lane))

    def _bound(self, draft: Callable[[tuple[Any, ...], Mapping[str, Any]], LaneDraft]) -> Bound:
        check_bound(f"{self._collector.name}.using()", self._options)
        return Bound(self._collector.name, draft, (), {}, self._options)

    def _with(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self._options, **check_lane_options(f"{self._collector.name}.using()", options)}


class Gathering(_Sending[T]):
    """A collector and the options for the next enqueue; `collector.using(...)` makes one."""

    def using(self, **options: Unpack[LaneOptions]) -> Gathering[T]:
        """Set options for the next enqueue: run_after, connection."""
        return Gathering(self._collector, self._with(options))

    def enqueue(self, lane: Lane, payload: T = LEFT_OUT, *, score: float | None = None) -> LaneHandle:
        """Put a payload into a lane; with the payload left out the lane just runs."""
        return self._send(self._collector.draft(lane, payload, score, self._options))

    async def aenqueue(self, lane: Lane, payload: T = LEFT_OUT, *, score: float | None = None) -> LaneHandle:
        """Put a payload into a lane, from an event loop; calls of the same turn of the loop share round trips."""
        return await self._asend(self._collector.draft(lane, payload, score, self._options))

    def enqueue_many(self, items: Iterable[Lane | Sequence[Any]], *, chunk: int = 1000) -> int:
        """Put many payloads into lanes: `(lane, payload, score, run_after)`; items may be left out from the end."""
        return self._send_many(map(self._item, items), chunk)

    async def aenqueue_many(
        self, items: Iterable[Lane | Sequence[Any]] | AsyncIterable[Lane | Sequence[Any]], *, chunk: int = 1000
    ) -> int:
        """Put many payloads into lanes, from an event loop."""
        return await self._asend_many(partial(self.enqueue_many, chunk=chunk), items, chunk)

    def bind(self, lane: Lane, payload: T = LEFT_OUT, *, score: float | None = None) -> Bound:
        """Return the call as a value, for `app.enqueue_many` and `app.schedule`."""
        return self._bound(lambda _args, _kwargs: self._collector.draft(lane, payload, score, self._options))

    def _item(self, item: Lane | Sequence[Any]) -> LaneDraft:
        if isinstance(item, str | int):
            return self._collector.draft(item, LEFT_OUT, None, self._options)
        parts: tuple[Any, ...] = tuple(cast("Sequence[Any]", item)) if isinstance(item, tuple | list) else ()
        if not 1 <= len(parts) <= 4:
            raise BadArguments(
                f"{self._collector.name}.enqueue_many: {item!r} is not an item: use (lane, payload), (lane, payload, score) or "
                "(lane, payload, score, run_after)"
            )
        lane, payload, score, run_after = parts + (None, LEFT_OUT, None, None)[len(parts) :]
        options = self._options if run_after is None else self._with({"run_after": run_after})
        return self._collector.draft(lane, payload, score, options)


class Collector(AnyCollector[T, C], Gathering[T]):
    """A declared function that gets lanes with their payloads. Calling it just runs it.

    >>> from laneway import App, Worker
    >>> app = App("sqlite://")
    >>> @app.collector(max_lanes=10)
    ... def save_orders(lanes: dict[str, list[int]]) -> None:
    ...     for order, totals in lanes.items():
    ...         print(order, "is now", totals[-1], "of", totals)
    >>> _ = save_orders.enqueue("order-1", 90)
    >>> _ = save_orders.enqueue("order-1", 80)
    >>> Worker(app).run(burst=True)
    order-1 is now 80 of [90, 80]
    """

    def __init__(self, app: App, function: Callable[[dict[str, list[T]]], C], options: Mapping[str, Any]) -> None:
        super().__init__(app, function, options)
        self._collector, self._options = self, {}


class KeyedGathering(_Sending[T]):
    """Options of one enqueue, for a collector that knows the lane of a payload."""

    def using(self, **options: Unpack[LaneOptions]) -> KeyedGathering[T]:
        """Set options for the next enqueue: run_after, connection."""
        return KeyedGathering(self._collector, self._with(options))

    def enqueue(self, payload: T, *, score: float | None = None) -> LaneHandle:
        """Put a payload into its lane."""
        return self._send(self._draft(payload, score))

    async def aenqueue(self, payload: T, *, score: float | None = None) -> LaneHandle:
        """Put a payload into its lane, from an event loop; calls of the same turn of the loop share round trips."""
        return await self._asend(self._draft(payload, score))

    def enqueue_many(self, payloads: Iterable[T], *, chunk: int = 1000) -> int:
        """Put many payloads into their lanes; return how many were accepted."""
        return self._send_many((self._draft(payload, None) for payload in payloads), chunk)

    async def aenqueue_many(self, payloads: Iterable[T] | AsyncIterable[T], *, chunk: int = 1000) -> int:
        """Put many payloads into their lanes, from an event loop."""
        return await self._asend_many(partial(self.enqueue_many, chunk=chunk), payloads, chunk)

    def bind(self, payload: T, *, score: float | None = None) -> Bound:
        """Return the call as a value, for `app.enqueue_many` and `app.schedule`."""
        return self._bound(lambda _args, _kwargs: self._draft(payload, score))

    def _draft(self, payload: T, score: float | None) -> LaneDraft:
        return self._collector.draft(self._collector.keyed(payload), payload, score, self._options)


class KeyedCollector(AnyCollector[T, C], KeyedGathering[T]):
    """A collector that knows the lane of a payload: `@app.collector(lane=lambda order: order.id)`."""

    def __init__(self, app: App, function: Callable[[dict[str, list[T]]], C], options: Mapping[str, Any]) -> None:
        super().__init__(app, function, options)
        self._collector, self._options = self, {}


def is_collector(declared: object) -> TypeGuard[AnyCollector[Any, Any]]:
    """Say whether something is a collector."""
    return isinstance(declared, AnyCollector)


class _PayloadType:
    """The codec of one type of payload: canonical JSON, so that equal payloads are found, and back as the annotation says."""

    def __init__(self, app: App, name: str, kind: Any) -> None:
        self._name = name
        self._codec = app.codecs
        check_type(f"the payload of {name}", kind, app.codecs)
        self._decoder = app.codecs.decoder(kind)
        self._loose = is_loose(kind)

    def pack(self, payload: object) -> bytes:
        """Return a payload as bytes, or raise BadArguments with the reason. A payload that was left out has none."""
        if payload is LEFT_OUT:
            return b""
        try:
            body = self._codec.encode(payload, canonical=True)
            check_size(body)
            there = self.unpack(body)
            # Encode the decoded value: 90 and 90.0 are equal where the annotation says float.
            body = self._codec.encode(there, canonical=True)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(f"{self._name}: {error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise BadArguments(f"{self._name}, payload: {error}") from None
        if self._loose and (changed := change(payload, there)):
            raise BadArguments(
                f"{self._name}, payload: {changed}, since no annotation says what it is. "
                f"Annotate it (lanes: dict[str, list[{annotation(payload)}]]), or pass what JSON has."
            )
        return body

    def unpack(self, body: bytes) -> Any:
        """Return a typed payload, or raise BadArguments with the reason."""
        try:
            return self._decoder.decode(body)
        except RecursionError:
            raise PayloadTooLarge from None
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise BadArguments(str(error)) from None

    def unpack_all(self, bodies: Sequence[bytes]) -> list[Any]:
        """Return typed payloads, or raise BadArguments with the reason."""
        try:
            return list(map(self._decoder.decode, bodies))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return [self.unpack(body) for body in bodies]  # which raises what is meant

    def can_read(self, body: bytes) -> bool:
        """Say whether a payload can be read."""
        try:
            self.unpack(body)
        except BaseException:  # noqa: BLE001 - a user's codec may raise anything
            return False
        return True
