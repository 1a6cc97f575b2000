"""The trip: every type arrives as it was sent, and what cannot arrive is refused where it is sent."""

from __future__ import annotations

import contextlib
import enum
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import often
from laneway import App
from laneway.core.codec import MAX_BYTES, MAX_LEVELS, Codec, Envelope, open_body
from laneway.desk.signature import Signature
from laneway.errors import BadArguments, DeclarationError, GarbageError, PayloadTooLarge

if TYPE_CHECKING:
    from collections import OrderedDict as OnlyForTypeCheckers


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 7


class Region(enum.StrEnum):
    NORTH = "north"


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass(frozen=True)
class Order:
    id: UUID
    lines: list[Point]
    colour: Colour
    at: datetime
    total: Decimal | None = None
    labels: dict[int, str] = field(default_factory=dict)


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Loose:
    thing: Any


class Packet(msgspec.Struct, frozen=True):
    kind: Literal["a", "b"]
    payload: bytes = b""
    inner: Packet | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: set[str]


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    depth: int
    when: date


class User(pydantic.BaseModel):
    name: str
    born: date
    friends: list[User] = []


class Aliased(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    width: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Measure(pydantic.BaseModel):
    value: float


class Unknown:
    """Nobody has said how it travels."""


UserId = NewType("UserId", int)


def taking(kind: Any, codec: Codec | None = None) -> Signature:
    """Return the signature of a task with one parameter of a type."""

    def task(x: Any) -> None: ...

    task.__annotations__["x"] = kind
    return Signature(task, codec or Codec(), "shop.task")


def of(function: Callable[..., object]) -> Signature:
    return Signature(function, Codec(), "shop.task")


def untyped(x, *rest, key=None, **more):  # type: ignore[no-untyped-def]
    """A task without annotations."""


def nested(levels: int, leaf: object = 1) -> object:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


# -- what makes the trip -----------------------------------------------------------------------------------------

SOME_ID = UUID("6f1d2c3b-4a59-4687-9f70-81a2b3c4d5e6")
AWARE = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
ORDER = Order(SOME_ID, [Point(1), Point(2, -1.5)], Colour.BLUE, AWARE, Decimal("19.90"), {7: "gift"})

TRIPS: list[tuple[Any, object]] = [
    (int, 2**70),
    (int, -1),
    (float, 1e300),
    (float, 0.1),
    (bool, True),
    (str, 'naïve 💥 \0 " \\ \u2028'),
    (type(None), None),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"\x00\xff")),
    (datetime, AWARE),
    (datetime, datetime(2024, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2024, 1, 1, 1, 2, 3, 4)),
    (date, date(2024, 2, 29)),
    (time, time(23, 59, 59, 999999)),
    (timedelta, timedelta(days=-3, microseconds=7)),
    (UUID, SOME_ID),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+30")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Region, Region.NORTH),
    (UserId, UserId(7)),
    (Literal["a", "b"], "b"),
    (list[int], [1, 2]),
    (list[Any], [1, "a", None, {"b": [True]}]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[UUID], frozenset({SOME_ID})),
    (dict[int, str], {1: "a", 2: "b"}),
    (dict[str, date], {"a": date(2024, 1, 1)}),
    (dict[int, Any], {1: [None]}),
    (dict[UUID, list[tuple[int, Decimal]]], {SOME_ID: [(1, Decimal("0.5"))]}),
    (Optional[int], None),  # noqa: UP045 - as it is written in older code
    (int | None, 5),
    (datetime | None, AWARE),
    (list[Colour | None], [None, Colour.RED]),
    (int | str | list[int], "a"),
    (Point, Point(1, 2.5)),
    (Point | None, Point(1)),
    (list[Point], [Point(1), Point(2)]),
    (dict[str, Point], {"a": Point(1)}),
    (Order, ORDER),
    (Node, Node("root", [Node("a", [Node("b")]), Node("c")])),
    (Loose, Loose({"a": [1, None]})),
    (Packet, Packet("a", b"\x00", Packet("b"))),
    (Cat | Dog, Dog({"sit"})),
    (Pair, Pair(1, "a")),
    (Options, {"when": date(2024, 1, 1)}),
    (Annotated[int, msgspec.Meta(ge=1)], 5),
    (User, User(name="Ada", born=date(1815, 12, 10), friends=[User(name="Bo", born=date(2000, 1, 1))])),
    (User | None, None),
    (list[User], [User(name="Ada", born=date(1815, 12, 10))]),
    (dict[str, User | None], {"a": User(name="Ada", born=date(1815, 12, 10)), "b": None}),
    (Aliased, Aliased(userId=5)),
    (Computed, Computed(width=3)),
    (Any, {"a": [1, 2.5, "b", None, True]}),
]


