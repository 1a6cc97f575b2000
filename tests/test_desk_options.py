"""What the desk offers beyond a plain enqueue: uniqueness, expiry, errors in one's own words, and explanations."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import re
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Retry
from laneway.desk import options, synonyms
from laneway.errors import BadArguments, BadOption, ConfigError, DeclarationError, UnknownJob
from laneway.store.contract import ClaimRequest
from workbench import burst, info, until, wait, working


class TestUnique:
    def test_an_equal_job_that_has_not_started_stands_for_the_next(self, app: App) -> None:
        @app.task(unique=True)
        def work(order: int, *, loud: bool = False) -> None: ...

        first = work.enqueue(1)
        again, by_name, defaults, other = work.enqueue(1), work.enqueue(order=1), work.enqueue(1, loud=False), work.enqueue(2)
        assert (first.created, again.created, by_name.created, defaults.created, other.created) == (
            True,
            False,
            False,
            False,
            True,
        )
        assert {again.id, by_name.id, defaults.id} == {first.id}
        assert app.inspect.counts()["ready"] == 2

    def test_one_argument_may_be_what_counts(self, app: App) -> None:
        @app.task(unique="order")
        def work(order: int, note: str) -> None: ...

        assert work.enqueue(1, "a").created
        assert not work.enqueue(1, "b").created
        assert work.enqueue(2, "b").created

    def test_tasks_do_not_stand_in_for_each_other(self, app: App) -> None:
        @app.task(unique=True)
        def one(order: int) -> None: ...

        @app.task(unique=True)
        def two(order: int) -> None: ...

        assert one.enqueue(1).created
        assert two.enqueue(1).created

    def test_it_ends_when_the_job_starts_so_that_a_change_meanwhile_is_not_swallowed(self, app: App) -> None:
        started, go = threading.Event(), threading.Event()

        @app.task(unique=True)
        def work() -> None:
            started.set()
            wait(go)

        work.enqueue()
        with working(app, 1):
            wait(started)
            assert work.enqueue().created
            assert not work.enqueue().created
            go.set()
            until(lambda: sum(app.inspect.counts().values()) == 0)
        assert app.stats.totals()["processed"] == 2

    def test_bulk_counts_what_was_accepted(self, app: App) -> None:
        @app.task(unique=True)
        def work(order: int) -> None: ...

        assert work.enqueue_many([(1,), (2,), (1,), (3,)]) == 3

    @pytest.mark.parametrize("how", ["declared", "using"])
    def test_until_the_end_it_prevents_an_equal_one_while_it_runs(self, app: App, how: str) -> None:
        seen: list[bool | None] = []
        options: Any = {"unique_until": "end"}

        @app.task(unique="order", **(options if how == "declared" else {}))
        def work(order: int) -> None:
            seen.append(work.enqueue(order).created)
            seen.append(work.using(unique_until="claim").enqueue(order).created)

        (work if how == "declared" else work.using(**options)).enqueue(1)
        burst(app)

        assert seen == [False, False]
        assert work.enqueue(1).created

    def test_a_claim_in_place_of_the_end(self, app: App) -> None:
        seen: list[bool | None] = []

        @app.task(unique=True, unique_until="end")
        def work() -> None:
            if not seen:
                seen.append(work.using(unique_until="claim").enqueue().created)

        work.using(unique_until="claim").enqueue()
        burst(app, 1)  # the second one begins when the first has ended

        assert seen == [True]

    def test_until_when_is_checked(self, app: App) -> None:
        options: Any = {"unique_until": "start"}
        with pytest.raises(BadOption, match=r'unique_until: \'start\': use "claim" .* or "end"'):
            app.task(unique=True, **options)(lambda: None)
        with pytest.raises(DeclarationError, match="unique_until= goes with unique="):
            app.task(name="a", unique_until="end")(lambda: None)

        @app.task
        def work() -> None: ...

        with pytest.raises(BadOption, match="unique_until= goes with unique=, which is declared on the task"):
            work.using(unique_until="end").enqueue()
        with pytest.raises(BadOption, match="unique_until= goes with unique="):
            app.using(unique_until="end").enqueue("elsewhere", check=False)

    @pytest.mark.parametrize(
        ("unique", "said"), [("nothing", "names no parameter; there are: order"), (5, "name the parameter"), ("a b", "name")]
    )
    def test_what_cannot_count_is_refused_at_the_declaration(self, app: App, unique: Any, said: str) -> None:
        with pytest.raises((DeclarationError, BadOption), match=said):

            @app.task(unique=unique)
            def work(order: int) -> None: ...


class TestExpires:
    def test_a_job_that_could_not_start_in_time_is_cancelled(self, app: App) -> None:
        ran: list[int] = []

        @app.task(expires=600)
        def work(number: int) -> None:
            ran.append(number)

        with app.testing("fake") as jobs:
            late = work.enqueue(1)
            jobs.advance(601)
            in_time = work.enqueue(2)
            assert jobs.drain() == 1
            assert (late.state(), in_time.state()) == ("cancelled", "done")
            assert str(late.explain()).endswith("it was cancelled, or had expired")
        assert ran == [2]

    def test_it_counts_from_when_it_could_have_started(self, app: App) -> None:
        @app.task(expires=60)
        def work() -> None: ...

        with app.testing("fake") as jobs:
            job = work.using(run_after=3600).enqueue()
            jobs.advance(3650)
            jobs.drain()
            assert job.state() == "done"

    def test_a_job_that_has_started_does_not_expire(self, app: App) -> None:
        @app.task(expires=timedelta(seconds=60), retry=Retry(times=1, backoff=600))
        def work() -> None:
            raise ValueError

        with app.testing("fake") as jobs:
            work.enqueue()
            jobs.drain(errors="keep")
            jobs.advance(601)
            assert jobs.drain(errors="keep") == 1
            assert [job.state for job in jobs.jobs] == ["dead"]

    def test_one_enqueue_may_say_otherwise(self, app: App) -> None:
        @app.task(expires=10)
        def work() -> None: ...

        assert info(app, work.using(expires=100).enqueue()).expires_at - info(app, work.enqueue()).expires_at > timedelta(
            seconds=80
        )


class TestErrorsInOnesOwnWords:
    def test_what_is_stored_of_an_error_is_what_the_app_says(self) -> None:
        app = App("sqlite://", format_error=lambda error: f"oh no: {error}")

        @app.task(retry=Retry(times=0))
        def work() -> None:
            raise ValueError("broken")

        job = work.enqueue()
        burst(app)
        error = info(app, job).errors[-1]
        assert (error.kind, error.message, error.traceback) == ("ValueError", "broken", "oh no: broken")
        app.close()

    def test_a_format_that_raises_harms_nobody(self) -> None:
        def format_error(error: BaseException) -> str:
            raise RuntimeError("worse")

        app = App("sqlite://", format_error=format_error)

        @app.task(retry=Retry(times=0))
        def work() -> None:
            raise ValueError("broken")

        job = work.enqueue()
        burst(app)
        assert "in work" in info(app, job).errors[-1].traceback
        app.close()

    def test_a_long_traceback_is_whole_when_it_is_read(self, app: App) -> None:
        @app.task(retry=Retry(times=0))
        def dig(levels: int) -> None:
            if levels == 0:
                raise ValueError("x" * 1500)
            try:
                dig(levels - 1)
            except ValueError as error:
                raise ValueError("y" * 100) from error

        job = dig.enqueue(20)
        burst(app)
        assert "x" * 1500 in info(app, job).errors[-1].traceback


class TestExplain:
    def test_a_job_that_nobody_can_take(self, app: App) -> None:
        @app.task(queue="mail")
        def work() -> None: ...

        assert work.enqueue().explain().reasons[0] == "no worker runs: start one with laneway worker"

    def test_a_paused_queue_and_by_whom(self, app: App) -> None:
        @app.task(queue="mail")
        def work() -> None: ...

        job = work.enqueue()
        app.inspect.pause("mail", by="ada")
        assert job.explain().reasons[0].startswith("queue mail has been paused by ada for ")

    def test_a_job_that_waits_behind_another(self, app: App) -> None:
        started, go = threading.Event(), threading.Event()

        @app.task(lane="key")
        def work(key: str) -> None:
            started.set()
            wait(go)

        head, second, third = (work.enqueue("a") for _ in range(3))
        with working(app, 2):
            wait(started)
            until(lambda: third.state() == "blocked")
            said = third.explain().reasons[0]
            assert said.startswith(f"it waits in lane a behind job {head.id} ({work.name}), which ")
            assert said.endswith("with 1 more before it")
            assert "it is held by worker" in str(head.explain()) or "it has run on worker" in str(head.explain())
            assert second.explain().state == "blocked"
            go.set()

    def test_a_queue_that_nobody_serves_and_a_task_that_nobody_knows(self, app: App) -> None:
        @app.task(queue="mail")
        def work() -> None: ...

        job = work.enqueue()
        foreign = app.enqueue("elsewhere.task", check=False)
        with working(app, 1, queues=["default"]):
            until(app.inspect.workers)
            assert job.explain().reasons[0] == "no worker serves queue mail: the 1 that run serve others"
            # It is claimed now and then, and put back.
            until(lambda: "knows the task elsewhere.task" in str(foreign.explain()), "the explanation")

    def test_what_is_due_later_and_why(self, app: App) -> None:
        @app.task(retry=Retry(times=3, backoff=500))
        def work() -> None:
            raise ValueError("broken")

        later = work.using(run_after=90).enqueue()
        assert later.explain().reasons[0].startswith("it is due in 1m ")
        failed = work.enqueue()
        burst(app)
        said = failed.explain().reasons[0]
        assert said.startswith("attempt 1 failed (ValueError: broken); the next one is due in 8m ")

    def test_one_that_may_have_run_before_since_its_worker_was_lost(self, app: App) -> None:
        @app.task
        def work() -> None: ...

        job = work.enqueue()
        assert "lost" not in str(job.explain())
        for times in ("", "2 times, last "):
            app.store.exchange("w", [], [ClaimRequest("default", 1)], 1)
            app.store.recover("w", "its worker ended with signal SIGKILL")
            said = job.explain().reasons[-1]
            assert said.startswith(f"a claim of it was lost {times}")
            assert said.endswith(
                " ago (its worker ended with signal SIGKILL), so it may have run before; no attempt counts for that"
            )

    def test_a_dead_one_and_one_that_never_was(self, app: App) -> None:
        @app.task(retry=Retry(times=0))
        def work() -> None:
            raise ValueError("broken")

        job = work.enqueue()
        burst(app)
        assert "after attempt 1: ValueError: broken" in job.explain().reasons[0]
        with pytest.raises(UnknownJob, match="never was"):
            app.inspect.explain("nothing")


class TestAllThatMatch:
    def test_actions_on_all_that_match(self, app: App) -> None:
        @app.task(queue="mail", retry=Retry(times=0))
        def fail(number: int) -> None:
            raise ValueError(f"number {number}")

        fail.enqueue_many((n,) for n in range(10))
        burst(app)
        assert app.inspect.count("dead", error="number 3") == 1
        assert app.inspect.retry_all("dead", error="number 3") == 1
        assert app.inspect.delete_all("dead", queue="mail") == 9
        assert app.inspect.kill_all(queue="mail") == 1
        assert app.inspect.retry_all("dead") == 1
        assert app.inspect.reschedule_all(3600, "ready") == 1
        assert app.inspect.counts()["scheduled"] == 1
        assert app.inspect.cancel_all(task=fail.name) == 1
        assert sum(app.inspect.counts().values()) == 0

    def test_a_state_that_is_none_is_refused(self, app: App) -> None:
        with pytest.raises(ConfigError, match='Did you mean "dead"'):
            app.inspect.delete_all("daed")

    def test_clearing_a_queue_leaves_what_is_dead(self, app: App) -> None:
        @app.task(queue="mail")
        def work() -> None: ...

        work.enqueue_many([()] * 5)
        app.inspect.kill(work.enqueue().id)
        assert app.inspect.clear("mail") == 5
        assert app.inspect.counts()["dead"] == 1


class TestDiscovery:
    @pytest.fixture
    def shop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        name = f"shop_{tmp_path.name}".replace("-", "_")
        for file in ("mail", "billing/cards"):
            path = tmp_path / name / "tasks" / f"{file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(f"from {name}.app import app\n\n@app.task\ndef work_{path.stem}() -> None: ...\n")
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "app.py").write_text(f"from laneway import App\napp = App('sqlite://', imports=['{name}.tasks.*'])\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        yield name
        for module in [module for module in sys.modules if module.startswith(name)]:
            del sys.modules[module]

    def test_all_modules_of_a_package(self, shop: str) -> None:
        app = importlib.import_module(f"{shop}.app").app
        assert sorted(app.tasks) == [f"{shop}.tasks.billing.cards.work_cards", f"{shop}.tasks.mail.work_mail"]

    def test_a_module_is_no_package(self) -> None:
        with pytest.raises(ConfigError, match=r'leave out the "\.\*"'):
            _ = App("sqlite://", imports=["json.decoder.*"]).tasks


# -- the words of other libraries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("countdown", "run_after=SECONDS"), ("eta", "run_after=DATETIME"), ("delay", "run_after="),
        ("max_retries", "Retry(times=…)"), ("bind", "current_job()"), ("job_timeout", "timeout=SECONDS"),
        ("time_limit", "timeout=SECONDS"),
        ("result_ttl", "keep_result="), ("task_id", "id=…"), ("autoretry_for", "Retry(on=…)"),
        ("store_results", "keep_result=SECONDS"), ("depends_on", "at the end of the first"), ("meta", "draft.headers"),
        ("on_retry_exhausted", "@app.on_death"), ("args", "enqueue(…)"),
    ],
)  # fmt: skip
def test_an_option_of_another_library_is_named_as_it_is_here(app: App, option: str, here: str) -> None:
    given: dict[str, Any] = {option: 5}
    for declare in (app.task, app.using, app.collector):
        with pytest.raises(BadOption) as caught:
            declare(**given)
        assert f' has no option "{option}". Here it is ' in str(caught.value)
        assert here in str(caught.value)
        assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "here"),
    [
        ("queue", r"got an unexpected keyword argument 'queue'. Options are given before: TASK.using\(queue=…\).enqueue\(…\)$"),
        ("countdown", r"argument 'countdown'. Here it is run_after=SECONDS in TASK.using\(…\)\.$"),
        ("nonsense", r"argument 'nonsense'$"),
    ],
)
def test_an_option_among_the_arguments_of_a_call_is_told_where_it_belongs(app: App, argument: str, here: str) -> None:
    @app.task
    def work(a: int) -> None: ...

    given: dict[str, Any] = {argument: 5}
    for enqueue in (work.enqueue, functools.partial(app.enqueue, work.name)):
        with pytest.raises(BadArguments, match=here):
            enqueue(1, **given)


def test_every_option_that_is_named_is_one() -> None:
    words = {word for here in synonyms._OPTIONS.values() for word in re.findall(r"(\w+)=", here)}
    known = {*options._JOB, *options._TASK, *inspect.signature(Retry).parameters, *inspect.signature(App).parameters, "minutes"}
    assert words - known == set()
    assert synonyms._OPTIONS.keys() & {*options._JOB, *options._TASK, *options._COLLECTOR} == set()


@pytest.mark.parametrize(("method", "here"), synonyms.MISSING_OF_TASKS.items())
def test_a_method_of_another_library_is_named_as_it_is_here(app: App, method: str, here: str) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(AttributeError) as caught:
        getattr(work, method)
    assert str(caught.value) == f"'Task' object has no attribute {method!r}: here it is TASK.{here}"
    assert hasattr(work, here.partition("(")[0])


@pytest.mark.parametrize("method", synonyms.MISSING_OF_APPS)
def test_a_method_of_another_librarys_app_is_named_as_it_is_here(app: App, method: str) -> None:
    with pytest.raises(AttributeError, match="here it is"):
        getattr(app, method)


def test_other_names_are_just_not_there(app: App) -> None:
    @app.task
    def work() -> None: ...

    for thing in (work, app):
        assert not hasattr(thing, "nonsense")
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            thing.nonsense  # type: ignore[union-attr] # noqa: B018
    assert {"enqueue", "delay", "send_task"} & {*dir(work), *dir(app)} == {"enqueue"}
    copied = copy.copy(work)
    assert copied.name == work.name
