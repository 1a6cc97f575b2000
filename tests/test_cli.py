"""The command line: finding the app, every mistake in one line, the worker, the status and the demo."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from clidesk import read_until, runner
from laneway import App, Retry
from laneway.cli import COMMANDS, laneway
from laneway.cli.demo_shop import LedgerEntry, check
from laneway.cli.show import JobLines
from laneway.core.job import Job
from laneway.desk.locate import choose, find_app, load_tasks
from laneway.errors import ConfigError
from laneway.present.words import clip, clip_name, duration, short_id, sparkline
from laneway.worker import Worker
from workbench import until, working

SHOP = """
from laneway import App, Retry

app = App()

@app.task
def hello(name: str) -> None:
    print("Hello,", name, flush=True)

@app.task(queue="billing", lane="customer", retry=Retry(times=0))
def charge(customer: str) -> None:
    raise ValueError("no money")

helper = 7
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "app.py").write_text(SHOP)
    return folder


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "DEMO_", "NO_COLOR"))}
    return {**kept, **extra}


@pytest.fixture
def run(project: Path) -> Run:
    def call(*arguments: str, cwd: Path = project, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "laneway", *arguments]
        return subprocess.run(command, cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=60, check=False)

    return call


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Be in a folder as a program that is started there; what is imported from it is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)
        for name in list(os.environ):
            if name.startswith("LANEWAY_"):
                patch.delenv(name)
        try:
            yield
        finally:
            for name, module in list(sys.modules.items()):
                if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                    del sys.modules[name]


@pytest.fixture
def here(project: Path) -> Iterator[Path]:
    """The project, as the folder that we are in."""
    with inside(project):
        yield project


def load(name: str | None = None) -> App:
    """Load an app as the zygote of a fleet does."""
    importlib.invalidate_caches()
    app = find_app(name, None)
    load_tasks(app)
    return app


def complaint(name: str | None = None) -> str:
    """Return what is wrong with an app: the line that `laneway worker` says, as it is sent to the supervisor."""
    with pytest.raises(ConfigError) as found:
        load(name)
    return " ".join(str(found.value).split())


def jobs(project: Path, *statements: str) -> None:
    """Run statements in the project, with its app's names."""
    with inside(project):
        names = vars(importlib.import_module("app"))
        for statement in statements:
            exec(statement, names)  # noqa: S102 - our own words
        names["app"].close()


