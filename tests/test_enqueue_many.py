"""Many at once: what is looked at together must end as it would one by one."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laneway.ids
from conftest import rung
from laneway import App, Retry
from laneway.core.codec import Codec
from laneway.core.job import Gather, Job, UniformJobs, lane_id
from laneway.core.outcome import Done
from laneway.desk.signature import Call, Signature
from laneway.errors import BadArguments, BadOption, BulkError, LanewayError, PayloadTooLarge, WrongQueue
from laneway.ids import new_id, new_ids
from laneway.store.contract import ClaimRequest, Store
from laneway.store.inspection import Inspect, JobInfo
from laneway.store.two_steps import begin_push
from settling import settled_alike

BODY = b"[[1],{}]"


# -- ids ---------------------------------------------------------------------------------------------------------


def test_ids_made_together_look_like_ids_made_alone_and_are_in_order() -> None:
    ids = [new_id(), *new_ids(5_000), new_id(), *new_ids(2), new_id()]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch("[0-9a-hjkmnp-tv-z]{20}", id_) for id_ in ids)
    assert len({id_[11:] for id_ in ids}) == len(ids)  # the random part


def test_an_id_says_when_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laneway.ids, "_last", 0)
    monkeypatch.setattr(laneway.ids, "now_micros", lambda: 1_790_000_000_123_456)
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

    numbers = [sum(alphabet.index(letter) << 5 * n for n, letter in enumerate(reversed(id_))) for id_ in (new_id(), *new_ids(9))]

    assert [number >> 48 for number in numbers] == list(range(1_790_000_000_123_456, 1_790_000_000_123_466))


def test_all_48_random_bits_of_an_id_vary() -> None:
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    ones = zeros = 0
    for id_ in (*new_ids(200), *(new_id() for _ in range(200))):
        number = sum(alphabet.index(letter) << 5 * n for n, letter in enumerate(reversed(id_)))
        ones, zeros = ones | number, zeros | ~number
    assert ones & zeros & (1 << 48) - 1 == (1 << 48) - 1


def test_ids_made_together_are_unique_over_threads() -> None:
    start = threading.Barrier(4)

    def make() -> list[str]:
        start.wait(10)
        return [id_ for _ in range(50) for id_ in (*new_ids(100), new_id())]

    with ThreadPoolExecutor(4) as pool:
        batches = [future.result() for future in [pool.submit(make) for _ in range(4)]]
    assert all(batch == sorted(batch) for batch in batches)
    assert len({id_ for batch in batches for id_ in batch}) == 4 * 50 * 101


# -- packing -----------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: float = 0.0


def plain(user: int, template: str = "welcome") -> None: ...
def rich(point: Point, tags: list[str], limit: float | None = None) -> None: ...
def by_name(user: int, *, template: str) -> None: ...
def loose(user, template=None) -> None: ...  # type: ignore[no-untyped-def]
def open_ended(*users: int, **options: str) -> None: ...


FUNCTIONS: list[Callable[..., None]] = [plain, rich, by_name, loose, open_ended]

values = st.one_of(
    st.integers(), st.text(), st.floats(), st.none(), st.lists(st.text(max_size=3), max_size=2), st.tuples(st.integers()),
    st.builds(Point, st.integers(), st.floats()), st.just(object()), st.just("\ud800"), st.just("[" * 120),
    st.just("a\nb\r\u2028"), st.just(msgspec.Raw(b'"a"\n')), st.just(msgspec.Raw(b"1],{}]\n[[1")),
)  # fmt: skip
fitting = st.tuples(st.integers(0, 2**63), st.text(max_size=5)).map(lambda args: (args, dict[str, Any]()))
anything: st.SearchStrategy[Call] = st.tuples(
    st.lists(values, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["user", "template", "point", "tags", "limit"]), values, max_size=2),
)


def outcome(pack: Callable[[], list[bytes]]) -> list[bytes] | tuple[type[LanewayError], str]:
    try:
        return pack()
    except LanewayError as error:
        return type(error), str(error)


@given(
    function=st.sampled_from(FUNCTIONS),
    calls=st.lists(st.one_of(fitting, anything), max_size=6),
    options=st.sampled_from([None, {}, {"retry": [3, None]}, {"headers": {"trace": "1"}}]),
)
def test_calls_packed_together_are_or_fail_as_one_by_one(
    function: Callable[..., None], calls: list[Call], options: dict[str, Any] | None
) -> None:
    signature = Signature(function, Codec(), "app.task")

    together = outcome(lambda: signature.pack_all(calls, options))

    assert together == outcome(lambda: [signature.pack(args, kwargs, options) for args, kwargs in calls])


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (("two",), BadArguments, 'argument "user": Expected `int`'),
        ((), BadArguments, "missing a required argument"),
        ((1, "x", 3), BadArguments, "too many positional"),
        ((1, object()), BadArguments, "object cannot travel"),
        ((1, "x" * 1_000_001), PayloadTooLarge, "1,000,0"),
    ],
)
def test_the_one_call_that_does_not_fit_is_named(where: int, bad: tuple[Any, ...], kind: type[Exception], words: str) -> None:
    calls: list[Call] = [((1,), {}), ((2,), {})]
    calls.insert(where, (bad, {}))
    with pytest.raises(kind, match=words):
        Signature(plain, Codec(), "app.task").pack_all(calls)


def test_a_nan_among_many_is_refused_and_a_none_is_not() -> None:
    signature = Signature(rich, Codec(), "app.task")
    fine: Call = ((Point(1), ["null"], None), {})
    assert signature.pack_all([fine, fine]) == [signature.pack(*fine)] * 2
    with pytest.raises(BadArguments, match="JSON has no nan"):
        signature.pack_all([fine, ((Point(1), [], math.nan), {})])


def test_a_line_break_in_a_text_that_is_json_already_stays_where_it_is() -> None:
    signature = Signature(plain, Codec(), "app.task")
    calls: list[Call] = [((1, msgspec.Raw(b'"a"\n')), {}), ((2, "b\nc"), {})]
    assert signature.pack_all(calls) == [b'[[1,"a"\n],{}]', b'[[2,"b\\nc"],{}]']


def test_too_many_levels_among_many_are_refused() -> None:
    def deep(value: Any) -> None: ...
    def typed(value: list[list[Any]]) -> None: ...

    nested: list[Any] = []
    for _ in range(101):
        nested = [nested]
    for function in (deep, typed):
        with pytest.raises(PayloadTooLarge, match="levels"):
            Signature(function, Codec(), "app.task").pack_all([(([],), {}), ((nested,), {})])


# -- the desk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    return App("sqlite://")


def jobs_of(app: App) -> list[tuple[Any, ...]]:
    """What is in the store, but for ids and times."""
    return [
        (job.task, job.queue, job.lane, job.priority, job.state, job.body, job.unique, job.expires_at is None)
        for job in app.inspect.jobs()
    ]


USES: list[dict[str, Any]] = [
    {}, {"queue": "vip"}, {"lane": "a"}, {"run_after": 60}, {"retry": Retry(times=2)}, {"expires": 5}, {"priority": 7},
]  # fmt: skip


@pytest.mark.parametrize(
    "options", [{}, {"lane": "user"}, {"lane": lambda user, template: f"{template}-{user}"}, {"unique": True}]
)
@pytest.mark.parametrize("use", USES)
def test_many_are_stored_as_one_by_one(app: App, options: dict[str, Any], use: dict[str, Any]) -> None:
    if "lane" in options and "priority" in use:
        pytest.skip("exclude each other")
    send = app.task(name="send", **options)(plain)
    calls = [(n % 3, f"t{n % 2}") for n in range(5)]
    for call in calls:
        send.using(**use).enqueue(*call)
    alone = jobs_of(app)
    other = App("sqlite://")
    many = other.task(name="send", **options)(plain)

    accepted = many.using(**use).enqueue_many(calls)

    assert jobs_of(other) == alone
    assert accepted == len(alone)


def test_a_lane_that_is_none_among_many_is_refused(app: App) -> None:
    @app.task(lane="user")
    def send(user: str) -> None: ...

    with pytest.raises(BulkError, match=r'lane="user": .* is not a key') as caught:
        send.enqueue_many([("a",), ("",)])
    assert isinstance(caught.value.__cause__, BadOption)
    assert app.inspect.counts()["ready"] == 0


def test_bound_calls_of_all_kinds_arrive_in_order(app: App) -> None:
    send = app.task(name="send")(plain)
    wait = app.task(name="wait", queue="slow", lane="user")(by_name)

    @app.collector(name="gather")
    def gather(lanes: dict[str, list[int]]) -> None: ...

    accepted = app.enqueue_many(
        [
            send.bind(1), wait.bind(2, template="x"), send.bind(3, template="y"), gather.bind("lane", 4),
            send.using(id="mine").bind(5), wait.bind(user=6, template="z"), send.using(priority=1).bind(7), send.bind(8),
        ]
    )  # fmt: skip

    found = [job for job in app.inspect.jobs() if job.task != "gather"]
    assert accepted == 8
    assert [(job.args, job.kwargs) for job in found] == [
        ([1], {}), ([2], {"template": "x"}), ([3], {"template": "y"}), ([5], {}), ([], {"user": 6, "template": "z"}),
        ([7], {}), ([8], {}),
    ]  # fmt: skip
    assert [job.lane for job in found] == [None, "2", None, None, "6", None, None]
    made = [job.id for job in found if job.id != "mine"]
    assert len(made) == 6
    assert made == sorted(made)


# -- every store -------------------------------------------------------------------------------------------------


@pytest.fixture
def used(store: Store) -> Store:
    """A store whose queue has had a job: in a new one more is to be done."""
    store.push([Job("first", "app.task", "default", BODY)])
    (claim,) = store.exchange("w", [], [ClaimRequest("default", 1)], 1).claims
    store.exchange("w", [settled_alike(claim, Done(), 1, 2)], [], 0)
    return store


def alike(number: int, **shared: Any) -> UniformJobs:
    ids = new_ids(number)
    return UniformJobs(Job(ids[0], "app.task", "default", BODY, **shared), ids, [b"[[%d],{}]" % n for n in range(number)])


def stands(inspect: Inspect, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    found: list[JobInfo | None] = [inspect.job(id_) for id_ in ids]
    return [
        (job.task, job.queue, job.lane, job.priority, job.state, job.body, job.attempt, job.due_at, job.place_at, job.expires_at)
        for job in found
        if job is not None
    ]


def claimed(store: Store, number: int) -> list[Job]:
    """Claim what is due; return it in order."""
    jobs: list[Job] = []
    while portion := store.exchange("w", [], [ClaimRequest("default", number)], number).claims:
        jobs += [Job(claim.unit.id, claim.task, claim.queue, claim.unit.body, claim.unit.lane) for claim in portion]
    return jobs


SHARED: list[dict[str, Any]] = [
    {}, {"lane": "a"}, {"priority": 7}, {"priority": -100}, {"delay": 60_000_000}, {"at": 10**15 * 4}, {"at": 5},
    {"expires": 9_000_000}, {"lane": "ä", "expires": 1, "delay": 7},
]  # fmt: skip


@pytest.mark.parametrize("shared", SHARED)
def test_alike_jobs_stand_as_jobs_that_come_one_by_one(used: Store, inspect: Inspect, shared: dict[str, Any]) -> None:
    together, alone = alike(3, **shared), alike(3, **shared)

    assert used.push(together) == [None] * 3
    assert [used.push([job]) for job in alone] == [[None]] * 3

    assert stands(inspect, together.ids) == stands(inspect, alone.ids)
    assert len(stands(inspect, together.ids)) == 3
    assert inspect.totals()["enqueued"] == 7


def test_a_push_in_two_steps_says_what_a_push_says(used: Store, inspect: Inspect) -> None:
    first, mixed = alike(3), [*alike(2), Job(new_id(), "t", "another", BODY, "lane")]
    ids = new_ids(2)
    others = UniformJobs(Job(ids[0], "app.task", "new", BODY), ids, [BODY, BODY])

    assert begin_push(used, first)() == [None] * 3
    assert begin_push(used, first)() == list(first.ids)
    assert begin_push(used, others)() == [None] * 2  # a queue that nobody has seen
    assert begin_push(used, mixed)() == [None] * 3
    assert begin_push(used, [])() == []

    assert len(stands(inspect, [*first.ids, *others.ids, *(job.id for job in mixed)])) == 8


def test_thousands_of_alike_jobs_are_claimed_in_order(used: Store) -> None:
    first, second = alike(1_300), alike(2_500)
    used.push(first)
    used.push(second)
    assert claimed(used, 1_000) == [*first, *second]


def test_jobs_of_one_queue_that_differ_in_lane_and_task_are_claimed_in_order(used: Store) -> None:
    sent = [Job(new_id(), f"app.{n % 3}", "default", BODY, f"lane-{n}") for n in range(1_200)]
    assert used.push(sent) == [None] * 1_200
    assert claimed(used, 1_200) == sent


def test_alike_jobs_that_are_pushed_again_change_nothing(used: Store, inspect: Inspect) -> None:
    sent = alike(1_200)
    used.push(sent)
    before = stands(inspect, sent.ids[:3])

    assert used.push(sent) == list(sent.ids)

    assert stands(inspect, sent.ids[:3]) == before
    assert (inspect.counts()["ready"], inspect.totals()["enqueued"]) == (1_200, 1_201)


def test_of_alike_jobs_only_those_are_taken_that_are_not_there(used: Store, inspect: Inspect) -> None:
    sent = alike(1_100)
    used.push([sent[2], sent[1_050]])

    answers = used.push(sent)

    assert {n: met for n, met in enumerate(answers) if met is not None} == {2: sent.ids[2], 1_050: sent.ids[1_050]}
    assert inspect.counts()["ready"] == 1_100
    jobs = claimed(used, 1_100)
    assert jobs == [sent[2], sent[1_050], *(job for n, job in enumerate(sent) if n not in (2, 1_050))]


@pytest.mark.parametrize("own", [True, False])
def test_an_id_twice_among_thousands_counts_once(used: Store, inspect: Inspect, own: bool) -> None:
    ids = [f"mine-{n}" for n in range(1_200)] if own else new_ids(1_200)
    ids[1_150] = ids[3]

    answers = used.push([Job(id_, "app.task", "default", b"[[%d],{}]" % n) for n, id_ in enumerate(ids)])

    assert [n for n, met in enumerate(answers) if met is not None] == [1_150]
    assert answers[1_150] == ids[3]
    assert (inspect.counts()["ready"], inspect.totals()["enqueued"]) == (1_199, 1_200)
    assert [job.body for job in claimed(used, 1_200)][3] == b"[[3],{}]"


def test_alike_jobs_of_a_priority_go_before_others(used: Store, inspect: Inspect) -> None:
    plain_ones, urgent, more = alike(3), alike(3, priority=5), alike(2, priority=5)
    for jobs in (plain_ones, urgent, more):
        used.push(jobs)
    assert inspect.counts()["ready"] == 8
    assert [job.id for job in claimed(used, 10)] == [*urgent.ids, *more.ids, *plain_ones.ids]


def test_alike_jobs_end_a_wait(used: Store) -> None:
    used.push(alike(2))
    while claimed(used, 2) or used.wait(0.01):
        pass
    assert not rung(used)

    used.push(alike(2))

    assert rung(used)


def test_a_collectors_queue_takes_no_alike_jobs(used: Store, inspect: Inspect) -> None:
    payload = Job(lane_id("default", "a"), "default", "default", b"1", "a", gather=Gather())
    used.push([payload])
    with pytest.raises(WrongQueue):
        used.push(alike(3))
    assert sum(inspect.counts().values()) == 1


def test_alike_jobs_into_a_new_queue_are_in_its_store(store: Store, inspect: Inspect) -> None:
    sent = alike(3)
    assert store.push(sent) == [None] * 3
    assert [queue.name for queue in inspect.queues()] == ["default"]
    assert claimed(store, 3) == list(sent)