@pytest.mark.parametrize(("kind", "value"), TRIPS, ids=lambda part: str(part)[:40])
def test_a_value_arrives_as_it_was_sent(kind: Any, value: object) -> None:
    signature = taking(kind)
    (by_position,), _ = signature.unpack(signature.pack((value,), {}))
    _, by_name = signature.unpack(signature.pack((), {"x": value}))
    assert by_position == by_name["x"] == value
    assert type(by_position) is type(by_name["x"]) is type(value)


def test_what_is_nested_arrives_typed_as_well() -> None:
    signature = taking(dict[str, list[Order]])
    (there,), _ = signature.unpack(signature.pack(({"a": [ORDER]},), {}))
    order = there["a"][0]
    assert [type(part) for part in (order, order.id, order.lines[1], order.colour, order.at, order.total, *order.labels)] == [
        Order, UUID, Point, Colour, datetime, Decimal, int,
    ]  # fmt: skip


def test_an_aware_moment_stays_aware_and_a_naive_one_naive() -> None:
    signature = taking(datetime)
    (aware,), _ = signature.unpack(signature.pack((AWARE,), {}))
    (naive,), _ = signature.unpack(signature.pack((datetime(2024, 1, 1),), {}))
    assert aware.utcoffset() is not None
    assert naive.tzinfo is None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=st.none() | st.just(UTC) | OFFSETS)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
POINTS = st.builds(Point, st.integers(), NUMBERS)
ANYTHING: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, PLAIN),
    (int, st.integers()),
    (float, NUMBERS),
    (str, st.text()),
    (bytes, st.binary()),
    (datetime, MOMENTS),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, DECIMALS),
    (Colour, st.sampled_from(Colour)),
    (set[int], st.sets(st.integers())),
    (frozenset[str], st.frozensets(st.text())),
    (tuple[int, str, bytes], st.tuples(st.integers(), st.text(), st.binary())),
    (dict[int, str], st.dictionaries(st.integers(), st.text())),
    (dict[str, set[date]], st.dictionaries(st.text(), st.sets(st.dates(), max_size=3))),
    (Point | None, st.none() | POINTS),
    (Order, st.builds(Order, st.uuids(), st.lists(POINTS, max_size=3), st.sampled_from(Colour), MOMENTS, st.none() | DECIMALS)),
    (
        Packet,
        st.builds(Packet, st.sampled_from(["a", "b"]), st.binary(), st.none() | st.builds(Packet, st.just("a"), st.binary())),
    ),
    (Pair, st.builds(Pair, st.integers(), st.text())),
    (User, st.builds(User, name=st.text(), born=st.dates(), friends=st.just([]))),
]


@functools.cache
def cached(index: int) -> Signature:
    return taking(ANYTHING[index][0])


@pytest.mark.parametrize("index", range(len(ANYTHING)), ids=lambda index: str(ANYTHING[index][0])[:40])
@settings(max_examples=often(40, 2_000))
@given(data=st.data())
def test_any_value_of_a_type_arrives_as_it_was_sent(index: int, data: st.DataObject) -> None:
    value = data.draw(ANYTHING[index][1])
    body = cached(index).pack((value,), {})
    assert cached(index).unpack(body) == ([value], {})


def every_kind(a: int, /, b: str = "b", *rest: UUID, c: date, d: Decimal = Decimal(1), **more: Point) -> None:
    """A task with every kind of parameter."""


def without_variadic(a: int, /, b: str = "b", *, c: date, d: Decimal = Decimal(1)) -> None:
    """A task with a fixed number of parameters."""