def mistake(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """Return the one line that a mistake is."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("laneway: ")
    return line.removeprefix("laneway: ")


def refusal(*arguments: str) -> str:
    """Return the one line of a command that is refused before it starts anything."""
    done = runner().invoke(laneway, arguments, prog_name="laneway")
    assert (done.exit_code, done.stdout) == (2, ""), (done.stderr, done.exception)
    (line,) = done.stderr.splitlines()
    assert line.startswith("laneway: ")
    return line.removeprefix("laneway: ")


# -- the front door ----------------------------------------------------------------------------------------------


def test_the_help_names_the_commands_and_loads_nothing_heavy() -> None:
    program = (
        "import atexit, sys; sys.argv = ['laneway', '--help']; from laneway.cli import main\n"
        "heavy = ('rich', 'asyncio', 'sqlite3', 'tomllib', 'laneway.cli.live', 'laneway.cli.demo_shop')\n"
        "atexit.register(lambda: print('LOADED', [name for name in heavy if name in sys.modules]))\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^  (\w+)  ", listed, re.MULTILINE)) == COMMANDS
    assert done.stdout.endswith("LOADED []\n")


def test_a_worker_never_loads_rich(project: Path, run: Run) -> None:
    with (project / "app.py").open("a") as file:
        file.write("\n@app.on_stop\ndef tell():\n    import sys\n    print('rich' in sys.modules, flush=True)\n")
    assert run("worker", "--burst").stdout == "False\n"


def test_no_command_shows_the_help_and_the_version_is_known() -> None:
    shown = runner().invoke(laneway, [])
    assert (shown.exit_code, "Commands:" in shown.output) == (0, True)
    assert runner().invoke(laneway, ["--version"]).output.startswith("laneway 0.")


def test_an_unknown_command_or_option_is_one_line() -> None:
    asked = runner().invoke(laneway, ["wroker"])
    assert asked.exit_code == 2
    assert asked.stderr.startswith('laneway: there is no command "wroker". Did you mean "worker"?')
    asked = runner().invoke(laneway, ["worker", "--slotz", "3"])
    assert (asked.exit_code, asked.stderr.count("\n")) == (2, 1)
    assert "--slots" in asked.stderr
    assert "See laneway worker --help" in asked.stderr


# -- finding the app ---------------------------------------------------------------------------------------------


def test_the_argument_comes_before_the_environment_before_pyproject_before_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.delenv("LANEWAY_APP", raising=False)
    (project / "main.py").touch()
    assert choose(None, None)[0] == "./app.py"
    (project / "app.py").unlink()
    assert choose(None, None)[0] == "./main.py"
    (project / "pyproject.toml").write_text('[tool.laneway]\napp = "c:d"\n')
    assert choose(None, None) == ("c:d", "[tool.laneway] app in pyproject.toml: ")
    monkeypatch.setenv("LANEWAY_APP", "b")
    assert choose(None, None) == ("b", "LANEWAY_APP: ")
    assert choose(None, "a") == choose("a", None) == choose("a", "a") == ("a", "")
    with pytest.raises(ConfigError, match="two apps are named"):
        choose("a", "b")


@pytest.mark.parametrize("text", ["[tool.laneway", "[tool.laneway]\napp = 7", "tool.laneway = 3"])
def test_a_pyproject_that_cannot_be_used_is_named(here: Path, text: str) -> None:
    (here / "pyproject.toml").write_text(text)
    assert "pyproject.toml" in refusal("worker", "--burst")


@pytest.mark.parametrize("name", [None, "app", "app:app", "app.py", "./app.py:app", "../project/app.py"])
def test_every_way_to_name_the_app_leads_to_the_same_tasks(here: Path, name: str | None) -> None:
    app = load(name)
    assert sorted(app.declared) == ["app.charge", "app.hello"]
    app.close()


@pytest.mark.parametrize("arguments", [[], ["../project/app.py:app"], ["-A", "app"], ["--app", "app:app"]], ids=" ".join)
def test_a_worker_finds_the_app_by_argument_or_option(project: Path, run: Run, arguments: list[str]) -> None:
    jobs(project, "hello.enqueue('Ada')")
    done = run("worker", *arguments, "--burst")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada\n"), done.stderr


def test_a_file_elsewhere_is_named_as_if_imported_from_its_folder(project: Path, tmp_path: Path, run: Run) -> None:
    (project / "prices.py").write_text("FACTOR = 2")
    (project / "app.py").write_text(f"import prices\n{SHOP}")  # its neighbours are found too
    jobs(project, "hello.enqueue('Ada')")
    done = run("worker", "./project/app.py:app", "--burst", "--store", "sqlite:///project/laneway.db", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Hello, Ada\n"), done.stderr


@pytest.mark.parametrize("name", ["shop.jobs:app", "shop.jobs", "shop", "./shop/__init__.py"])
def test_a_module_inside_a_package_and_the_package_itself_are_found(here: Path, name: str) -> None:
    package = here / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("from .jobs import app")
    (package / "jobs.py").write_text(SHOP)
    app = load(name)
    assert sorted(app.declared) == ["shop.jobs.charge", "shop.jobs.hello"]
    app.close()
    assert 'Did you mean "shop.jobs:app"?' in complaint("shop.jobs.app")


def test_the_only_app_is_found_beside_one_of_a_web_framework(here: Path) -> None:
    text = "from laneway import App\n\nclass Flask: ...\n\napp = Flask()\njobs = App('sqlite://')\n"
    (here / "app.py").write_text(text)
    load().close()
    (here / "app.py").write_text(f"{text}mails = App('sqlite://')\n")
    sys.modules.pop("app", None)
    assert complaint() == '"app" in app.py is a Flask, not an App. Apps there: jobs, mails'


# -- mistakes ----------------------------------------------------------------------------------------------------


def test_no_app_says_how_to_name_one(tmp_path: Path, run: Run) -> None:
    said = mistake(run("worker", cwd=tmp_path))
    assert said.startswith(f"no app found: there is no app.py or main.py in {tmp_path}; name it as in: laneway worker ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("apq", r'there is no module "apq" in .* Did you mean "app"\?'),
        ("nope.jobs:app", r'there is no module "nope" in'),
        ("./ap.py", r'there is no file ./ap.py. Did you mean "app.py"\?'),
        ("../project", r"\.\./project is a folder: name a file in it, such as \.\./project/app\.py"),
        ("app:apq", r'there is no "apq" in app.py. Did you mean "app"\? Apps there: app$'),
        ("app:nothing.like_it", r'there is no "nothing.like_it" in app.py. Apps there: app$'),
        ("app:helper", r'"helper" in app.py is a int, not an App. Apps there: app$'),
        ("app:App", r'"App" in app.py is a class, not an App'),
    ],
)
def test_a_wrong_name_is_told(here: Path, name: str, said: str) -> None:
    assert re.match(said, complaint(name))


def test_a_wrong_name_is_one_line(run: Run) -> None:
    assert mistake(run("worker", "apq")).startswith('there is no module "apq" in ')


def test_a_wrong_name_in_the_environment_says_where_it_is_written(run: Run) -> None:
    assert mistake(run("worker", LANEWAY_APP="nope")).startswith('LANEWAY_APP: there is no module "nope"')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\nimport missing_thing", "app.py, line 2: ModuleNotFoundError: No module named 'missing_thing'"),
        ("def f(:\n    pass", "app.py, line 1: SyntaxError: "),
        ("x = 1\n\n1 / 0", "app.py, line 3: ZeroDivisionError: division by zero"),
        ("raise ValueError('one\\ntwo')", "app.py, line 1: ValueError: one two"),
        ("from laneway import App\napp = App('mysql://x')", 'app.py, line 2: ConfigError: there is no store "mysql"'),
        ("import json\njson.loads('{')", "app.py, line 2: JSONDecodeError: "),
        ("import sys\nsys.exit(3)", "app.py, line 2: it ends the program. Put that under if __name__ =="),
        ("from . import x", "app.py, line 1: ImportError: attempted relative import"),
    ],
)
def test_an_error_inside_the_app_says_file_and_line(here: Path, text: str, said: str) -> None:
    (here / "app.py").write_text(text)
    assert complaint().startswith(f"app cannot be imported: {said}")


def test_an_error_inside_the_app_is_one_line(project: Path, run: Run) -> None:
    (project / "app.py").write_text("raise ValueError('one\\ntwo')")
    assert mistake(run("worker")) == "app cannot be imported: app.py, line 1: ValueError: one two"


def test_an_error_in_what_the_app_imports_later_says_file_and_line(here: Path) -> None:
    (here / "app.py").write_text("from laneway import App\napp = App(imports=['mail'])")
    assert "No module named 'mail'" in complaint()
    (here / "mail.py").write_text("\nundefined")
    assert "mail.py, line 2: NameError: name 'undefined'" in complaint()


def test_a_module_without_any_app_says_so(here: Path) -> None:
    (here / "app.py").write_text("apple = 3")
    assert complaint() == 'there is no "app" in app.py. There is no App in it: write app = App(...)'


def test_a_file_whose_name_is_taken_is_not_confused_with_the_other(project: Path, run: Run) -> None:
    (project / "logging.py").write_text(SHOP)
    # -P: else Python itself would take the file for its own logging
    command = [sys.executable, "-P", "-m", "laneway", "worker", "./logging.py"]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert 'logging.py cannot be imported: "logging" is already' in mistake(done)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-s", "0"], "--slots 0: use a whole number from 1"),
        (["-q", "a,,b"], "'' is not a name for a queue"),
        (["--shutdown-timeout", "-1"], "--shutdown-timeout"),
    ],
)
def test_a_wrong_setting_is_one_line(here: Path, arguments: list[str], said: str) -> None:
    assert said in refusal("worker", *arguments)


@pytest.mark.parametrize(
    ("store", "said"),
    [("nonsense", "'nonsense' is not a store's URL"), ("sqlite:///x.db?tiemout=3", 'Did you mean "timeout"?')],
)
def test_a_wrong_store_is_one_line(run: Run, store: str, said: str) -> None:
    assert said in mistake(run("worker", "--store", store))


@pytest.mark.parametrize("command", ["worker", "status"])
def test_a_store_that_cannot_be_used_is_one_line_and_code_1(project: Path, run: Run, command: str) -> None:
    (project / "text.db").write_text("this is no database\n" * 100)
    assert "text.db is damaged or no SQLite database" in mistake(run(command, "--store", "sqlite:///text.db"), 1)


def test_a_store_that_cannot_be_written_to_is_for_looking_only(project: Path, run: Run) -> None:
    jobs(project, "hello.enqueue('Ada')", "app.close()")
    shutil.rmtree(project / "laneway.db-sync")
    (project / "laneway.db-sync").touch()  # a file where a folder should be: not even root can write there
    assert "laneway.db cannot be written to" in mistake(run("worker"), 1)
    assert json.loads(run("status", "--json").stdout)["counts"]["ready"] == 1


def test_a_worker_whose_store_has_no_folder_says_so(run: Run) -> None:
    assert "its folder" in mistake(run("worker", "--store", "sqlite:///nowhere/jobs.db"), 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_line_and_code_1(project: Path, run: Run) -> None:
    project.chmod(0o555)
    try:
        assert "cannot be written to" in mistake(run("worker"), 1)
    finally:
        project.chmod(0o755)


# -- the worker --------------------------------------------------------------------------------------------------


def test_a_burst_runs_what_is_due_and_says_what_failed(project: Path, run: Run) -> None:
    jobs(project, "hello.enqueue('Ada')", "charge.enqueue('bob')", "hello.using(run_after=600).enqueue('later')")
    done = run("worker", "--burst", "-s", "2")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada\n")
    assert re.search(r"INFO worker started: sqlite:///.*/laneway.db, 2 tasks, all queues, 2 slots", done.stderr)
    assert re.search(r"ERROR app.charge \w+ is dead after attempt 1: ValueError: no money", done.stderr)
    assert re.search(r"INFO worker stopped after ", done.stderr)
    assert "DEBUG" not in done.stderr


def test_queues_and_store_are_the_commands_to_choose(project: Path, run: Run) -> None:
    jobs(project, "app.url = 'sqlite:///other.db'", "hello.enqueue('Ada')", "hello.using(queue='vip').enqueue('Bob')")
    assert run("worker", "--burst").stdout == ""
    assert run("worker", "--burst", "--store", "sqlite:///other.db", "-q", "vip, mail").stdout == "Hello, Bob\n"
    assert run("worker", "--burst", "--store", "sqlite:///other.db", "-w", "1").stdout == "Hello, Ada\n"


def test_another_store_holds_even_if_the_app_used_its_own_while_it_was_imported(project: Path, run: Run) -> None:
    (project / "app.py").write_text(f"{SHOP}\napp.inspect.counts()\n")
    jobs(project, "app.close()", "app.url = 'sqlite:///other.db'", "app._stores = None", "hello.enqueue('Ada')")
    assert run("worker", "--burst", "--store", "sqlite:///other.db").stdout == "Hello, Ada\n"


def test_an_app_without_tasks_is_warned_about(project: Path, run: Run) -> None:
    (project / "app.py").write_text("from laneway import App\napp = App()")
    assert "WARNING the app has no tasks" in run("worker", "--burst").stderr


def test_a_program_that_sets_up_logging_keeps_its_own(project: Path, run: Run) -> None:
    jobs(project, "app.enqueue('app.nobody', check=False)")
    (project / "app.py").write_text(f"import logging\nlogging.basicConfig(format='MINE %(message)s', level='INFO')\n{SHOP}")
    ours = [line for line in run("worker", "--burst").stderr.splitlines() if line.startswith("MINE ")]
    assert [line.split(": ")[1] for line in ours] == ["put back"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end_and_the_exit_code_is_0(project: Path, number: signal.Signals) -> None:
    with (project / "app.py").open("a") as file:
        file.write("\n@app.task\ndef slow():\n    import time\n    print('begun', flush=True)\n    time.sleep(0.5)\n")
        file.write("    print('ended', flush=True)\n")
    jobs(project, "slow.enqueue()")
    command = [sys.executable, "-m", "laneway", "worker"]
    with subprocess.Popen(command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), "begun\n")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"ended\n")
    assert f"{number.name}: stopping" in err.decode()
    assert "worker stopped after" in err.decode()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("env", [{"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}], ids=["colour", "NO_COLOR"])
def test_on_a_terminal_each_run_has_its_line(project: Path, terminal: tuple[int, int], env: dict[str, str]) -> None:
    jobs(project, "hello.enqueue('Ada')", "charge.enqueue('bob')")
    ours, theirs = terminal
    command = [sys.executable, "-m", "laneway", "worker", "--burst"]
    with subprocess.Popen(command, cwd=project, env=environment(**env), stdout=subprocess.DEVNULL, stderr=theirs) as process:
        seen = read_until(ours, "worker stopped")
    assert process.returncode == 0
    assert ("\x1b[" in seen) == ("NO_COLOR" not in env)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r", "")
    assert re.search(r"^\d\d:\d\d:\d\d  app.hello   …\w{7}  -             done +\d+ [mµ]s$", plain, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  app.charge  …\w{7}  bob           dead +\d+ [mµ]s$", plain, re.MULTILINE)
    assert "\n          attempt 1, the last: ValueError: no money\n" in plain
    assert plain.count("no money") == 2  # said, and the line of code; not once more by the log
    assert "worker/run.py" not in plain


# -- what is shown -----------------------------------------------------------------------------------------------


def test_texts_have_the_width_they_are_given() -> None:
    assert clip("abc", 5) == "abc  "
    assert clip("abcdef", 5) == "abcd…"
    assert [clip_name("abcdefgh", width) for width in (8, 7, 4, 2, 1)] == ["abcdefgh", "abc…fgh", "ab…h", "a…", "…"]
    assert (short_id("mail-42"), short_id("cr2a1tp67h6jthdykdj5")) == ("mail-42", "…hdykdj5")
    assert max(len(duration(s)) for s in (0, 0.0004, 0.99949, 0.9996, 59.94, 59.96, 3599.4, 3600, 86_400)) <= 8
    assert (sparkline([]), sparkline([0, 0]), sparkline([1, 2, 3])) == ("", "▁▁", "▃▆█")


class Lines:
    """A stream that is no terminal and keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


@contextlib.contextmanager
def on_a_terminal(app: App, stream: Lines, *tasks: str) -> Iterator[JobLines]:
    """Show a worker's log as on a terminal."""
    log = logging.getLogger("laneway")
    lines = JobLines(stream, tasks)  # type: ignore[arg-type]
    try:
        lines.install()
        lines.listen(app.hooks.events)
        yield lines
    finally:
        log.handlers.clear()
        log.propagate = True
        log.setLevel(logging.NOTSET)


def test_a_log_file_of_the_program_still_gets_its_records_and_no_more(app: App) -> None:
    got: list[logging.LogRecord] = []
    other = logging.Handler()
    other.emit = got.append  # type: ignore[method-assign, assignment]

    @app.task(name="broken", retry=Retry(times=1, backoff=60))
    def broken() -> None:
        raise ValueError("no")

    broken.enqueue()
    stream = Lines()
    logging.getLogger().addHandler(other)
    try:
        with on_a_terminal(app, stream, "broken") as lines:
            Worker(app).run(burst=True)
    finally:
        logging.getLogger().removeHandler(other)
    assert [record.levelname for record in got] == ["WARNING"]
    assert lines.outcomes == {"retrying": 1}
    assert re.fullmatch(r".* retrying .*\n +attempt 1, again in 1m 00s: ValueError: no \(test_cli.py:\d+\)\n", stream.text)


@pytest.mark.parametrize("isolate", [False, True])
def test_a_death_is_one_entry_on_a_terminal(app: App, isolate: bool) -> None:
    @app.task(name="broken", retry=Retry(times=0), isolate=isolate)
    def broken(number: int) -> None:
        raise ValueError("no luck")

    stream = Lines()
    broken.enqueue(1)
    app.store.push([Job("unfit", "broken", "default", b'[["x"],{}]')])
    with on_a_terminal(app, stream, "broken"):
        Worker(app, 1).run(burst=True)

    first, reason, *frames, unfit, kind = stream.text.splitlines()
    assert re.fullmatch(r"\S+  broken  \S+ +-  +dead .*", first)
    assert reason.strip() == "attempt 1, the last: ValueError: no luck"
    assert frames[-1].strip() == 'raise ValueError("no luck")'
    assert all(frame.startswith(" " * 11) for frame in frames)
    assert "broken unfit is dead in attempt 1, before it could run: laneway.errors.BadArguments: the arguments" in unfit
    assert unfit.endswith('. It is kept in queue "default": laneway jobs show unfit')
    assert kind.startswith("laneway.errors.BadArguments: ")


def test_no_text_of_a_job_breaks_a_line_on_a_terminal(app: App) -> None:
    forged = "x\nforged\r\x1b[2J\u2028\x85"

    @app.task(name="broken", retry=Retry(times=0))
    def broken() -> None:
        raise ValueError(forged)

    stream = Lines()
    app.store.push([Job("a", "broken", "default", b"[[],{}]", forged), Job("b", forged, "default", b"[[],{}]")])
    with on_a_terminal(app, stream, "broken"):
        Worker(app, 1).run(burst=True)

    *lines, last = stream.text.split("\n")
    assert lines[0].split()[1] == "broken"
    assert any("forged" in line for line in lines)
    assert sum("no task named" in line for line in lines) == 1
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("forged")]
    assert last == ""


