"""Settings: where they may be written, which place wins, and what a bad one says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clidesk import Desk, environment, open_desk
from laneway import App
from laneway.cli.values import chosen_settings
from laneway.errors import ConfigError
from laneway.settings import SETTINGS, Found, Settings, read_duration, read_size


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


def around(folder: Path, table: str = "", **environ: str) -> Settings:
    (folder / "pyproject.toml").write_text(f"[tool.laneway]\n{table}\n")
    return Settings(environ, folder)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("250ms", 0.25), (" 1.5 M ", 90), (7, 7)],
)
def test_durations(text: object, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "-5", "1e3", "5m30s", True, None, "nan"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="30, 30s, 5m, 2h, 1d"):
        read_duration(text)


@pytest.mark.parametrize(("text", "size"), [("400M", 400 << 20), ("2g", 2 << 30), ("1KiB", 1024), (5, 5)])
def test_sizes(text: object, size: int) -> None:
    assert read_size(text) == size


def test_flag_before_code_before_environment_before_pyproject_before_default(tmp_path: Path) -> None:
    place = around(tmp_path, "dead_max = 4", LANEWAY_DEAD_MAX="3")
    assert place.find("dead_max", flag=("--dead-max", "1"), code=2) == Found(1, "--dead-max")
    assert place.find("dead_max", code=2) == Found(2, "code")
    assert place.find("dead_max") == Found(3, "LANEWAY_DEAD_MAX")
    file = f"[tool.laneway] dead_max in {tmp_path}/pyproject.toml"
    assert around(tmp_path, "dead_max = 4").find("dead_max") == Found(4, file)
    assert around(tmp_path, "dead-max = 4", LANEWAY_DEAD_MAX="").find("dead_max") == Found(4, file)
    assert around(tmp_path).find("dead_max") == Found(10_000, "default")


@pytest.mark.parametrize(
    ("name", "good", "value", "bad"),
    [
        ("url", "sqlite:///x.db", "sqlite:///x.db", " "),
        ("app", "shop:app", "shop:app", " "),
        ("queues", "a, b", ("a", "b"), "a,,b"),
        ("balance", "adaptive", "adaptive", "fair"),
        ("slots", "3", 3, "0"),
        ("processes", "2", 2, "1001"),
        ("shutdown_timeout", "1m", 60.0, "-1"),
        ("beat", "100ms", 0.1, "0.01"),
        ("timeout_grace", "1", 1.0, "0"),
        ("max_jobs", "10", 10, "ten"),
        ("max_memory", "1M", 1 << 20, "0"),
        ("loop", "uvloop", "uvloop", "trio"),
        ("health_port", "8081", 8081, "0"),
        ("health_host", "::1", "::1", " "),
        ("log_level", "debug", "debug", "loud"),
        ("log_format", "json", "json", "xml"),
        ("dead_days", "0.5", 0.5, "inf"),
        ("outbox", "sqlite:///shop.db", "sqlite:///shop.db", " "),
        ("dead_max", "5", 5, "2.5"),
        ("dead_after", "20s", 20.0, "0"),
        ("enqueue_timeout", "500ms", 0.5, "0"),
        ("connections", "8", 8, "0"),
        ("dashboard_user", "ada", "ada", " "),
        ("dashboard_redact", "pin, api-key", ("pin", "api-key"), "pin,-"),
        ("health_lag", "5m", 300.0, "0"),
        ("health_stall", "1m", 60.0, "0"),
    ],
)
def test_every_setting_is_read_and_a_bad_one_says_where_it_is_written(
    tmp_path: Path, name: str, good: str, value: object, bad: str
) -> None:
    variable = SETTINGS[name].environment
    assert around(tmp_path, **{variable: good}).find(name) == Found(value, variable)
    assert around(tmp_path, f'{name} = "{good}"').find(name).value == value
    with pytest.raises(ConfigError) as in_environment:
        around(tmp_path, **{variable: bad}).find(name)
    assert str(in_environment.value).startswith(f"{variable}={bad}: ")
    with pytest.raises(ConfigError) as in_file:
        around(tmp_path, f'{name} = "{bad}"').find(name)
    assert str(in_file.value).startswith(f"[tool.laneway] {name} in {tmp_path}/pyproject.toml is {bad!r}: ")
    with pytest.raises(ConfigError) as in_flag:
        around(tmp_path).find(name, flag=("--flag", bad))
    assert str(in_flag.value).startswith(f"--flag {bad}: ")


def test_every_setting_is_among_those_that_are_tested() -> None:
    assert list(SETTINGS) == [
        "url", "outbox", "app", "queues", "balance", "slots", "processes", "shutdown_timeout", "beat", "timeout_grace",
        "max_jobs", "max_memory", "loop", "health_port", "health_host", "log_level", "log_format",
        "enqueue_timeout", "connections", "dead_days", "dead_max", "dead_after",
        "dashboard_user", "dashboard_password", "dashboard_token", "dashboard_redact", "health_lag", "health_stall",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["dashboard_password", "dashboard_token"])
def test_a_secret_is_read_and_never_shown(tmp_path: Path, name: str) -> None:
    variable = SETTINGS[name].environment
    found = around(tmp_path, **{variable: "hunter22"}).find(name)
    assert (found.value.text, "hunter" in repr(found)) == ("hunter22", False)
    with pytest.raises(ConfigError) as bad:
        around(tmp_path, **{variable: "hunter"}).find(name)
    assert str(bad.value) == f"{variable}=…: use a string of at least 8 characters"
    with pytest.raises(ConfigError) as bad_in_file:
        around(tmp_path, f'{name} = "hunter"').find(name)
    assert "hunter" not in str(bad_in_file.value)


def test_toml_has_numbers_and_lists(tmp_path: Path) -> None:
    place = around(tmp_path, 'queues = ["a", "b"]\nslots = 3\nbeat = 0.5\n')
    assert [place.find(name).value for name in ("queues", "slots", "beat")] == [("a", "b"), 3, 0.5]
    with pytest.raises(ConfigError, match=r"slots in .* is True: use a whole number"):
        around(tmp_path, "slots = true").find("slots")
    with pytest.raises(ConfigError, match="is \\[1\\]: use names of queues"):
        around(tmp_path, "queues = [1]").find("queues")


def test_a_key_that_is_no_setting_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'there is not a setting "slotz". Did you mean "slots"'):
        around(tmp_path, "slotz = 3").find("beat")


def test_flags_that_may_be_repeated_are_one_list(desk: Desk) -> None:
    assert chosen_settings({"queues": ("a,b", "c"), "slots": None}) == {"queues": ("a", "b", "c"), "slots": 25}
    assert chosen_settings({"queues": ()}) == {"queues": ()}


def test_an_app_takes_what_its_code_does_not_say(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "pyproject.toml").write_text('[tool.laneway]\nurl = "sqlite:///other.db"\ndead_days = 7\ndead_after = "1m"\n')
    monkeypatch.setenv("LANEWAY_DEAD_MAX", "50")
    app = App(dead_after=20)
    assert app.url == "sqlite:///other.db"
    assert app.settings == {
        "dead_days": 7.0, "dead_max": 50, "dead_after": 20, "enqueue_timeout": 2.0, "connections": None,
    }  # fmt: skip
    assert app.sources["dead_after"] == "code"


@pytest.mark.parametrize("url", ["mysql://ada:secret@x", "nonsense", "sqlite:///x.db?tiemout=3"])
def test_a_bad_url_says_where_it_is_written(desk: Desk, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    (desk.folder / "pyproject.toml").write_text(f'[tool.laneway]\nurl = "{url}"\n')
    with pytest.raises(ConfigError, match=r"^\[tool.laneway\] url in pyproject.toml") as found:
        App()
    assert "secret" not in str(found.value)
    monkeypatch.setenv("LANEWAY_URL", url)
    with pytest.raises(ConfigError, match=r"^LANEWAY_URL"):
        App()


# -- the commands ------------------------------------------------------------------------------------------------


def test_a_worker_takes_its_settings_from_everywhere(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "pyproject.toml").write_text('[tool.laneway]\nslots = 3\nqueues = "mail"\n')
    command = [sys.executable, "-m", "laneway", "worker", "--burst", "-p", "1"]
    done = subprocess.run(
        command, cwd=desk.folder, env=environment(LANEWAY_PROCESSES="2"), capture_output=True, text=True, timeout=60, check=True
    )
    assert "queues mail, 3 slots" in done.stderr


@pytest.mark.parametrize(
    ("flags", "variables", "said"),
    [
        (["-s", "0"], {}, "--slots 0: use a whole number from 1"),
        (["--beat", "soon"], {}, "--beat soon: use seconds"),
        ([], {"LANEWAY_SLOTS": "many"}, "LANEWAY_SLOTS=many: use a whole number from 1"),
        ([], {"LANEWAY_MAX_MEMORY": "much"}, "LANEWAY_MAX_MEMORY=much: use an amount of memory: 400M or 2G"),
    ],
)
def test_a_bad_setting_of_a_worker_is_one_line(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, flags: list[str], variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert desk.mistake("worker", *flags).startswith(said)


def test_config_shows_every_setting_and_where_it_comes_from(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "pyproject.toml").write_text("[tool.laneway]\nprocesses = 4\n")
    (desk.folder / "app.py").write_text("from laneway import App\napp = App('sqlite:///mine.db', dead_max=5)")
    monkeypatch.setenv("LANEWAY_SLOTS", "7")
    found = {one["name"]: (one["value"], one["source"]) for one in desk.json("config")}
    assert list(found) == list(SETTINGS)
    assert found["url"] == ("sqlite:///mine.db", "code")
    assert found["dead_max"] == (5, "code")
    assert found["slots"] == (7, "LANEWAY_SLOTS")
    assert found["processes"] == (4, "[tool.laneway] processes in pyproject.toml")
    assert found["app"] == ("./app.py", "default")
    assert found["max_jobs"] == (None, "default")
    seen = desk.run("config", "--sources", "--store", "redis://ada:secret@x")
    assert "redis://ada:***@x" in seen
    assert "LANEWAY_SHUTDOWN_TIMEOUT" in seen


def test_config_never_shows_a_secret(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_DASHBOARD_PASSWORD", "hunter22")
    found = {one["name"]: one["value"] for one in desk.json("config")}
    assert (found["dashboard_password"], found["dashboard_token"]) == ("<hidden>", None)
    assert "hunter22" not in desk.run("config", "--sources")


def test_config_needs_no_app_and_names_what_is_no_setting(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "app.py").unlink()
    monkeypatch.setenv("LANEWAY_QUEUE", "mail")
    done = desk.call("config")
    assert done.exit_code == 0
    assert "app.py or main.py here" in done.stdout
    assert done.stderr == 'LANEWAY_QUEUE is not a setting. Did you mean "LANEWAY_QUEUES"?\n'


# -- a newcomer's mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["jobs", "list"], ["queues", "list"], ["enqueue", "app.add", "1"], ["schedules", "list"], ["top"]]
)
@pytest.mark.parametrize(
    ("app", "said"),
    [
        (None, "no app found"),
        ("helper = 7", 'there is no "app" in app.py'),
        ("import missing_thing", "No module named 'missing_thing'"),
        (
            "from laneway import App\napp = App()\n@app.task(schedule='0 25 * * *')\ndef f(): ...",
            "app.py, line 3: DeclarationError",
        ),
    ],
    ids=["missing", "wrong attribute", "import error", "bad cron"],
)
def test_an_app_that_cannot_be_used_is_one_line(desk: Desk, command: list[str], app: str | None, said: str) -> None:
    file = desk.folder / "app.py"
    file.unlink() if app is None else file.write_text(app)
    assert said in desk.mistake(*command)


@pytest.mark.parametrize("command", [["queues", "pause", "mail"], ["enqueue", "app.add", "1"], ["schedules", "list"]])
def test_an_error_in_what_the_app_imports_is_one_line(desk: Desk, command: list[str]) -> None:
    (desk.folder / "app.py").write_text("from laneway import App\napp = App(imports=['missing_thing'])")
    assert "No module named 'missing_thing'" in desk.mistake(*command)


@pytest.mark.parametrize(
    "command", [["jobs", "list"], ["queues", "resume", "mail"], ["workers", "list"], ["lanes", "list"], ["top"]]
)
def test_a_store_that_is_not_there_or_no_store_is_code_1(desk: Desk, command: list[str]) -> None:
    assert "there is no store" in desk.mistake(*command, code=1)
    (desk.folder / "text.db").write_text("this is no database\n" * 100)
    assert "no SQLite database" in desk.mistake(*command, "--store", "sqlite:///text.db", code=1)


def test_a_store_that_cannot_be_written_to_is_code_1(desk: Desk) -> None:
    desk.task("add").using(id="one").enqueue(1)
    desk.app.close()
    shutil.rmtree(desk.folder / "laneway.db-sync")
    (desk.folder / "laneway.db-sync").touch()  # a file where a folder should be: not even root can write there
    for command in (["enqueue", "app.add", "1"], ["jobs", "cancel", "one"], ["queues", "pause", "default"]):
        assert "cannot be written to" in desk.mistake(*command, code=1)
    assert len(desk.json("jobs", "list")) == 1


def test_a_folder_that_is_not_there_is_code_1(desk: Desk) -> None:
    assert "folder" in desk.mistake("enqueue", "app.add", "1", "--store", "sqlite:///nowhere/x.db", code=1)