FIXED = st.tuples(st.integers()) | st.tuples(st.integers(), st.text())
NAMED = st.fixed_dictionaries({"c": st.dates()}, optional={"d": DECIMALS})
OPEN = st.builds(lambda head, rest: (*head, *rest), st.tuples(st.integers(), st.text()), st.lists(st.uuids(), max_size=3))
MORE = st.builds(
    lambda named, more: {**more, **named}, NAMED, st.dictionaries(st.sampled_from(["a", "rest", "more", "e"]), POINTS)
)


@given(args=FIXED, kwargs=NAMED)
def test_any_call_arrives_as_it_was_written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    signature = of(without_variadic)
    assert signature.unpack(signature.pack(args, kwargs)) == (list(args), kwargs)


@given(args=FIXED | OPEN, kwargs=MORE)
def test_any_call_of_an_open_signature_arrives_as_it_was_written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    signature = of(every_kind)
    assert signature.unpack(signature.pack(args, kwargs)) == (list(args), kwargs)


@given(args=st.lists(PLAIN, max_size=2), kwargs=st.fixed_dictionaries({}, optional={"b": PLAIN, "c": PLAIN}))
def test_any_call_of_a_task_without_annotations_arrives_as_it_was_written(args: list[Any], kwargs: dict[str, Any]) -> None:
    def task(a=None, b=None, *, c=None):  # type: ignore[no-untyped-def]
        """Any number of these may be given, by position or by name."""

    given_by_name = {name: value for name, value in kwargs.items() if name != "b" or len(args) < 2}
    signature = of(task)
    assert signature.unpack(signature.pack(args, given_by_name)) == (args, given_by_name)


def test_defaults_do_not_travel_so_that_the_worker_applies_its_own() -> None:
    signature = of(without_variadic)
    assert signature.pack((1,), {"c": date(2024, 1, 1)}) == b'[[1],{"c":"2024-01-01"}]'


def test_options_travel_behind_the_arguments_and_disturb_nothing() -> None:
    signature = of(without_variadic)
    body = signature.pack((1,), {"c": date(2024, 1, 1)}, {"headers": {"trace": "7"}})
    assert signature.unpack(body) == ([1], {"c": date(2024, 1, 1)})
    assert msgspec.json.decode(body)[2] == {"headers": {"trace": "7"}}


def test_a_value_given_for_a_wider_annotation_arrives_as_the_annotation_says() -> None:
    signature = taking(tuple[datetime, ...])
    (there,), _ = signature.unpack(signature.pack(([AWARE],), {}))
    assert there == (AWARE,)


# -- users' own types --------------------------------------------------------------------------------------------


@dataclass
class Recipe:
    parts: dict[str, Fraction]
    rest: Fraction | None = None


