"""`laneway jobs`: finding jobs, looking at one, acting on one or many."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clidesk import Desk, open_desk
from laneway.cli import command


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


@pytest.fixture
def busy(desk: Desk) -> Desk:
    """Two dead charges, one job that retries, three letters, and one for later."""
    for customer in ("ada", "bob"):
        desk.task("charge").using(id=f"charge-{customer}").enqueue(customer, 7)
    desk.task("flaky").using(id="flaky").enqueue()
    desk.work()
    for number in range(3):
        desk.task("send").using(id=f"mail-{number}").enqueue("ada@example.com", template="bye")
    desk.task("add").using(run_after=600, id="later").enqueue(1)
    return desk


# -- list --------------------------------------------------------------------------------------------------------


def test_a_list_in_a_pipe_has_every_column_whole(busy: Desk) -> None:
    head, *rows = [line.split() for line in busy.run("jobs", "list").splitlines()]
    assert head == ["id", "state", "task", "queue", "lane", "attempt", "due", "payload", "last", "error"]
    assert [row[:2] for row in rows] == [
        ["charge-ada", "dead"], ["charge-bob", "dead"], ["flaky", "retrying"],
        ["mail-0", "ready"], ["mail-1", "ready"], ["mail-2", "ready"], ["later", "scheduled"],
    ]  # fmt: skip
    assert rows[0][4:6] == ["ada", "1"]
    assert rows[0][-3:] == ["ValueError:", "no", "money"]


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["--state", "dead"], ["charge-ada", "charge-bob"]),
        (["--queue", "mail", "--newest"], ["mail-2", "mail-1", "mail-0"]),
        (["--task", "app.flaky"], ["flaky"]),
        (["--lane", "bob"], ["charge-bob"]),
        (["--error", "timed out"], ["flaky"]),
        (["--failing"], ["flaky"]),
        (["--queue", "mail", "--after", "mail-0"], ["mail-1", "mail-2"]),
        (["--state", "running"], []),
    ],
)
def test_filters_and_order(busy: Desk, filters: list[str], ids: list[str]) -> None:
    assert [job["id"] for job in busy.json("jobs", "list", *filters)] == ids


def test_a_page_says_how_to_get_the_next_one(busy: Desk) -> None:
    found: list[str] = []
    arguments = ["jobs", "list", "--queue", "mail", "--limit", "2", "--store", busy.url]
    while arguments:
        done = busy.call(*arguments)
        found += re.findall(r"^mail-\d", done.stdout, re.MULTILINE)
        more = re.search(r"more: laneway (.*)", done.stderr)
        arguments = more[1].split() if more else []
    assert found == ["mail-0", "mail-1", "mail-2"]


def test_a_list_needs_no_app_only_a_store(
    busy: Desk, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert len(busy.json("jobs", "list", "--store", busy.url)) == 7
    assert busy.run("jobs", "list", "--store", busy.url, "--state", "running") == ""


def test_a_list_on_a_terminal_fits_and_is_coloured(busy: Desk) -> None:
    seen = busy.paint("jobs", "list", until="later")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[31m" in seen
    assert re.match(r"charge-ada +dead +app.charge +ada .* ago +ValueError: no money", lines[1])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--queue", "mial"], 1, 'no queue "mial" is in .* Did you mean "mail"'),
        (["--task", "app.chrge"], 1, 'Did you mean "app.charge"'),
        (["--state", "ded"], 2, 'there is no "ded". Did you mean "dead"'),
        (["--limit", "0"], 2, "--limit"),
        (["--after", "nobody"], 1, "no such job"),
        (["--sate", "dead"], 2, "--state"),
    ],
)
def test_a_mistyped_filter_is_one_line(busy: Desk, arguments: list[str], code: int, said: str) -> None:
    assert re.search(said, busy.mistake("jobs", "list", *arguments, code=code))


# -- show, explain -----------------------------------------------------------------------------------------------


def test_a_page_shows_everything_about_a_job(busy: Desk) -> None:
    seen = busy.run("jobs", "show", "charge-ada")
    assert seen.startswith("app.charge  charge-ada  dead\n  it gave up ")
    for part in ('arguments   "ada", 7', "lane        ada", "attempts    1", "ValueError: no money", "Traceback (most recent"):
        assert part in seen
    assert 'arguments   "ada@example.com", template="bye"' in busy.run("jobs", "show", "mail-0")


def test_a_page_as_a_document(busy: Desk) -> None:
    seen = busy.json("jobs", "show", "charge-ada")
    assert (seen["state"], seen["args"], seen["lane"], seen["attempt"]) == ("dead", ["ada", 7], "ada", 1)
    assert seen["errors"][0]["kind"] == "ValueError"
    assert "Traceback" in seen["errors"][0]["traceback"]
    assert seen["reasons"][0].startswith("it gave up")


def test_the_end_of_an_id_will_do_for_looking_and_is_only_proposed_for_acting(desk: Desk) -> None:
    id_ = desk.task("add").enqueue(1).id
    assert desk.json("jobs", "show", f"…{id_[-7:]}")["id"] == id_
    assert desk.json("jobs", "explain", id_[-7:])["id"] == id_
    assert f'Did you mean "{id_}"' in desk.mistake("jobs", "cancel", id_[-7:], code=1)


def test_a_finished_job_is_shown_with_its_result(desk: Desk) -> None:
    id_ = desk.task("add").enqueue(1, 41).id
    desk.work()
    assert re.search(r"result +42", desk.run("jobs", "show", id_))
    seen = desk.json("jobs", "show", id_)
    assert (seen["outcome"], seen["result"], seen["args"]) == ("done", 42, [1, 41])
    assert [job["id"] for job in desk.json("jobs", "list", "--state", "done")] == [id_]
    assert desk.json("jobs", "list") == []
    assert "there is nothing to retry" in desk.mistake("jobs", "retry", id_, code=1)
    assert desk.json("jobs", "explain", id_)["state"] == "done"
    assert desk.run("jobs", "delete", id_) == "1 job deleted\n"
    assert desk.json("jobs", "list", "--state", "done") == []


def test_explain_says_why(busy: Desk) -> None:
    assert "no worker runs" in busy.run("jobs", "explain", "mail-0")
    assert 'Did you mean "mail-2"' in busy.mistake("jobs", "explain", "mial-2", code=1)


# -- acting ------------------------------------------------------------------------------------------------------


def test_one_id_is_acted_on_at_once(busy: Desk) -> None:
    assert busy.run("jobs", "retry", "charge-ada") == "1 job retried\n"
    assert busy.run("jobs", "cancel", "mail-0") == "1 job cancelled\n"
    assert busy.run("jobs", "kill", "mail-1") == "1 job killed\n"
    assert busy.run("jobs", "delete", "charge-bob") == "1 job deleted\n"
    states = {job["id"]: job["state"] for job in busy.json("jobs", "list")}
    assert states == {"charge-ada": "ready", "flaky": "retrying", "mail-1": "dead", "mail-2": "ready", "later": "scheduled"}


def test_an_action_that_does_nothing_says_so(busy: Desk) -> None:
    assert busy.mistake("jobs", "retry", "mail-0", code=1) == "mail-0 is ready: there is nothing to retry"
    assert 'no job "nobody"' in busy.mistake("jobs", "delete", "nobody", code=1)


def test_filters_need_a_yes(busy: Desk) -> None:
    said = busy.mistake("jobs", "delete", "--queue", "mail")
    assert said.startswith("Delete 3 jobs (3 ready)? There is no terminal to ask at: add --yes, or --dry-run")
    assert busy.run("jobs", "delete", "--queue", "mail", "--dry-run") == "3 jobs would be deleted; nothing was changed\n"
    assert busy.json("jobs", "delete", "--queue", "mail", "--yes") == {"matched": 3, "changed": 3, "dry_run": False}
    assert busy.run("jobs", "delete", "--queue", "mail", "--yes") == "0 jobs deleted\n"


def test_more_than_one_id_needs_a_yes_and_all_of_them_must_be_there(busy: Desk) -> None:
    assert "Kill 2 jobs (2 ready)?" in busy.mistake("jobs", "kill", "mail-0", "mail-1")
    assert 'no job "nobody"' in busy.mistake("jobs", "kill", "mail-0", "nobody", "--yes", code=1)
    assert busy.run("jobs", "kill", "mail-0", "mail-1", "--yes") == "2 jobs killed\n"


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 2), ("", 2)])
def test_the_question_is_answered(busy: Desk, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    done = busy.call("jobs", "retry", "--state", "dead", input=f"{answer}\n")
    assert done.exit_code == 0
    assert "Retry 2 jobs (2 dead)? [y/N]" in done.stderr
    assert busy.app.inspect.counts()["dead"] == left


def test_retry_by_filter_counts_only_what_can_be_retried(busy: Desk) -> None:
    assert busy.json("jobs", "retry", "--error", "o", "--dry-run")["matched"] == 3
    assert busy.run("jobs", "retry", "--error", "o", "--yes") == "3 jobs retried\n"


def test_reschedule_needs_a_time_and_takes_two_kinds(busy: Desk) -> None:
    assert "say when: --in 5m" in busy.mistake("jobs", "reschedule", "mail-0")
    assert "leave one out" in busy.mistake("jobs", "reschedule", "mail-0", "--in", "5m", "--at", "2026-12-24T18:00")
    assert "30, 30s, 5m" in busy.mistake("jobs", "reschedule", "mail-0", "--in", "soon")
    assert "2026-12-24T18:00" in busy.mistake("jobs", "reschedule", "mail-0", "--at", "christmas")
    assert busy.run("jobs", "reschedule", "mail-0", "--in", "5m") == "1 job rescheduled\n"
    assert busy.run("jobs", "reschedule", "mail-1", "--at", "2030-12-24T18:00+01:00") == "1 job rescheduled\n"
    assert busy.json("jobs", "show", "mail-1")["due_at"] == "2030-12-24T17:00:00+00:00"
    assert busy.json("jobs", "show", "mail-0")["state"] == "scheduled"


def test_an_action_wants_ids_or_filters_and_not_both(busy: Desk) -> None:
    assert "say which jobs" in busy.mistake("jobs", "retry")
    assert "use one of them" in busy.mistake("jobs", "retry", "mail-0", "--queue", "mail")
    assert 'Did you mean "mail"' in busy.mistake("jobs", "delete", "--queue", "mial", "--yes", code=1)
