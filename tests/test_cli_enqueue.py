"""`laneway enqueue`: one job, or one for each line of a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clidesk import Desk, open_desk
from laneway import App, Retry
from laneway.worker import Worker


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


def test_arguments_are_json_where_they_can_be_read_so(desk: Desk) -> None:
    id_ = desk.run("enqueue", "app.add", "1", "--kwarg", "b=41").strip()
    job = desk.app.inspect.job(id_)
    assert job is not None
    assert (job.args, job.kwargs) == ([1], {"b": 41})
    id_ = desk.run("enqueue", "app.send", "ada", "--kwarg", 'template="42"').strip()
    job = desk.app.inspect.job(id_)
    assert job is not None
    assert (job.args, job.kwargs) == (["ada"], {"template": "42"})
    assert desk.run("enqueue", "app.add", "--", "-5", "2")


def test_every_option_reaches_the_job(desk: Desk) -> None:
    desk.run("enqueue", "app.add", "1", "--in", "5m", "--queue", "vip", "--priority", "7", "--id", "one")
    desk.run("enqueue", "app.add", "1", "--at", "2030-01-01T00:00Z", "--lane", "x", "--id", "two")
    one, two = desk.json("jobs", "show", "one"), desk.json("jobs", "show", "two")
    assert (one["state"], one["queue"], one["priority"]) == ("scheduled", "vip", 7)
    assert (two["due_at"], two["lane"]) == ("2030-01-01T00:00:00+00:00", "x")


def test_an_id_that_is_there_is_not_added_again(desk: Desk) -> None:
    assert desk.json("enqueue", "app.add", "1", "--id", "one") == {"id": "one", "created": True}
    done = desk.call("enqueue", "app.add", "1", "--id", "one")
    assert (done.stdout, done.stderr) == ("one\n", "it, or an equal one, is in the store already: nothing was added\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["app.ad", "1"], 'no task named "app.ad" is in the app. Did you mean "app.add"?'),
        (["app.add"], "missing a required argument: 'a'"),
        (["app.add", "x"], 'app.add(a: int, b: int = 1) -> int: argument "a": Expected `int`, got `str`'),
        (["app.send", "42"], "for the text 42 write '\"42\"'"),
        (["app.add", "1", "--kwarg", "c=1"], "unexpected keyword argument 'c'"),
        (["app.add", "1", "--kwarg", "c"], "--kwarg c: write NAME=VALUE"),
        (["app.add", "1", "--kwarg", "b=1", "--kwarg", "b=2"], "--kwarg b is given twice"),
        (["app.add", "-5"], "-5 looks like an option: put -- before"),
        (["app.add", "1", "--priority", "101"], "use a whole number from -100"),
        (["app.add", "1", "--queue", "a b"], "is not a name for a queue"),
        (["app.add", "1", "--in", "5 parsecs"], "30, 30s, 5m, 2h, 1d"),
        (["app.add", "1", "--timeout", "5"], "--timeout goes with --wait"),
        (["app.add", "1", "--from", "-"], "--from gives the arguments of many jobs"),
        (["app.add", "--from", "nowhere.jsonl"], "nowhere.jsonl"),
        (["app.add", "NaN"], "Expected `int`, got `str`"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_sent(desk: Desk, arguments: list[str], said: str) -> None:
    assert said in desk.mistake("enqueue", *arguments)
    assert sum(desk.app.inspect.counts().values()) == 0


def test_without_an_app_a_store_takes_any_task(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    desk.run("enqueue", "far.away", "1", "--kwarg", "x=y", "--queue", "q", "--id", "one", "--store", desk.url)
    (job,) = desk.json("jobs", "list", "--store", desk.url)
    assert (job["task"], job["args"], job["kwargs"], job["queue"]) == ("far.away", [1], {"x": "y"}, "q")


def test_a_task_that_the_app_does_not_know_is_sent_if_asked(desk: Desk) -> None:
    assert "--no-check" in desk.mistake("enqueue", "far.away", "--store", desk.url)
    desk.run("enqueue", "far.away", "--no-check")
    assert [job["task"] for job in desk.json("jobs", "list")] == ["far.away"]


# -- waiting -----------------------------------------------------------------------------------------------------


def work_meanwhile(desk: Desk) -> threading.Thread:
    """Run what comes, from another thread and through another app, as another process would."""
    app = App(desk.url)

    @app.task(name="app.add", keep_result=60)
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(name="app.send", queue="mail")
    def send(to: str) -> None: ...

    @app.task(name="app.charge", queue="billing", lane="customer", retry=Retry(times=0))
    def charge(customer: str) -> None:
        raise ValueError("no money")

    def work() -> None:
        while app.stats.totals()["enqueued"] < 1:
            threading.Event().wait(0.01)
        Worker(app, 1).run(burst=True)
        app.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("arguments", "document"),
    [(["app.add", "1", "41"], {"state": "done", "result": 42}), (["app.send", "ada"], {"state": "done", "result": None})],
)
def test_waiting_prints_the_result(desk: Desk, arguments: list[str], document: dict[str, object]) -> None:
    thread = work_meanwhile(desk)
    seen = desk.json("enqueue", *arguments, "--wait", "--timeout", "20", "--id", "one")
    thread.join()
    assert seen == {"id": "one", "created": True, **document}


def test_waiting_for_a_job_that_dies_is_code_1(desk: Desk) -> None:
    thread = work_meanwhile(desk)
    done = desk.call("enqueue", "app.charge", "ada", "--wait", "--timeout", "20", "--id", "one")
    thread.join()
    assert (done.exit_code, done.stdout) == (1, "one\n")
    assert done.stderr == "laneway: one is dead: ValueError: no money\n"


def test_waiting_too_long_is_code_1_and_the_job_goes_on(desk: Desk) -> None:
    done = desk.call("enqueue", "app.add", "1", "--wait", "--timeout", "50ms", "--id", "one")
    assert (done.exit_code, done.stdout) == (1, "one\n")
    assert done.stderr == "laneway: one is ready after 0.05 s: it goes on\n"


# -- files -------------------------------------------------------------------------------------------------------


def test_a_file_becomes_a_job_for_each_line(desk: Desk) -> None:
    (desk.folder / "rows.jsonl").write_text('[1]\n{"a": 2, "b": 3}\n\n[4, 5]\n')
    assert desk.run("enqueue", "app.add", "--from", "rows.jsonl", "--queue", "vip") == "3 jobs of app.add enqueued\n"
    found = desk.json("jobs", "list", "--queue", "vip")
    assert [(job["args"], job["kwargs"]) for job in found] == [([1], {}), ([], {"a": 2, "b": 3}), ([4, 5], {})]


def test_stdin_in_chunks(desk: Desk) -> None:
    rows = "".join(f"[{number}]\n" for number in range(2500))
    done = desk.call("enqueue", "app.add", "--from", "-", "--json", input=rows)
    assert json.loads(done.stdout) == {"task": "app.add", "accepted": 2500}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('["x"]', 'argument "a": Expected `int`, got `str`'),
        ("[1", "it is not JSON"),
        ("7", "7 is neither a list of arguments nor an object"),
        ("[1, 2, 3]", "too many positional arguments"),
    ],
)
def test_a_bad_line_is_named_and_nothing_after_it_is_sent(desk: Desk, bad: str, said: str) -> None:
    rows = "".join(f"[{number}]\n" for number in range(1200))
    line = desk.mistake("enqueue", "app.add", "--from", "-", input=f"{rows}{bad}\n[9999]\n")
    assert line.startswith("line 1201: ")
    assert said in line
    assert line.endswith("1,200 jobs of the lines before it enqueued, nothing after it: go on with line 1201")
    assert desk.app.inspect.counts()["ready"] == 1200


def test_a_file_that_is_no_text_is_one_line(desk: Desk) -> None:
    (desk.folder / "rows.jsonl").write_bytes(b"[1]\n\xff\xfe\n")
    assert "UTF-8" in desk.mistake("enqueue", "app.add", "--from", "rows.jsonl")


def test_a_bar_is_shown_on_a_terminal(desk: Desk) -> None:
    (desk.folder / "rows.jsonl").write_text("[1]\n" * 1500)
    assert "enqueueing" in desk.paint("enqueue", "app.add", "--from", "rows.jsonl", until="1,500 jobs")
