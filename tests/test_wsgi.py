"""The dashboard under WSGI: mounted in a program of its own kind of login, under gunicorn, with several processes and threads."""

from __future__ import annotations

import http.client
import io
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from laneway import App
from laneway.web import dashboard
from laneway.web.wsgi import as_wsgi
from redisbench import free_port
from test_shops import Programs, answers, needs_linux, opened
from workbench import until

httpx = pytest.importorskip("httpx")

PROGRAM = """
import os
from laneway import App
from laneway.web import dashboard
from laneway.web.wsgi import as_wsgi

jobs = App()

@jobs.task
def work(text: str) -> None: ...

def judge(request):
    role = request.scope["wsgi"].get("HTTP_X_ROLE")
    if role == "broken":
        raise OSError("no users here")
    return {"support": "read", "boss": "act"}.get(role)

site = as_wsgi(dashboard(jobs, auth=judge, secret="of all processes"))
site({**os.environ, "REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.url_scheme": "http"}, print)  # before the fork, in a parent

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/ops/jöbs".encode().decode("latin-1") or path.startswith("/ops/jöbs/".encode().decode("latin-1")):
        cut = len("/ops/jöbs".encode())
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = path[:cut], path[cut:]
        environ["REMOTE_USER"] = "ada"
        return site(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
ROOT = "/ops/j%C3%B6bs"
HERE = {"X-Role": "boss", "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
KINDS = {
    "sync": ("--workers", "2", "--preload"), "gthread": ("--workers", "2", "--threads", "4"),
    "gevent": ("--workers", "2", "--worker-class", "gevent"),
}  # fmt: skip


class Served:
    """The program under gunicorn."""

    def __init__(self, programs: Programs, port: int, url: str) -> None:
        self.programs, self.port = programs, port
        self.jobs = App(url)
        self.client = programs.client(port)
        self.client.headers.update(HERE)

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(f"{ROOT}{path}", headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.fixture(params=KINDS, scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("gunicorn")
    if request.param == "gevent":
        pytest.importorskip("gevent")
    folder, port = tmp_path_factory.mktemp("wsgi"), free_port()
    (folder / "program.py").write_text(PROGRAM)
    url = f"sqlite:///{folder}/jobs.db"
    command = ("gunicorn", "program:application", "--bind", f"127.0.0.1:{port}", "--log-level", "warning", *KINDS[request.param])
    with opened(Programs(folder, url)) as programs:
        programs.start("web", *command)
        made = Served(programs, port, url)
        until(lambda: answers(made.client, "/"))
        yield made
        made.jobs.close()


@needs_linux
def test_pages_links_and_files_are_below_where_it_is_mounted(served: Served) -> None:
    away = served.get("?q=1")
    assert (away.status_code, away.headers["location"]) == (308, f"{ROOT}/?q=1")
    page = served.get("/")
    assert (page.status_code, "Overview" in page.text) == (200, True)
    links = set(re.findall(r'(?:href|src)="(/[^"]*)"', page.text))
    assert {link for link in links if not link.startswith(f"{ROOT}/")} == set()
    assert {served.client.get(link).status_code for link in links if "static" in link} == {200}
    style = served.get("/static/style.css")
    assert served.get("/static/style.css", If_None_Match=style.headers["etag"]).status_code == 304
    assert served.get("/nowhere").status_code == 404
    assert served.get("/", X_Role="guest").status_code == 403
    assert served.client.put(f"{ROOT}/api/v1/counts").status_code == 405


@needs_linux
def test_a_connection_goes_on_after_every_kind_of_answer(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    lengths = []
    for method, path in [("HEAD", "/"), ("GET", "/"), ("HEAD", "/static/style.css"), ("GET", "/api/v1/live"), ("GET", "")]:
        connection.request(method, ROOT + path, headers=HERE)
        answer = connection.getresponse()
        lengths.append((answer.status, int(answer.getheader("content-length") or 0) > 0, len(answer.read()) > 0))
    connection.close()
    assert lengths == [(200, True, False), (200, True, True), (200, True, False), (200, True, True), (308, False, False)]


@needs_linux
def test_live_figures_are_one_event_and_a_time_to_come_back(served: Served) -> None:
    for _ in range(3):
        live = served.get("/api/v1/live")
        assert live.headers["content-type"].startswith("text/event-stream")
        retry, _, event, data = live.text.strip().split("\n")
        assert (retry, event) == ("retry: 2000", "event: figures")
        assert "counts" in json.loads(data.removeprefix("data: "))
    assert served.get("/api/v1/live", X_Role="guest").status_code == 403


@needs_linux
def test_actions_need_a_token_and_any_process_takes_it(served: Served) -> None:
    post = served.client.post
    pause, origin = f"{ROOT}/api/v1/queues/default/pause", {"Origin": f"http://127.0.0.1:{served.port}"}
    served.jobs.enqueue("program.work", "a", check=False)
    token = served.get("/api/v1/session").json()["csrf_token"]
    assert post(pause, headers=origin).status_code == 403
    assert post(pause, headers={"Origin": "http://evil.example", "X-CSRF-Token": token}).status_code == 403
    signed = {**origin, "X-CSRF-Token": token}
    assert [post(pause, headers=signed).status_code for _ in range(8)] == [200] * 8
    assert post(pause, headers={**signed, "X-Role": "support"}).status_code == 403

    def portions() -> Iterator[bytes]:
        yield b'{"all": '
        yield b"true}"

    served.jobs.enqueue("program.work", "b", check=False)
    kind = {"Content-Type": "application/json"}
    ended = post(f"{ROOT}/api/v1/jobs/kill_all", content=portions(), headers={**signed, **kind})  # without a length: chunked
    assert (ended.status_code, ended.json()["state"], ended.json()["changed"] >= 1) == (202, "done", True), ended.text
    assert post(pause, content=b"{", headers={**signed, **kind}).status_code == 400
    assert post(f"{ROOT}/api/v1/queues/default/resume", headers=signed).status_code == 200
    with httpx.Client(trust_env=False, timeout=20, base_url=str(served.client.base_url)) as other:  # its connection may end
        large = other.post(pause, content=b" " * (2 << 20), headers={**HERE, **signed, **kind})
    assert large.status_code == 413


@needs_linux
def test_large_answers_come_whole_and_many_threads_ask_at_once(served: Served) -> None:
    @served.jobs.task(name="program.large", queue="large")
    def large(number: int, text: str) -> None: ...

    large.enqueue_many((number, "x" * 10_000) for number in range(300))

    def ask(_: int) -> tuple[int, int]:
        with httpx.Client(trust_env=False, timeout=60, headers=HERE) as client:
            answer = client.get(f"http://127.0.0.1:{served.port}{ROOT}/api/v1/jobs", params={"queue": "large", "limit": 1000})
            return answer.status_code, len(answer.json()["jobs"])

    with ThreadPoolExecutor(8) as people:
        assert list(people.map(ask, range(12))) == [(200, 300)] * 12
    pids = {served.client.get("/", headers={"Connection": "close"}).text for _ in range(40)}
    assert len(pids) == 2  # both processes have lived through it


@needs_linux
def test_an_error_of_the_programs_own_is_an_answer_and_is_logged(served: Served) -> None:
    answer = served.get("/api/v1/counts", X_Role="broken")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "internal")
    until(lambda: any("OSError: no users here" in line for line in served.programs.said("web")))
    assert served.get("/api/v1/counts").status_code == 200


# -- one request at a time, without a server ---------------------------------------------------------------------


def ask(path: str, app: App, **environ: Any) -> tuple[str, dict[str, str], bytes]:
    """Ask as a server does that has just forked."""
    asked = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(), "REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "localhost", **environ,
    }  # fmt: skip
    said: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        said.append((status, dict(headers)))

    body = b"".join(as_wsgi(dashboard(app))(asked, start))
    return said[0][0], said[0][1], body


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, "200 OK"), ({"REMOTE_ADDR": "10.0.0.1"}, "403 Forbidden"), ({"REMOTE_ADDR": ""}, "403 Forbidden"),
        ({"HTTP_HOST": "evil.example"}, "403 Forbidden"), ({"HTTP_X_FORWARDED_FOR": "10.0.0.1"}, "403 Forbidden"),
        ({"SERVER_PROTOCOL": "HTTP/1.0"}, "403 Forbidden"), ({"HTTP_SEC_FETCH_SITE": "cross-site"}, "403 Forbidden"),
    ],
)  # fmt: skip
def test_without_credentials_it_is_for_this_machine(environ: dict[str, Any], status: str, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    assert ask("/api/v1/counts", app, **environ)[0] == status
    app.close()


def test_a_path_that_is_no_text_harms_nobody(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    assert ask("/jobs/\xff\xfe", app)[0] == "404 Not Found"
    assert ask("/api/v1/counts", app, CONTENT_LENGTH="much", SCRIPT_NAME="/a b")[0] == "200 OK"
    app.close()