# -- the log -----------------------------------------------------------------------------------------------------

LOGS = """
import logging
from laneway import App, Retry
app = App("sqlite:///jobs.db")

@app.task
def fine(): ...

@app.task(retry=Retry(times=1, backoff=0))
def broken(order):
    raise ValueError("no\\nluck")

@app.task(retry=Retry(times=0), isolate=True)
def alone():
    raise LookupError("alone")

@app.collector
def orders(lanes):
    raise ValueError("not now")
"""


@pytest.mark.parametrize("own", ["", "logging.basicConfig(level=logging.WARNING, format='MINE %(message)s')"])
def test_json_is_what_every_process_of_a_fleet_logs(tmp_path: Path, run: Run, own: str) -> None:
    (tmp_path / "app.py").write_text(LOGS + own)
    jobs(tmp_path, "fine.enqueue()", "broken.using(lane='c7').enqueue(1)", "alone.enqueue()", "orders.enqueue('a', 1)")
    done = run("worker", "-p", "2", "--burst", "--log-format", "json", "--log-level", "debug", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    assert {line["level"] for line in lines} == {"debug", "info", "warning", "error"}
    first, last = lines[0], lines[-1]
    assert (first["logger"], first["level"], first["message"][:15]) == ("laneway", "info", "worker started:")
    assert "worker" not in first
    assert last["message"].startswith("worker stopped after")

    def of(task: str, **fields: object) -> dict[str, Any]:
        [found] = [one for one in lines if one.get("task") == f"app.{task}" and {**one, **fields} == one]
        return dict(found)

    ended = of("fine", outcome="done")
    assert (ended["logger"], ended["queue"], ended["lane"], ended["attempt"]) == ("laneway.runs", "default", None, 1)
    assert 0 <= ended["seconds"] < 60
    assert len(ended["worker"]) == len(ended["job_id"]) == 20
    retried = of("broken", level="warning")
    assert (retried["outcome"], retried["error"], retried["lane"], retried["again_in"]) == ("retrying", "ValueError", "c7", 0)
    dead = of("broken", level="error")
    assert (dead["outcome"], dead["attempt"]) == ("dead", 2)
    assert dead["exception"].startswith("Traceback (most recent call last):")
    assert dead["exception"].endswith("ValueError: no\nluck")
    assert "LookupError: alone" in of("alone", level="error")["exception"]
    assert of("orders", level="warning")["lanes"] == ["a"]


def test_a_level_leaves_out_what_is_below_it(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text(LOGS)
    jobs(tmp_path, "fine.enqueue()", "alone.enqueue()")
    done = run("worker", "--burst", "--log-level", "error", cwd=tmp_path, LANEWAY_LOG_FORMAT="text")
    [line] = [line for line in done.stderr.splitlines() if re.match(r"\S+ \S+ [A-Z]+ ", line)]
    assert re.match(r"\d{4}-\S+ \S+ ERROR app.alone \w+ is dead after attempt 1: LookupError: alone job_id=", line)


@pytest.mark.parametrize(("flag", "words"), [("--log-level", "debug, info, warning, error"), ("--log-format", "text, json")])
def test_a_level_or_format_that_is_none_is_refused(project: Path, run: Run, flag: str, words: str) -> None:
    assert f"use one of {words}" in mistake(run("worker", flag, "loud"))


def test_what_a_program_has_set_up_stays_unless_something_is_asked_for(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text(LOGS + "logging.basicConfig(level=logging.WARNING, format='MINE %(message)s')")
    jobs(tmp_path, "alone.enqueue()")
    done = run("worker", "--burst", cwd=tmp_path)
    assert re.search(r"^MINE app.alone \w+ is dead after attempt 1", done.stderr, re.MULTILINE)
    assert re.search(r"^\S+ \S+ INFO worker started:", done.stderr)


# -- status ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with something to show. Nobody who looks changes it."""
    folder = tmp_path_factory.mktemp("busy")
    (folder / "app.py").write_text(SHOP)
    jobs(folder, "hello.enqueue('Ada')", "charge.enqueue('bob')")
    jobs(folder, "from laneway import Worker", "Worker(app, 2).run(burst=True)")
    jobs(folder, "hello.enqueue('Eve')", "hello.using(run_after=600).enqueue('later')", "app.inspect.pause('billing')")
    return folder


def test_status_is_plain_text_where_nobody_looks(busy: Path, run: Run) -> None:
    done = run("status", cwd=busy)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert ["queue", "paused", "scheduled", "ready", "retrying", "blocked", "running", "dead", "counts"] in lines
    assert ["billing", "yes", "0", "0", "0", "0", "0", "1", "jobs"] in lines
    assert ["default", "no", "1", "1", "0", "0", "0", "0", "jobs"] in lines
    assert ["all", "-", "1", "1", "0", "0", "0", "1", "-"] in lines
    assert "totals: enqueued 4, processed 1, failed 1, retried 0, dead 1" in done.stdout
    assert re.search(r"app.charge +\w{20} +billing +bob +dead", done.stdout)
    assert "\x1b" not in done.stdout


def test_status_as_json_is_one_document_and_needs_no_app(busy: Path, tmp_path: Path, run: Run) -> None:
    url = f"sqlite:///{busy}/laneway.db"
    done = run("status", "--json", "--store", url, cwd=tmp_path)
    seen = json.loads(done.stdout)
    assert (seen["store"], seen["counts"]["dead"], seen["totals"]["enqueued"]) == (url, 1, 4)
    assert {queue["name"]: queue["paused"] for queue in seen["queues"]} == {"billing": True, "default": False}
    assert {(run["task"], run["lane"], run["outcome"]) for run in seen["recent"]} == {
        ("app.hello", None, "done"),
        ("app.charge", "bob", "dead"),
    }
    assert json.loads(run("status", "--json", cwd=busy).stdout) == seen


def test_status_on_a_terminal_is_a_table(busy: Path, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    command = [sys.executable, "-m", "laneway", "status"]
    with subprocess.Popen(command, cwd=busy, env=environment(TERM="xterm", COLUMNS="80"), stdout=theirs) as process:
        seen = read_until(ours, "app.charge")
    assert process.returncode == 0
    assert "billing paused" in re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert "\x1b[" in seen


def test_status_does_not_make_a_store(project: Path, run: Run) -> None:
    before = sorted(project.iterdir())
    assert "there is no store" in mistake(run("status", "--store", "sqlite:///typo.db"), 1)
    assert [file for file in sorted(project.iterdir()) if file.name != "__pycache__"] == before
    assert "in the memory of one process" in mistake(run("status", "--store", "sqlite://"))


# -- health ------------------------------------------------------------------------------------------------------


def test_health_is_an_exit_code_and_loads_no_app(tmp_path: Path, run: Run) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('nobody loads me')")
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert "which store? Give --store URL" in mistake(run("health", cwd=tmp_path))
    assert "there is no store" in mistake(run("health", "--store", url, cwd=tmp_path), 1)
    other = App(url)
    other.enqueue("t")
    done = run("health", cwd=tmp_path, LANEWAY_URL=url)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(r"no worker lives: 1 job ready, the oldest for \d+ s\n", done.stdout)
    with working(other, 3, beat=0.1):
        until(lambda: other.inspect.counts()["ready"] == 0)
        done = run("health", "--json", "--store", url, cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "workers": 1, "ready": 0, "lag": 0.0})
        assert run("health", "--store", url, cwd=tmp_path).stdout == "ok: 1 worker, nothing waits\n"
    other.close()
    assert run("health", "--store", url, cwd=tmp_path).returncode == 1


# -- the demo ----------------------------------------------------------------------------------------------------


def test_the_demo_in_a_pipe_prints_lines_and_a_summary(tmp_path: Path, run: Run) -> None:
    done = run("demo", cwd=tmp_path, DEMO_SECONDS="1", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^ +\d+ s  enqueued +\d+  done ", done.stdout, re.MULTILINE)
    assert re.search(r"In order: \d+ charges in \d lanes", done.stdout)
    assert "LOST" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(tmp_path.glob("laneway-demo-*")) == []


def test_the_demo_on_a_terminal_has_a_live_view_until_ctrl_c(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    command = [sys.executable, "-m", "laneway", "demo"]
    env = environment(TERM="xterm", COLUMNS="80", LINES="24")
    with subprocess.Popen(command, env=env, stdout=theirs) as process:
        seen = read_until(ours, "sales_report")
        process.send_signal(signal.SIGINT)
        seen += read_until(ours, "ledger that the charges")
    assert process.returncode == 0
    assert all(part in seen for part in ("Ctrl-C ends it", "sales_report", "blocked jobs by lane", "last runs", "In order:"))


@pytest.mark.parametrize(
    ("entries", "mistakes"),
    [
        ([(1, "begins"), (1, "done"), (2, "begins"), (2, "done")], []),
        ([(1, "begins"), (1, "failed"), (1, "begins"), (1, "done"), (2, "begins")], []),
        ([(1, "begins"), (2, "begins")], ["ada: 2 began while 1 ran", "ada: 2 came after 0 (done)"]),
        ([(2, "begins"), (2, "done")], ["ada: 2 came after 0 (done)"]),
        ([(1, "begins"), (1, "done"), (1, "begins")], ["ada: 1 came after 1 (done)"]),
        ([(1, "begins"), (1, "failed"), (2, "begins")], ["ada: 2 came after 1 (failed)"]),
        ([(7, "begins"), (7, "done")], ["ada: 7 came after 0 (done)"]),
    ],
)
def test_the_ledger_finds_what_lanes_must_not_do(entries: list[tuple[int, str]], mistakes: list[str]) -> None:
    found = check([LedgerEntry("ada", number, what) for number, what in entries]).mistakes  # type: ignore[arg-type]
    assert found == mistakes


def test_a_lane_goes_on_after_a_charge_that_is_dead() -> None:
    tried = [LedgerEntry("ada", 1, "begins"), LedgerEntry("ada", 1, "failed")]
    entries = [*tried, *tried, LedgerEntry("ada", 2, "begins")]
    assert check(entries, {("ada", 1)}).mistakes == []
    assert check([*entries, LedgerEntry("bob", 1, "begins")], {("ada", 1)}).lanes == 2