class Sixth(Fraction):
    """A subclass of a registered type."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Fraction, Fraction(1, 3)),
        (Fraction | None, None),
        (list[Fraction], [Fraction(1, 3)]),
        (dict[str, Fraction], {"a": Fraction(1, 3)}),
        (Recipe, Recipe({"a": Fraction(1, 3)}, Fraction(2))),
    ],
    ids=str,
)
def test_a_type_of_the_user_travels_through_the_functions_registered_for_it(app: App, kind: Any, value: object) -> None:
    app.codec(Fraction, encode=str, decode=Fraction)
    signature = taking(kind, app.codecs)
    assert signature.unpack(signature.pack((value,), {})) == ([value], {})


def test_a_subclass_travels_as_the_type_that_was_registered(app: App) -> None:
    app.codec(Fraction, encode=str, decode=Fraction)
    signature = taking(Fraction, app.codecs)
    assert signature.unpack(signature.pack((Sixth(1, 6),), {})) == ([Fraction(1, 6)], {})


@pytest.mark.parametrize("trouble", [ValueError("no such part"), KeyError("no such part"), ZeroDivisionError("no such part")])
def test_an_error_of_the_users_decode_names_the_argument(app: App, trouble: Exception) -> None:
    def decode(value: str) -> Fraction:
        raise trouble

    app.codec(Fraction, encode=str, decode=decode)
    with pytest.raises(BadArguments, match=r'argument "x".*no such part'):
        taking(Fraction, app.codecs).pack((Fraction(1, 3),), {})


def test_a_decode_that_makes_something_else_is_noticed_at_enqueue(app: App) -> None:
    app.codec(Fraction, encode=str, decode=str)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match=r'argument "x".*Fraction'):
        taking(Fraction, app.codecs).pack((Fraction(1, 3),), {})


def test_a_type_registered_after_its_task_is_refused_with_the_order_to_keep(app: App) -> None:
    with pytest.raises(DeclarationError, match=r"register it before the task: app\.codec\(Fraction"):
        taking(Fraction, app.codecs)


# -- what is refused at the call ---------------------------------------------------------------------------------


def plain(a: int, b: str = "b", *, c: bool = False) -> None: ...


def by_position_only(a: int, /) -> None: ...


def deep_inside(points: list[Point], names: dict[int, str] | None = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "words"),
    [
        (plain, (), {}, "shop.task.*missing.*'a'"),
        (plain, (1, "b", True), {}, "too many positional arguments"),
        (plain, (1,), {"d": 1}, "unexpected keyword argument 'd'"),
        (plain, (1,), {"a": 1}, "multiple values for argument 'a'"),
        (by_position_only, (), {"a": 1}, "positional"),
        (every_kind, (1,), {}, "missing.*'c'"),
        (plain, ("1",), {}, 'shop.task.*argument "a": Expected `int`, got `str`'),
        (plain, (None,), {}, 'argument "a": Expected `int`, got `null`'),
        (plain, (1.5,), {}, 'argument "a": Expected `int`, got `float`'),
        (plain, (1,), {"c": "no"}, 'argument "c": Expected `bool`, got `str`'),
        (plain, (1, ["b"]), {}, 'argument "b": Expected `str`, got `array`'),
        (deep_inside, ([Point(1), "two"],), {}, r'argument "points": Expected .*\(at \[1\]\)'),
        (deep_inside, ([{"x": "1"}],), {}, r'argument "points": Expected `int`, got `str` \(at \[0\]\.x\)'),
        (deep_inside, (), {"points": [{"x": "1"}]}, r'argument "points": Expected `int`, got `str` \(at \[0\]\.x\)'),
        (deep_inside, ([], {"one": "a"}), {}, 'argument "names": Expected `int`, got `str`'),
        (deep_inside, ([],), {"names": {"one": "a"}}, 'argument "names": Expected `int`, got `str`'),
        (every_kind, (1, "b", "no uuid"), {"c": date(2024, 1, 1)}, 'argument "rest".*UUID'),
        (every_kind, (1,), {"c": date(2024, 1, 1), "e": 5}, 'argument "(e|more)": Expected'),
        (every_kind, (1,), {"c": "soon"}, 'argument "c".*date'),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_is_refused_and_named(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object], words: str
) -> None:
    with pytest.raises(BadArguments, match=words):
        of(function).pack(args, kwargs)


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        (float, math.nan, "nan"),
        (float, math.inf, "inf"),
        (float, -math.inf, "-inf"),
        (float | None, math.nan, "nan"),
        (float | None, math.inf, "inf"),
        (Any, math.nan, "nan"),
        (Any, {"a": [None, math.inf]}, "inf"),
        (list[float | None], [None, 1.0, math.nan], "nan"),
        (set[float], {math.nan}, "nan"),
        (tuple[float, ...], (math.nan,), "nan"),
        (dict[str, float], {"a": math.nan}, "nan"),
        (Point, Point(1, math.nan), "nan"),
        (Point | None, Point(1, math.inf), "inf"),
        (list[Order], [Order(SOME_ID, [Point(1, math.nan)], Colour.RED, AWARE)], "nan"),
        (Loose, Loose(math.nan), "nan"),
        (Measure, Measure(value=math.nan), "nan"),
        (list[Measure], [Measure(value=math.inf)], "inf"),
    ],
)
def test_json_has_no_nan_and_no_infinity_wherever_they_hide(kind: Any, value: object, word: str) -> None:
    with pytest.raises(BadArguments, match=f"shop.task.*JSON has no {word}: pass None"):
        taking(kind).pack((value,), {})


def test_a_users_encode_cannot_smuggle_nan_either(app: App) -> None:
    app.codec(Fraction, encode=lambda _: math.nan, decode=Fraction)
    with pytest.raises(BadArguments, match="JSON has no nan"):
        taking(Fraction, app.codecs).pack((Fraction(1),), {})


def test_a_text_that_says_null_is_no_nan() -> None:
    signature = taking(Any)
    assert signature.unpack(signature.pack((["null", None, 1.5],), {})) == ([["null", None, 1.5]], {})


@pytest.mark.parametrize("value", ["\ud800", "ok \udfff", ["\ud800"], {"\ud800": 1}, Point("\ud800")])  # type: ignore[arg-type]
def test_a_lone_surrogate_has_no_bytes(value: object) -> None:
    with pytest.raises(BadArguments, match=r"shop.task.*UTF-8"):
        taking(Any).pack((value,), {})


@pytest.mark.parametrize("value", [Unknown(), [Unknown()], {"a": Unknown()}, Loose(Unknown()), object, len, Fraction(1, 3)])
def test_an_object_nobody_knows_is_refused_with_what_to_do(value: object) -> None:
    with pytest.raises(BadArguments, match=r"shop\.task.*cannot travel as JSON.*dataclass.*app\.codec\("):
        taking(Any).pack((value,), {})


CHANGING: list[tuple[object, str]] = [
    ((1, 2), "tuple would arrive as a list"),
    ({1, 2}, "set would arrive as a list"),
    (frozenset({1}), "frozenset would arrive as a list"),
    (AWARE, "datetime would arrive as a str"),
    (date(2024, 1, 1), "date would arrive as a str"),
    (timedelta(1), "timedelta would arrive as a str"),
    (SOME_ID, "UUID would arrive as a str"),
    (Decimal(1), "Decimal would arrive as a str"),
    (b"a", "bytes would arrive as a str"),
    (Colour.RED, "Colour would arrive as a str"),
    (Level.HIGH, "Level would arrive as a int"),
    (Region.NORTH, "Region would arrive as a str"),
    (Point(1), "Point would arrive as a dict"),
    (Pair(1, "a"), "Pair would arrive as a list"),
    (User(name="Ada", born=date(1815, 12, 10)), "User would arrive as a dict"),
    ({1: "a"}, "key 1 would arrive as text"),
    ({"a": {1: "a"}}, "key 1 would arrive as text"),
    ([[(1,)]], "tuple would arrive as a list"),
    ({"a": [AWARE]}, "datetime would arrive as a str"),
]


@pytest.mark.parametrize(("value", "words"), CHANGING, ids=lambda part: str(part)[:40])
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda v: of(untyped).pack((v,), {}), id="by position"),
        pytest.param(lambda v: of(untyped).pack((1, v), {}), id="in *args"),
        pytest.param(lambda v: of(untyped).pack((1,), {"key": v}), id="by name"),
        pytest.param(lambda v: of(untyped).pack((1,), {"other": v}), id="in **kwargs"),
        pytest.param(lambda v: taking(Any).pack((v,), {}), id="for Any"),
        pytest.param(lambda v: taking(list[Any]).pack(([v],), {}), id="in list[Any]"),
        pytest.param(lambda v: taking(dict[str, Any]).pack(({"k": v},), {}), id="in dict[str, Any]"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused_where_no_annotation_says_what_it_is(
    call: Callable[[object], bytes], value: object, words: str
) -> None:
    with pytest.raises(BadArguments, match=f"{words}.*Annotate"):
        call(value)


def test_what_would_change_inside_a_dataclass_is_named() -> None:
    with pytest.raises(BadArguments, match=r'argument "x".*tuple would arrive as a list'):
        taking(Loose).pack((Loose((1, 2)),), {})


def test_two_keys_that_become_one_are_refused() -> None:
    with pytest.raises(BadArguments, match="key 1 would arrive as text"):
        taking(Any).pack(({"1": "a", 1: "b"},), {})


def test_two_megabytes_are_refused_with_what_to_do() -> None:
    with pytest.raises(PayloadTooLarge, match=r"2,000,009 bytes.*1,000,000.*reference"):
        taking(str).pack(("x" * 2_000_000,), {})


def test_one_megabyte_is_the_limit() -> None:
    fits = "x" * (MAX_BYTES - len(b'[[""],{}]'))
    assert len(taking(str).pack((fits,), {})) == MAX_BYTES
    with pytest.raises(PayloadTooLarge):
        taking(str).pack((fits + "x",), {})


@pytest.mark.parametrize("leaf", [1, None, []], ids=str)
@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 800, 900, 950, 1_000, 100_000])
def test_a_thousand_levels_are_refused(levels: int, leaf: object) -> None:
    with pytest.raises(PayloadTooLarge, match="levels deep"):
        taking(Any).pack((nested(levels, leaf),), {})


@pytest.mark.parametrize("name", ["x", "more"])
def test_a_hundred_levels_are_the_limit(name: str) -> None:
    signature = of(untyped)
    args, kwargs = ((), {"x": nested(MAX_LEVELS)}) if name == "x" else ((1,), {"more": nested(MAX_LEVELS)})
    assert signature.unpack(signature.pack(args, kwargs)) == (list(args), kwargs)
    with pytest.raises(PayloadTooLarge, match=f"{MAX_LEVELS + 1} levels"):
        signature.pack((nested(MAX_LEVELS + 1),), {})


def test_dicts_and_dataclasses_are_levels_too() -> None:
    value: object = 1
    node = Node("leaf")
    for _ in range(MAX_LEVELS + 1):
        value = {"a": value}
        node = Node("n", [node])
    with pytest.raises(PayloadTooLarge, match="levels"):
        taking(Any).pack((value,), {})
    with pytest.raises(PayloadTooLarge, match="levels"):
        taking(Node).pack((node,), {})


@given(st.text(alphabet='[]{}"\\a', min_size=150, max_size=400))
def test_brackets_in_texts_are_no_levels(text: str) -> None:
    signature = taking(dict[str, str])
    assert signature.unpack(signature.pack(({text: text},), {})) == ([{text: text}], {})


def test_a_list_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    ring: dict[str, object] = {}
    ring["ring"] = [ring]
    for value in (circle, ring):
        with pytest.raises(PayloadTooLarge, match="contain themselves"):
            taking(Any).pack((value,), {})


# -- what is refused at the declaration --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (str | datetime, "str-like"),
        (datetime | date | None, "str-like"),
        (Point | Node, "dataclass"),
        (list[Point | Node], "dataclass"),
        (Unknown, "Unknown is not known.*dataclass.*app.codec"),
        (list[Unknown], "Unknown is not known"),
        (Unknown | None, "Unknown is not known"),
        (dict[str, tuple[Unknown, ...]], "Unknown is not known"),
        (Callable[[], None], "Callable"),
        (Fraction, "Fraction is not known"),
        (5, "5"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_an_annotation_that_cannot_make_the_trip_is_refused_where_it_is_declared(app: App, kind: Any, words: str) -> None:
    def send(first: int, second: Any) -> None: ...

    send.__annotations__["second"] = kind
    with pytest.raises(DeclarationError, match=f'parameter "second" of .*send cannot travel as JSON.*{words}'):
        app.task(send)


@pytest.mark.parametrize("kind", ["not a type", "datetime.nope", "UUID["])
def test_an_annotation_that_is_no_python_is_refused_where_it_is_declared(app: App, kind: str) -> None:
    def send(x: Any) -> None: ...

    send.__annotations__["x"] = kind
    with pytest.raises(DeclarationError, match=r"send.*annotation"):
        app.task(send)


def test_a_field_that_cannot_make_the_trip_is_found_inside_its_class(app: App) -> None:
    class Holder(msgspec.Struct):
        inner: list[Unknown]

    with pytest.raises(DeclarationError, match="Unknown is not known"):
        taking(Holder)


forward = App("sqlite://")


@forward.task
def ship(parcel: Parcel) -> None:
    """Declared before the class that it takes."""


@forward.task
def sort(things: OnlyForTypeCheckers[str, int]) -> None:
    """Takes what only type checkers have imported."""


@dataclass
class Parcel:
    weight: float


@pytest.fixture
def _closing_forward() -> Iterator[None]:
    yield
    forward.close()


@pytest.mark.usefixtures("_closing_forward")
def test_a_forward_reference_is_resolved_when_it_is_first_used() -> None:
    body = ship.signature.pack((Parcel(2.5),), {})
    assert ship.signature.unpack(body) == ([Parcel(2.5)], {})
    assert ship.enqueue(Parcel(2.5)).created


@pytest.mark.usefixtures("_closing_forward")
def test_a_reference_that_never_resolves_says_what_to_import() -> None:
    with pytest.raises(DeclarationError, match=r"sort.*OnlyForTypeCheckers.*import it at module level"):
        sort.enqueue({})  # type: ignore[arg-type]


# -- garbage in the store ----------------------------------------------------------------------------------------

TEXTS = st.text(alphabet='[]{},:"0e-.ntrufalsé\\ ', max_size=40).map(str.encode)
GARBAGE = st.binary() | TEXTS | TEXTS.map(lambda inner: b"[[" + inner + b"],{}]")


@given(GARBAGE)
def test_any_bytes_are_a_body_or_garbage(body: bytes) -> None:
    with contextlib.suppress(GarbageError):
        assert isinstance(open_body(body), Envelope)


@given(GARBAGE)
@example(b"[]")
@example(b"[[]]")
@example(b"[[1],5]")
@example(b'[["\xff"],{}]')
@example(b"[" * 100_000)
@pytest.mark.parametrize("function", [without_variadic, every_kind, untyped])
def test_any_bytes_are_a_call_or_refused(function: Callable[..., object], body: bytes) -> None:
    with contextlib.suppress(BadArguments):
        args, kwargs = of(function).unpack(body)
        assert isinstance(args, list)
        assert isinstance(kwargs, dict)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"{}", b"[]", b"[[]]", b"[{},[]]", b"[[],[]]", b"[{},{}]", b'["[]",{}]', b"[[],{},[]]", b"[[],{},null]",
        b"[[],{}", b"[[],{}]]", b"[[],{}] x", b"[[,{}]", b"\xff\xfe", b"\x00" * 50, b"\x80\x04N.", b"(lp0\n.",
    ],
)  # fmt: skip
def test_a_wrong_shape_is_garbage(body: bytes) -> None:
    with pytest.raises(GarbageError, match="not a job's"):
        open_body(body)


@pytest.mark.parametrize("body", [b"[[],{}]", b'[[1,"a"],{"b":null}]', b"[[],{},{}]", b' [ [ 1 ] , { "a" : 2 } , {} ] '])
def test_a_body_opens_whoever_wrote_its_spaces(body: bytes) -> None:
    opened = open_body(body)
    args, kwargs, *_ = msgspec.json.decode(body)
    assert [msgspec.json.decode(value) for value in opened.args] == args
    assert {name: msgspec.json.decode(value) for name, value in opened.kwargs.items()} == kwargs


@pytest.mark.parametrize("where", ["[{}]", "[{},{}]", "[[],{},{}]", "[[{}],{}]", '[[],{"a":{}}]'])
@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_100_000_levels_are_garbage_and_harm_nobody(where: str, bracket: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000 if bracket == "[]" else '{"a":' * 100_000 + "1" + "}" * 100_000
    body = deep.join(where.rsplit("{}", 1) if where.count("{}") == 1 else where.split("{}", 1)).encode()
    with pytest.raises(GarbageError, match="not a job's"):
        open_body(body)


def test_a_call_whose_arguments_no_longer_fit_names_the_one() -> None:
    with pytest.raises(BadArguments, match='argument "a": Expected `int`'):
        of(plain).unpack(b'[["old"],{}]')
    with pytest.raises(BadArguments, match="gone"):
        of(plain).unpack(b'[[1],{"gone":2}]')


def test_result_annotations_type_the_result_and_what_they_cannot_is_plain() -> None:
    def returning(kind: Any) -> Signature:
        def task() -> None: ...

        task.__annotations__["return"] = kind
        return of(task)

    assert returning(date).decode_result(b'"2024-02-29"') == date(2024, 2, 29)
    assert returning(date).decode_result(b'"soon"') == "soon"
    assert returning(Unknown).decode_result(b'{"a":1}') == {"a": 1}
