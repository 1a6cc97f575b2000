"""The statistics of the contract, for every store: what is recorded is there once, on every level, for as long as it is kept."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from conftest import Bench, Clock, often
from laneway.core.buckets import OTHERS, Bucket, Counts, Figures, Gauge, Report, step_of
from laneway.core.error_groups import MOST_FAULTS, Fault, fault_of
from laneway.core.instant import as_datetime
from laneway.core.job import Gather, Job, lane_id
from laneway.core.outcome import ErrorInfo
from laneway.errors import StoreError
from laneway.ids import new_id
from laneway.store.contract import Store
from laneway.store.inspection import Inspect
from laneway.store.statistics import DAY, EVER, KEEP, LEVELS, MINUTE, TEN, Level, begin_of

SECOND = 1_000_000
KEY = ("default", "app.task")


def job(task: str = "app.task", queue: str = "default", **more: object) -> Job:
    return Job(new_id(), task, queue, b"[[1],{}]", **more)  # type: ignore[arg-type]


def report(number: int = 1, worker: str = "w", done: int = 1, **more: object) -> Report:
    figures = Figures(processed=done, run_time=1000 * done, runs={step_of(1000): done}, waits={step_of(9): done})
    return Report(worker=worker, number=number, series={KEY: figures}, **more)  # type: ignore[arg-type]


def counted(inspect: Inspect, level: Level = TEN, number: int = 100, name: str = "processed") -> dict[int, int]:
    """The buckets of a level in which something was counted, by when they began."""
    kept = inspect.figures(level, number, "total")
    sums = {at: sum(getattr(one, name) for one in bucket.series.values()) for at, bucket in kept.buckets.items()}
    return {at: total for at, total in sums.items() if total}


def only(bucket: Bucket) -> Figures:
    [figures] = bucket.series.values()
    assert isinstance(figures, Figures)
    return figures


class TestArriving:
    def test_what_is_pushed_is_counted_by_queue_and_task(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.push([job("a"), job("b"), job("a", "other"), job("a")])
        store.push([job("a")])
        store.push([job("c", lane="l", priority=3), job("c", lane="l", unique="k", expires=5 * SECOND)])

        kept = inspect.figures(TEN, 1)

        arrived = {key: one.enqueued for key, one in kept.buckets[begin_of(clock(), TEN)].series.items()}
        assert arrived == {("default", "a"): 3, ("default", "b"): 1, ("other", "a"): 1, ("default", "c"): 2}

    def test_what_was_there_already_is_not_counted(self, store: Store, inspect: Inspect) -> None:
        one, equal = job(), job(unique="k")
        store.push([one, equal])
        store.push([one, job(unique="k"), job()])

        assert list(counted(inspect, name="enqueued").values()) == [3]
        assert inspect.totals()["enqueued"] == 3

    def test_many_alike_are_counted(self, store: Store, inspect: Inspect) -> None:
        for _ in range(3):
            store.push([job(lane="l", expires=5 * SECOND) for _ in range(700)])

        assert list(counted(inspect, name="enqueued").values()) == [2100]

    def test_of_a_collector_payloads_are_counted(self, store: Store, inspect: Inspect) -> None:
        for number in range(3):
            store.push([Job(lane_id("q", "a"), "collect", "q", b"%d" % number, "a", gather=Gather()) for _ in range(2)])

        assert list(counted(inspect, name="enqueued").values()) == [6]

    def test_more_tasks_than_the_books_carry_are_counted_all(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for _ in range(3):
            store.push([job(f"task-{n}") for n in range(50)])
            clock.advance(7)

        by_task = Counter[str]()
        for bucket in inspect.figures(TEN, 10).buckets.values():
            by_task.update({task: one.enqueued for (_, task), one in bucket.series.items()})
        assert by_task == {f"task-{n}": 3 for n in range(50)}

    def test_without_any_worker_nothing_is_lost(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for _ in range(200):
            store.push([job()])
            clock.advance(600)

        clock.advance(3600)
        assert sum(counted(inspect, DAY, 10, "enqueued").values()) == 200
        store.record(report())
        assert sum(counted(inspect, DAY, 10, "enqueued").values()) == 200


class TestRecording:
    def test_a_report_is_in_the_stretch_of_the_stores_now(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.record(report(done=5))

        for level in LEVELS:
            assert counted(inspect, level) == {begin_of(clock(), level): 5}
        figures = only(inspect.figures(TEN, 1).buckets[begin_of(clock(), TEN)])
        assert (figures.run_time, figures.runs, figures.waits) == (5000, {step_of(1000): 5}, {step_of(9): 5})

    def test_a_report_that_is_told_again_counts_once(self, store: Store, inspect: Inspect) -> None:
        error = Fault("f", "ValueError", "no", "", 2, ErrorInfo("ValueError", "no"))
        told = report(3, counters={"crashed": 1}, faults=(error,), learned={"t": (1, 2, 3, 4, 5, 6)}, gauge=Gauge(1, 2, 3, 4, 5))

        for _ in range(3):
            store.record(told)
        store.record(report(2))  # and so does an older one

        assert list(counted(inspect).values()) == [1]
        assert inspect.totals()["crashed"] == 1
        assert [group.count for group in inspect.errors(10)] == [2]
        assert store.learned() == {"t": (1, 2, 3, 4, 5, 6)}

    def test_it_is_so_for_each_worker_and_in_another_stretch(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.record(report(1, "v"))
        store.record(report(1, "w"))
        clock.advance(45)
        store.record(report(1, "v"))
        store.record(report(2, "w"))

        assert sum(counted(inspect).values()) == 3

    def test_without_a_worker_each_report_counts(self, store: Store, inspect: Inspect) -> None:
        for _ in range(2):
            store.record(Report(counters={"crashed": 1, "other": 2}))

        totals = inspect.totals()
        assert (totals["crashed"], totals["other"]) == (2, 4)

    def test_who_has_not_reported_for_a_day_is_forgotten(self, bench: Bench) -> None:
        store, clock = bench.store, bench.clock
        for n in range(50):
            store.record(report(1, f"w{n}"))
        clock.advance(24 * 3600 + 30)
        store.record(report(2, "w0"))
        clock.advance(30)
        store.record(report(3, "w0"))

        store.record(report(1, "w1"))  # it is a new one, as far as anybody knows

        assert sum(counted(bench.inspect, DAY, 3).values()) == 53

    def test_a_report_without_figures_is_one_too(self, store: Store, inspect: Inspect) -> None:
        store.record(Report(worker="w", number=1))

        assert counted(inspect) == {}


class TestRollingUp:
    def test_a_stretch_goes_into_its_minute_and_its_day_once(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        clock.now = 20 * DAY - 25 * SECOND  # the last 30 s of a day
        begin = clock.now
        for number in range(40):
            store.push([job()])
            store.record(report(number + 1))
            clock.advance(3)

        for name in ("processed", "enqueued"):
            expected: dict[Level, Counter[int]] = {level: Counter() for level in LEVELS}
            for number in range(40):
                for level in LEVELS:
                    expected[level][begin_of(begin + number * 3 * SECOND, level)] += 1
            for level in LEVELS:
                assert counted(inspect, level, name=name) == expected[level]

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("moment", [-1, 0, 1])
    def test_the_microsecond_of_a_boundary(self, bench: Bench, level: Level, moment: int) -> None:
        """One before it is in the old bucket, whoever closes, and one after it in the new."""
        bench.clock.now = 30 * DAY + moment
        at = bench.clock.now
        bench.store.push([job()])
        bench.store.record(report(1))

        expected = {begin_of(at, level): 1}
        for passed in (0.0, 9.0, 10.0, 11.0, 19.999_998, 0.000_001, 0.000_001, 0.000_001, 30.0):
            bench.clock.advance(passed)
            bench.store.record(Report(worker="other", number=bench.clock.now, gauge=Gauge(samples=1)))
            assert counted(bench.inspect, level) == expected
            assert counted(bench.inspect, level, name="enqueued") == expected

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(often(2, 40)))
    def test_all_levels_say_what_was_counted_and_forget_what_is_old(self, bench: Bench, seed: int) -> None:
        """Pushes, reports, leaps from milliseconds to months, at random, beside a count of the same."""
        chance, number = random.Random(seed), 0  # noqa: S311 - chance that can be had again
        seen: dict[Level, dict[int, Counter[tuple[str, str]]]] = {level: defaultdict(Counter) for level in LEVELS}
        bench.clock.now = 400 * DAY + chance.randrange(DAY)
        for _ in range(120):
            leap = chance.choice((0.003, 1.0, 1.0, 9.5, 10.0, 61.0, 3000.0, 86_400.0, 86_400.0 * 40))
            bench.clock.advance(leap * chance.random() * 1.2)
            what = chance.choice(("enqueued", "processed", "failed"))
            task, times = chance.choice("ab"), chance.randint(1, 5)
            if what == "enqueued":
                bench.store.push([job(task) for _ in range(times)])
            else:
                number += 1
                figures = Figures(processed=times) if what == "processed" else Figures(failed=times)
                told = Report(worker="w", number=number, series={("default", task): figures})
                for _ in range(chance.choice((1, 1, 2))):
                    bench.store.record(told)
            for level in LEVELS:
                seen[level][begin_of(bench.clock.now, level)][task, what] += times
        promised = {TEN: 100, MINUTE: 24 * 60, DAY: 365, EVER: 1}
        for level in LEVELS:
            first = begin_of(bench.clock.now, level) - (promised[level] - 1) * level
            expected = {at: counts for at, counts in seen[level].items() if at >= first}
            found: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
            for at, bucket in bench.inspect.figures(level, promised[level]).buckets.items():
                for (_, task), one in bucket.series.items():
                    for what in ("enqueued", "processed", "failed"):
                        if getattr(one, what):
                            found[at][task, what] += getattr(one, what)
            assert found == expected

    def test_a_year_of_days_is_kept_and_no_more(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        numbers = [*range(40), *range(40, 399, 9), 399]  # days: all of them where a year ends, some of the others
        for number in numbers:
            clock.now = (1000 + number) * DAY
            store.record(report(number + 1, done=number + 1))
        clock.advance(60)

        found = counted(inspect, DAY, 366)

        assert list(found.values()) == [number + 1 for number in numbers if number >= 34]
        assert min(counted(inspect, DAY, 2000)) >= begin_of(clock() - KEEP[DAY], DAY)  # what is older is gone
        assert len(counted(inspect, MINUTE, 10_000)) <= 2
        assert len(counted(inspect, TEN, 10_000)) <= 2

    def test_the_totals_of_queues_and_tasks_never_shrink(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        clock.now = 1000 * DAY
        before: dict[tuple[str, str], Counts] = {}
        for number in range(1, 61):
            store.push([job("app.task" if number % 2 else "app.other")])
            store.record(report(number, f"w{number % 3}", done=number))
            clock.advance(random.Random(number).choice((0.1, 1.0, 9.0, 25.0, 3600.0, 86_400.0 * 50)))  # noqa: S311
            [bucket] = inspect.figures(EVER, 1).buckets.values()
            after = dict(bucket.series)
            for key, old in before.items():
                assert after[key].enqueued >= old.enqueued
                assert after[key].processed >= old.processed
            before = after

        assert {key: one.enqueued for key, one in before.items()} == {KEY: 30, ("default", "app.other"): 30}
        done = before[KEY]
        assert isinstance(done, Figures)
        assert (done.processed, done.run_time, done.runs) == (1830, 1830_000, {step_of(1000): 1830})
        assert sum(counted(inspect, DAY, 366).values()) < 1830, "days were dropped meanwhile"

    def test_another_process_and_a_restart_find_all_of_it(self, bench: Bench) -> None:
        bench.store.push([job()])
        bench.store.record(report(1))
        if getattr(bench.store, "database", None) is not None and bench.store.database.path is None:  # type: ignore[attr-defined]
            pytest.skip("what is in memory ends with its process")
        bench.store.close()
        bench.clock.advance(30)

        bench.store.record(report(2))

        assert sum(counted(bench.inspect).values()) == 2
        assert sum(counted(bench.inspect, DAY).values()) == 2
        assert sum(counted(bench.inspect, DAY, name="enqueued").values()) == 1

    def test_more_tasks_than_a_bucket_tells_apart_are_counted_together(self, store: Store, inspect: Inspect) -> None:
        series = {("default", f"t{n}"): Figures(processed=1) for n in range(1100)}
        store.record(Report(worker="w", number=1, series=series))

        [bucket] = inspect.figures(TEN, 1).buckets.values()

        assert len(bucket.series) == 1001
        assert bucket.series["default", OTHERS] == Figures(processed=100)


class TestGauges:
    def test_workers_are_added_up_and_each_ones_samples_are_averaged(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        store.record(Report(worker="v", number=1, gauge=Gauge(samples=2, busy=6, slots=5, rss=100, cpu=0.5)))
        store.record(Report(worker="v", number=2, gauge=Gauge(samples=2, busy=2, slots=5, rss=300, cpu=0.5)))
        store.record(Report(worker="w", number=1, gauge=Gauge(samples=1, busy=1, slots=7, rss=1000, cpu=0.25)))
        clock.advance(10)
        store.record(Report(worker="w", number=2, gauge=Gauge(samples=1, busy=5, slots=7, rss=1000, cpu=0.25)))

        first, second = inspect.figures(TEN, 2).buckets.values()
        assert (first.gauges.workers, first.gauges.running, first.gauges.memory, first.gauges.cpu) == (2, 3.0, 1300, 1.25)
        assert (second.gauges.workers, second.gauges.running) == (1, 5.0)
        clock.advance(120)
        store.record(Report(worker="w", number=3))
        [minute] = inspect.figures(MINUTE, 4).buckets.values()
        assert (minute.gauges.stretches, minute.gauges.running, minute.gauges.slots) == (2, 8.0, 19)


class TestFaults:
    def fault(self, name: str, count: int = 1, job: str = "j") -> Fault:
        error = ErrorInfo("ValueError", f"no {name}!", "Traceback\n" + "x" * 5000)
        return Fault(name, "ValueError", "no", "/app.py:1 in f", count, error, job, "app.task", "default")

    def test_a_fault_is_counted_with_its_first_and_last_time_and_its_last_sample(
        self, store: Store, inspect: Inspect, clock: Clock
    ) -> None:
        begin = clock()
        store.record(report(1, faults=(self.fault("a", 2, "first"),)))
        clock.advance(50)
        store.record(report(2, faults=(self.fault("a", 3, "last"),)))

        [group] = inspect.errors(10)

        assert (group.id, group.kind, group.message, group.place, group.count) == ("a", "ValueError", "no", "/app.py:1 in f", 5)
        assert (group.first_at, group.last_at) == (as_datetime(begin), as_datetime(begin + 50 * SECOND))
        assert (group.job, group.task, group.queue, group.error.message) == ("last", "app.task", "default", "no a!")
        assert group.error.traceback == "Traceback\n" + "x" * 5000

    def test_the_last_seen_comes_first(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        for number, name in enumerate("abcab"):
            store.record(report(number + 1, faults=(self.fault(name),)))
            clock.advance(1)

        assert [group.id for group in inspect.errors(2)] == ["b", "a"]
        assert [group.count for group in inspect.errors(100)] == [2, 2, 1]

    def test_the_one_that_was_not_seen_for_longest_goes_first(self, store: Store, inspect: Inspect, clock: Clock) -> None:
        kinds = [f"f{number:03}" for number in range(MOST_FAULTS + 10)]
        seen = [kinds[number : number + 1] for number in range(20)] + [kinds[n : n + 50] for n in range(20, len(kinds), 50)]
        for number, some in enumerate(seen):
            store.record(report(number + 1, faults=(*map(self.fault, some), self.fault("often"))))
            clock.advance(1)

        found = inspect.errors(10_000)

        assert len(found) == MOST_FAULTS
        assert min(group.id for group in found) == "f011"
        assert {group.id: group.count for group in found}["often"] == len(seen)

    def test_a_forgotten_one_begins_anew(self, store: Store, inspect: Inspect) -> None:
        store.record(report(1, faults=(self.fault("a", 7), self.fault("b"))))

        assert inspect.forget_error("a")
        assert not inspect.forget_error("a")

        assert [group.id for group in inspect.errors(10)] == ["b"]
        store.record(report(2, faults=(self.fault("a", 2),)))
        assert {group.id: group.count for group in inspect.errors(10)} == {"a": 2, "b": 1}

    def test_text_of_any_kind_is_kept(self, store: Store, inspect: Inspect) -> None:
        error = ErrorInfo("Ärger", "☃ \x00 'a'\n" * 100, "\u2028" * 100)
        store.record(report(1, faults=(fault_of(error, "j", "t", "q"),)))

        [group] = inspect.errors(1)
        assert (group.kind, group.error.message, group.error.traceback) == (error.kind, error.message, error.traceback)


class TestLearned:
    def test_what_is_learned_is_added_up(self, store: Store) -> None:
        assert store.learned() == {}
        store.record(Report(worker="w", number=1, learned={"a": (1, 2, 3, 4, 5, 6), "b": (0.1, 0, 0, 0, 0, 0)}))
        store.record(Report(worker="v", number=1, learned={"a": (1, 0.5, 0, 0, 0, 1e9)}))

        assert store.learned() == {"a": (2, 2.5, 3, 4, 5, 6 + 1e9), "b": (0.1, 0, 0, 0, 0, 0)}


def test_garbage_in_a_bucket_harms_no_other(bench: Bench) -> None:
    bench.store.record(report(1))
    bench.clock.advance(60)
    bench.store.record(report(2))  # closes the first
    bench.clock.advance(60)
    spoil(bench, begin_of(1_000_000_000, TEN))
    bench.store.record(report(3))
    bench.clock.advance(60)
    bench.store.record(report(4))

    assert sum(counted(bench.inspect, MINUTE).values()) == 4
    assert sum(counted(bench.inspect, TEN, 1000).values()) == 3


def spoil(bench: Bench, at: int) -> None:
    """Write nonsense over a bucket of ten seconds."""
    database = getattr(bench.store, "database", None)
    if database is not None:
        with database.writing as connection:
            changed = connection.execute("update laneway_figures set figures = x'ff00' where level = ? and at = ?", (TEN, at))
            assert changed.rowcount == 1
    else:
        wire: Any = getattr(bench.store, "wire")  # noqa: B009 - the others have one
        if hasattr(wire, "lend"):
            with wire.lend() as line:
                line.ask("update laneway.figures set figures = '\\xff00' where level = $1 and at = $2", (TEN, at))
            return
        assert wire.ask(("HSET", "laneway:{store}:figures:10", at // TEN, b"\xff\x00")) == 0


def test_an_error_leaves_nothing_of_a_report(store: Store, inspect: Inspect) -> None:
    with pytest.raises((StoreError, ValueError, TypeError, OverflowError)):
        store.record(report(1, counters={"x": 1 << 80}))

    store.record(report(1))

    assert isinstance(only(next(iter(inspect.figures(TEN, 1).buckets.values()))), Counts)
    assert list(counted(inspect).values()) == [1]
