"""`laneway store copy` and `laneway store reopen`, as they are typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from clidesk import environment, runner
from laneway import App
from laneway.cli import laneway
from laneway.store.contract import ClaimRequest, WorkerInfo
from workbench import until


def run(*words: str) -> Result:
    return runner().invoke(laneway, ["store", *words], prog_name="laneway")


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    app = App(f"sqlite:///{tmp_path}/old.db")

    @app.task(name="add")
    def add(a: int) -> int:
        return a

    add.enqueue_many([(n,) for n in range(3)])
    app.close()
    return f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"


def test_a_copy_says_what_was_copied_and_what_to_do_next(urls: tuple[str, str]) -> None:
    done = run("copy", *urls)

    assert done.exit_code == 0
    first, head, waiting, next_, *_ = done.stdout.splitlines()
    assert first == f"{urls[0]} was copied to {urls[1]}"
    assert head.split() == ["source", "target"]
    assert waiting.split() == ["waiting", "3", "3"]
    assert next_.startswith("Use the new address now")


def test_a_copy_as_a_document(urls: tuple[str, str]) -> None:
    document = json.loads(run("copy", *urls, "--json").stdout)

    assert (document["from"], document["to"], document["copied"]) == (*urls, 3)
    assert document["source"] == document["target"]
    assert document["target"]["waiting"] == 3


def test_a_store_that_is_not_there_is_not_copied(urls: tuple[str, str], tmp_path: Path) -> None:
    missing = run("copy", f"sqlite:///{tmp_path}/none.db", urls[1])

    assert missing.exit_code == 1
    assert "there is no store" in missing.stderr
    assert not (tmp_path / "none.db").exists()


def test_reopening_after_a_whole_copy_asks_first(urls: tuple[str, str]) -> None:
    run("copy", *urls)

    asked = run("reopen", urls[0])
    tried = run("reopen", urls[0], "--dry-run")
    done = run("reopen", urls[0], "--yes")
    again = run("reopen", urls[0])

    assert asked.exit_code == 2
    assert "would run twice" in asked.stderr
    assert tried.stdout == f"{urls[0]} would be opened; nothing was changed\n"
    assert done.stdout.startswith(f"{urls[0]} is open again")
    assert again.stdout == f"{urls[0]} is open: nothing to do\n"


def _hear_ctrl_c() -> None:
    """Undo what a shell does for a command in the background, from which the tests may have been started."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_says_how_to_go_on_and_how_to_undo(urls: tuple[str, str]) -> None:
    """A job runs in a worker that lives, so the copier waits until it is stopped."""
    app = App(urls[0])
    app.store.beat([WorkerInfo("w")])
    [claim] = app.store.exchange("w", [], [ClaimRequest("default", 1)], 1).claims
    command = [sys.executable, "-m", "laneway", "store", "copy", *urls]
    process = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - nothing else runs
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting for 1 running job\n"

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (130, "")
    assert err == (
        f"laneway: stopped; {urls[0]} stays closed. Start the copy again to go on, or undo it: laneway store reopen {urls[0]}\n"
    )
    undone = run("reopen", urls[0])
    assert undone.stdout == (
        f"{urls[0]} is open again: it takes jobs and gives claims. {urls[1]} has a part of the copy and stays closed: "
        "empty it before the next copy\n"
    )
    assert [unit.id for unit in claim.units] == app.store.give_back("w")
    until(lambda: len(app.store.exchange("w", [], [ClaimRequest("default", 9)], 9).claims) == 3)
    app.close()


def test_no_password_is_shown(urls: tuple[str, str]) -> None:
    refused = run("copy", urls[0], "redis://ada:secret@127.0.0.1:1/0")

    assert refused.exit_code == 1
    assert "secret" not in refused.output
