"""What tests of the command line share: a project in a folder of its own, and commands that are run in this process."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from laneway import App
from laneway.cli import laneway
from laneway.worker import Worker

CTRL_C = "\x03"
SHOP = """
from datetime import timedelta
from laneway import App, Retry, current_job

app = App()

@app.task(keep_result=600)
def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(queue="mail")
def send(to: str, *, template: str = "welcome") -> None:
    current_job().log("sent to " + to)

@app.task(queue="billing", lane="customer", retry=Retry(times=0))
def charge(customer: str, cents: int = 0) -> None:
    raise ValueError("no money")

@app.task(retry=Retry(times=3, backoff=600))
def flaky() -> None:
    raise TimeoutError("read timed out")

@app.task(schedule="0 3 * * *", timezone="Europe/Paris")
def nightly() -> None: ...

@app.task(schedule=timedelta(minutes=5))
def often() -> None: ...
"""


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "DEMO_", "NO_COLOR"))}
    return {**kept, **extra}


def runner() -> CliRunner:
    """Click before 8.2 mixes what is printed with what is said, unless it is told not to."""
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(**{"mix_stderr": False} if mixes else {})  # type: ignore[arg-type]


class Desk:
    """A project, and commands in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/laneway.db"

    @property
    def app(self) -> App:
        """The project's app, the same that the commands find."""
        found: App = importlib.import_module("app").app
        return found

    def task(self, name: str) -> Any:
        return self.app.declared[f"app.{name}"]

    def work(self) -> None:
        """Run what is due."""
        Worker(self.app, 4).run(burst=True)

    def call(self, *arguments: str, input: str | None = None) -> Result:  # noqa: A002 - as click names it
        return runner().invoke(laneway, arguments, input=input, prog_name="laneway")

    def run(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Run a command that must go well; return what it printed."""
        done = self.call(*arguments, input=input)
        assert done.exit_code == 0, (done.stderr, done.exception)
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def mistake(self, *arguments: str, code: int = 2, input: str | None = None) -> str:  # noqa: A002
        """Run a command that must not go well; return its one line."""
        done = self.call(*arguments, input=input)
        assert done.exit_code == code, (done.stderr, done.exception)
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line.removeprefix("laneway: ")

    def paint(self, *arguments: str, until: str, columns: int = 80, keys: str = "") -> str:
        """Run a command on a terminal of its own; return what it showed until some text came, and after keys or Ctrl-C."""
        ours, theirs = os.openpty()
        command = [sys.executable, "-m", "laneway", *arguments]
        env = environment(TERM="xterm", COLUMNS=str(columns), LINES="24")
        try:
            with subprocess.Popen(command, cwd=self.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
                seen = read_until(ours, until)
                if keys == CTRL_C:  # the terminal is none that this program is led from
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(ours, keys.encode())
                while process.poll() is None:
                    if select.select([ours], [], [], 0.05)[0]:
                        seen += os.read(ours, 65536).decode(errors="replace")
                assert process.returncode == 0, seen
        finally:
            os.close(ours)
            os.close(theirs)
        return seen


def open_desk(folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Iterator[Desk]:
    """Make a project, with more in its app if wanted, and work in it."""
    (folder / "app.py").write_text(SHOP + more)
    for name in list(os.environ):
        if name.startswith("LANEWAY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("app", None)
    desk = Desk(folder)
    yield desk
    if (module := sys.modules.pop("app", None)) is not None and hasattr(module, "app"):
        module.app.close()


def read_until(stream: int, text: str, seconds: float = 60.0) -> str:
    """Read from a file descriptor until a text has come."""
    seen = b""
    deadline = time.monotonic() + seconds
    while text.encode() not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([stream], [], [], 0.2)[0]:
            seen += os.read(stream, 65536)
    return seen.decode(errors="replace")
