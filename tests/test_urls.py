"""A store's URL may have a password in it: nothing that is printed, logged, raised or shown in `ps` does."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clidesk import Desk, environment, open_desk
from laneway import App
from laneway.config import mask_urls, safe_url
from laneway.errors import LanewayError
from laneway.settings import Settings
from laneway.store import StoreSettings, check_url, open_store
from laneway.store.registry import parse_url
from laneway.web.pages.mount import PAGES
from webdesk import DEADLINE, LOOKS, visiting

#: With a secret in them. Those that are well-formed name a port on which nobody listens.
SHAPES = (
    "redis://ada:{}@127.0.0.1:1/0", "redis://:{}@127.0.0.1:1", "rediss://ada:{}@127.0.0.1:1/0?timeout=1", "redis://{}@127.0.0.1:1",
    "redis://127.0.0.1:1/0?password={}", "rediss://127.0.0.1:1/0?ssl_keyfile_password={}&db=0", "unix://:{}@/nowhere.sock",
    "unix:///nowhere.sock?password={}", "redis://127.0.0.1:1/0?pasword={}", "redis://127.0.0.1:1/0?%70assword={}",
    "redis://ada:{}@[::1", "redis://:{}@[::1:1/0", "redis://[::1]:{}@h/0", "redis://[{}@h/0", "ada:{}@h/0", ":{}@h/0",
    "//:{}@h/0", "redis:/:{}@h", "redis:{}@h", "redis//:{}@h", "://:{}@h", "mysql://ada:{}@h/x", "sqlite://ada:{}@h/x.db", "sqlite://:{}@",
    "sqlite:///x.db?password={}", "sqlite://?password={}", "redis://:{}", "redis://ada:{}", "redis://ada:{}@127.0.0.1:port/0",
    "redis://ada:{}@127.0.0.1:1/x", "redis://ada:{}@127.0.0.1:1/0#x", "redis://127.0.0.1:1/0#{}", "redis://ada:{}@127.0.0.1:1/0?x=1",
    "redis://ada:{}@127.0.0.1:1/0?connections=x", "redis://ada:{}@\u2100/0", " redis://ada:{}@127.0.0.1:1/0",
)  # fmt: skip
SECRETS = ("hunter22", "hunt@er/2#2:[x]", quote("hunt@er/2#2:[x]", safe=""), "%68unter22", "hunt:er@22", "[hunter22")
URLS = [shape.format(secret) for shape in SHAPES for secret in SECRETS[:2]]
#: Nothing of it may be seen; the shortest says enough, since parts of a secret are as telling.
TELLING = ("hunter", "hunt@er", "hunt:er", "er/2", "er%2F2", "%68unter", "er@22")


def check_hidden(*texts: str) -> None:
    for text in texts:
        for part in TELLING:
            assert part not in text


def said(error: BaseException) -> str:
    """Return all that a traceback would show."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("secret", SECRETS)
def test_no_call_that_takes_a_url_tells_its_secret(
    shape: str, secret: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = shape.format(secret)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[tool.laneway]\nurl = ['{url}']\n")
    monkeypatch.setenv("LANEWAY_URL", url)

    def use() -> None:
        with contextlib.closing(App(url)) as app:
            check_hidden(repr(app), str(app), repr(app.store), str(app.store))
            app.inspect.counts()

    other = App("sqlite://")
    settings = StoreSettings(dead_days=1.0, dead_max=1, dead_after=1.0)
    calls = (
        use, App, lambda: other.use_store(url), lambda: parse_url(url), lambda: parse_url(url.encode()), lambda: check_url(url),
        lambda: open_store(url, settings), lambda: Settings({}).find("url"), lambda: App(url.encode()),  # type: ignore[arg-type]
    )  # fmt: skip
    for call in calls:
        try:
            check_hidden(repr(call()))
        except LanewayError as error:
            check_hidden(said(error).replace(f"'{url}'", ""))  # our own lines are in it, as the source has them
    check_hidden(caplog.text)


COMMANDS = (
    ["status"], ["status", "--json"], ["top", "--once"], ["jobs", "list"], ["queues", "list"], ["lanes", "list"],
    ["workers", "list"], ["schedules", "list"], ["enqueue", "app.add", "1"], ["plan"], ["migrate"], ["config"],
    ["config", "--json", "--sources"], ["dashboard", "--host", "192.0.2.1"],
)  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from open_desk(tmp_path, monkeypatch)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_tells_the_secret_of_its_store(
    desk: Desk, words: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Each URL in each way with one command; with the others, which read it the same, in one way.
    for number, url in enumerate(URLS):
        ways = [["--store", url], [f"--store={url}"], [], *([[url]] if re.match(r"\w+://", url) else [])]
        for way in ways if words == ["status"] else [ways[(number + len("".join(words))) % len(ways)]]:
            if not way:
                monkeypatch.setenv("LANEWAY_URL", url)
                sys.modules.pop("app", None)
            done = desk.call(*words, *way)
            monkeypatch.delenv("LANEWAY_URL", raising=False)
            assert done.exception is None or isinstance(done.exception, SystemExit), (url, done.exception)
            check_hidden(done.output)
    check_hidden(caplog.text)


@pytest.mark.parametrize(
    "words", [["--store", "redis://ada:hunter22@127.0.0.1:1/0"], ["--store=redis://127.0.0.1:1/0?password=hunter22"]]
)
def test_ps_does_not_show_the_secret_of_a_command(desk: Desk, words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "laneway", "dashboard", "--port", "0", *words], cwd=desk.folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    opening = process.stdout.readline()
    ps = shutil.which("ps") or "/bin/ps"
    listed = subprocess.run([ps, "-o", "args=", "-p", str(process.pid)], capture_output=True, text=True, check=True).stdout
    title = Path(f"/proc/{process.pid}/cmdline").read_text() if os.path.exists("/proc/self/cmdline") else ""
    found = re.search(r"http://\S+:\d+/", opening)
    assert found, opening
    answers = [
        httpx.get(f"{found[0]}{path}", trust_env=False, timeout=DEADLINE).text for path in ("", "jobs", "healthz", "metrics")
    ]
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=DEADLINE)
    assert "dashboard" in listed
    check_hidden(opening, listed, title, *rest, *answers)


@pytest.mark.parametrize("url", ["redis://ada:hunter22@127.0.0.1:1/0", "redis://ada:hunter22@127.0.0.1:x/0"])
def test_a_worker_does_not_tell_the_secret_of_its_store(desk: Desk, url: str) -> None:
    command = [sys.executable, "-m", "laneway", "worker", "--burst", "--store", url]
    done = subprocess.run(command, cwd=desk.folder, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "ada:***" in done.stderr
    check_hidden(done.stdout, done.stderr)


def test_no_page_shows_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.closing(App("redis://ada:hunter22@127.0.0.1:1/0?timeout=1")) as app, visiting(app) as client:
        for path in [page.path for page in PAGES] + [look.path for look in LOOKS]:
            check_hidden(client.ask("GET", path, headers={"accept": "text/html"}).text)
    check_hidden(caplog.text)


text = st.text(st.sampled_from("ab9@/#:[]?%&=+. "), max_size=12)


@given(st.sampled_from(SHAPES), text)
@example("redis://{}@127.0.0.1:1", ":")
@example("redis://{}@127.0.0.1:1", "?")
def test_whatever_the_secret_is_it_is_not_shown_whole(shape: str, more: str) -> None:
    secret = f"Zq9{more}"
    url = shape.format(secret)
    shown = [safe_url(url), safe_url(safe_url(url)), mask_urls(f"what about {url}?" if " " not in url and "://" in url else "")]
    try:
        shown.append(repr(check_url(url)))
    except LanewayError as error:
        shown.append(str(error))
    for one in shown:
        assert secret not in one
        assert unquote(secret) not in one


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost", "redis://localhost:6379/0", "rediss://[::1]:6380/1?db=1&client_name=a&timeout=2", "sqlite://",
        "sqlite:////home/ada@work/jobs.db?synchronous=full", "unix:///run/redis.sock?db=2", "nonsense", "redis://a.b-c/0",
        "rediss://h/0?ssl_ca_certs=/etc/ca.pem&ssl_keyfile=/etc/key.pem&username=ada",
    ],
)  # fmt: skip
def test_a_url_without_a_secret_is_shown_as_it_is(url: str) -> None:
    assert safe_url(url) == url
