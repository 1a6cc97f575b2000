"""The extension for Flask: contexts, settings, databases, commands, tests, and the dashboard behind the program's own login."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laneway import App, Retry, Worker, current_job
from laneway.desk.context import JobContext
from laneway.desk.locate import find_app
from laneway.errors import ConfigError, NotSameDatabase
from test_docs import program

flask = pytest.importorskip("flask")
from laneway.contrib.flask import Laneway  # noqa: E402 - it needs Flask

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LANEWAY_URL", "LANEWAY_APP", "FLASK_APP"):
        monkeypatch.delenv(name, raising=False)


def made(jobs: Laneway, name: str = "shop", **config: Any) -> Any:
    """Return a Flask app with the extension."""
    app = flask.Flask(name)
    app.config.update({"LANEWAY_URL": f"sqlite:///{Path.cwd()}/{name}.db", "CURRENCY": "EUR", **config})
    jobs.init_app(app)
    return app


# -- contexts ----------------------------------------------------------------------------------------------------


def test_runs_of_flask_apps_are_inside_their_context() -> None:
    jobs = Laneway()
    seen: list[tuple[str, int]] = []
    ended: list[str] = []

    @jobs.task
    def plain(number: int) -> None:
        flask.g.number = getattr(flask.g, "number", 0) + number  # nothing is left of another run
        seen.append((flask.current_app.config["CURRENCY"], flask.g.number))

    @jobs.task
    async def later(number: int) -> None:
        plain(number)

    @jobs.task(retry=Retry(times=0))
    def fail() -> None:
        raise ValueError("no")

    app = made(jobs)
    app.teardown_appcontext(lambda error: ended.append(str(error)))
    for number in (1, 2):
        plain.enqueue(number)
        later.enqueue(number)
    fail.enqueue()
    Worker(jobs, slots=1).run(burst=True)
    jobs.close()

    assert sorted(seen) == [("EUR", 1), ("EUR", 1), ("EUR", 2), ("EUR", 2)]
    assert sorted(ended)[-1] == "no"
    assert len([one for one in ended if one == "None"]) >= 4
    assert not flask.has_app_context()


def test_each_flask_app_has_its_own_store_and_the_active_context_counts() -> None:
    jobs = Laneway()

    @jobs.task
    def work(where: str) -> None: ...

    first, second = made(jobs, "first"), made(jobs, "second")
    work.enqueue("last bound")
    with first.app_context():
        work.enqueue("first")
        assert [job.args for job in jobs.inspect.jobs()] == [["first"]]
    with second.app_context():
        assert [job.args for job in jobs.inspect.jobs()] == [["last bound"]]
    seen = []

    def enqueue(app: Any) -> None:
        for _ in range(20):
            with app.app_context():
                work.enqueue(app.name)
                seen.append({job.args[0] for job in jobs.inspect.jobs() if job.args} - {app.name, "last bound"})

    threads = [threading.Thread(target=enqueue, args=(app,)) for app in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jobs.close()
    assert (len(seen), set.union(*seen)) == (40, set())


def test_a_laneway_without_a_flask_app_says_what_to_do() -> None:
    jobs = Laneway()

    @jobs.task
    def work() -> None: ...

    with pytest.raises(ConfigError, match=r"bound to no Flask app yet: call init_app\(app\)"):
        work.enqueue()
    with jobs.testing("fake") as there:  # what needs no Flask can be tested without
        work.enqueue()
        assert there.drain() == 1


# -- settings ----------------------------------------------------------------------------------------------------


def test_settings_are_in_the_configuration_of_flask(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Laneway()
    made(jobs, LANEWAY_DEAD_DAYS=3, LANEWAY_ENQUEUE_TIMEOUT=None)
    assert (jobs.url, jobs.settings["dead_days"], jobs.settings["enqueue_timeout"]) == (f"sqlite:///{Path.cwd()}/shop.db", 3, 2.0)
    monkeypatch.setenv("LANEWAY_URL", "sqlite:///outside.db")
    made(jobs, LANEWAY_URL=None)
    assert jobs.url == "sqlite:///outside.db"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("LANEWAY_ULR", "x", r"app.config\['LANEWAY_ULR'\]: there is no such key. Did you mean .LANEWAY_URL.\? Keys: "),
        ("LANEWAY_SLOTS", 3, "there is no such key"),
        ("LANEWAY_URL", "nonsense://", "there is no store \"nonsense\""),
        ("LANEWAY_DEAD_DAYS", -1, "use a number greater than 0"),
        ("SQLALCHEMY_DATABASE_URI", "sqlite://", r"call db.init_app\(app\) before jobs.init_app\(app\)"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_flask_is_told_at_once(key: str, value: object, said: str) -> None:
    config: dict[str, Any] = {"LANEWAY_URL": None, key: value}
    with pytest.raises(ConfigError, match=said):
        made(Laneway(), **config)


def test_a_configuration_of_flask_may_be_a_copy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_SLOTS", "3")
    made(Laneway(), **os.environ)


def test_a_flask_app_has_one_laneway() -> None:
    jobs = Laneway()
    app = made(jobs)
    jobs.init_app(app)  # again: no harm
    with pytest.raises(ConfigError, match="has a Laneway already"):
        Laneway(app)


# -- Flask-SQLAlchemy --------------------------------------------------------------------------------------------


class Shop:
    """A Flask app with a table and a task that writes to it."""

    def __init__(self, address: str) -> None:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        self.db: Any = pytest.importorskip("flask_sqlalchemy").SQLAlchemy()
        self.jobs = jobs = Laneway()
        self.app = flask.Flask("shop", instance_path=str(Path.cwd() / "instance"))
        self.app.config["SQLALCHEMY_DATABASE_URI"] = address
        self.db.init_app(self.app)
        jobs.init_app(self.app)
        db = self.db

        class Order(db.Model):  # type: ignore[misc, name-defined]
            id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)
            shipped = sqlalchemy.Column(sqlalchemy.Boolean, default=False)

        @jobs.task(name="ship", retry=Retry(times=0))
        def ship(order_id: int, fails: bool = False) -> None:
            order = db.session.get(Order, order_id)
            order.shipped = True
            db.session.flush()
            if fails:
                raise ValueError("no")
            db.session.commit()

        self.order, self.ship = Order, ship
        with self.app.app_context():
            db.create_all()

    def place(self, *, commits: bool = True, fails: bool = False) -> int:
        """Write an order and its job."""
        with self.app.app_context(), self.jobs.transaction(self.db.session):
            order = self.order()
            self.db.session.add(order)
            self.db.session.flush()
            self.ship.enqueue(order.id, fails)
            number = int(order.id)
            if commits:
                self.db.session.commit()
        return number

    def shipped(self) -> list[bool]:
        with self.app.app_context():
            return [order.shipped for order in self.db.session.query(self.order).order_by(self.order.id)]

    def close(self) -> None:
        self.jobs.close()
        with self.app.app_context():
            self.db.engine.dispose()


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop("sqlite:///shop.db")
    yield made
    made.close()


def test_jobs_are_in_the_database_of_flask_sqlalchemy(shop: Shop) -> None:
    assert shop.jobs.url == f"sqlite:///{Path.cwd()}/instance/shop.db"
    shop.place()
    shop.place(commits=False)
    assert (len(shop.jobs.inspect.jobs()), shop.shipped()) == (1, [False])
    Worker(shop.jobs).run(burst=True)
    assert shop.shipped() == [True]


def test_a_session_ends_with_its_run(shop: Shop) -> None:
    shop.place(fails=True)
    shop.place()
    Worker(shop.jobs, slots=1).run(burst=True)  # in one thread: the first one leaves no lock and no row behind
    assert shop.shipped() == [False, True]
    assert shop.jobs.inspect.counts()["dead"] == 1
    with shop.app.app_context():
        assert shop.db.engine.pool.checkedout() == 0


def test_a_postgresql_database_of_flask_sqlalchemy_is_found() -> None:
    pytest.importorskip("psycopg")
    db, app, jobs = pytest.importorskip("flask_sqlalchemy").SQLAlchemy(), flask.Flask("shop"), Laneway()
    app.config["SQLALCHEMY_DATABASE_URI"] = "postgresql+psycopg://ada:p%40ss@db.example:5433/shop?sslmode=require"
    db.init_app(app)
    jobs.init_app(app)
    assert jobs.url == "postgresql://ada:p%40ss@db.example:5433/shop?sslmode=require"


def test_a_database_that_is_not_the_default_one_is_not_taken() -> None:
    db, app, jobs = pytest.importorskip("flask_sqlalchemy").SQLAlchemy(), flask.Flask("shop"), Laneway()
    app.config["SQLALCHEMY_BINDS"] = {"logs": "sqlite:///logs.db"}
    db.init_app(app)
    jobs.init_app(app)
    assert jobs.url == f"sqlite:///{Path.cwd()}/laneway.db"


def test_a_database_of_another_kind_is_refused() -> None:
    dialects = pytest.importorskip("sqlalchemy.dialects.sqlite.pysqlite")
    registry = pytest.importorskip("sqlalchemy.dialects").registry
    registry.impls["other"] = lambda: dialects.SQLiteDialect_pysqlite
    db, app = pytest.importorskip("flask_sqlalchemy").SQLAlchemy(), flask.Flask("shop")
    app.config["SQLALCHEMY_DATABASE_URI"] = "other:///shop.db"
    db.init_app(app)
    with pytest.raises(ConfigError, match="of the kind other, which can hold no jobs: set LANEWAY_URL"):
        Laneway(app)


def test_another_database_is_never_silently_taken(tmp_path: Path) -> None:
    shop = Shop("sqlite:///shop.db")
    shop.jobs.use_store(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(NotSameDatabase):
        shop.place()
    shop.close()


# -- tests of users ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["sqlite:///shop.db", "sqlite://"])
def test_jobs_of_a_request_can_be_looked_at_and_run_in_a_test(address: str) -> None:
    shop = Shop(address)
    shop.app.add_url_rule("/orders", view_func=lambda: str(shop.place()), methods=["POST"])
    with shop.jobs.testing("fake") as there:
        assert shop.app.test_client().post("/orders").status_code == 200
        there.assert_enqueued(shop.ship, 1)
        assert there.drain() == 1
    assert shop.shipped() == [True]
    with shop.jobs.testing("inline"):  # runs before the commit, in the session of the request
        assert shop.app.test_client().post("/orders").status_code == 200
    assert shop.shipped() == [True, True]
    shop.close()


def test_a_flask_app_that_is_made_during_a_test_uses_its_store_too() -> None:
    jobs = Laneway()

    @jobs.task
    def work() -> None: ...

    with jobs.testing("fake") as there:
        app = made(jobs)
        with app.app_context():
            work.enqueue()
        there.assert_enqueued(work)
    assert not Path("shop.db").exists()


# -- views -------------------------------------------------------------------------------------------------------


def test_a_view_tells_how_a_job_stands() -> None:
    jobs = Laneway()
    app = made(jobs)
    app.add_url_rule("/status/<id>", view_func=jobs.status_or_404)
    client = app.test_client()

    @jobs.task(keep_result=60, retry=Retry(times=0))
    def add(a: int, b: int) -> dict[str, int]:
        if a < 0:
            raise ValueError("too small")
        return {"sum": a + b}

    good, bad = add.enqueue(1, 2), add.enqueue(-1, 2)
    assert client.get(f"/status/{good.id}").json == {
        "id": good.id, "state": "ready", "progress": None, "result": None, "error": None,
    }  # fmt: skip
    Worker(jobs).run(burst=True)
    assert client.get(f"/status/{good.id}").json["result"] == {"sum": 3}
    assert {"state": "dead", "error": "too small"}.items() <= client.get(f"/status/{bad.id}").json.items()
    assert client.get("/status/nobody").status_code == 404
    jobs.close()


def test_a_view_tells_of_progress_of_the_last_failure_and_of_a_result_that_cannot_be_read() -> None:
    jobs = Laneway()
    app = made(jobs)
    app.add_url_rule("/status/<id>", view_func=jobs.status_or_404)
    client = app.test_client()

    @jobs.task(keep_result=60, retry=Retry(times=1, backoff=0))
    def work() -> int:
        if current_job().attempt == 1:
            current_job().progress(3, 4)
            raise ValueError("too early")
        return 1

    told: list[Any] = []

    @jobs.middleware
    def look(job: JobContext) -> Iterator[None]:
        told.append(client.get(f"/status/{job.id}").json)
        yield

    job = work.enqueue()
    Worker(jobs).run(burst=True)
    assert [(one["state"], one["progress"], one["error"]) for one in told] == [
        ("running", None, None), ("running", [3, 4], "too early"),
    ]  # fmt: skip
    done = client.get(f"/status/{job.id}").json
    assert done == {"id": job.id, "state": "done", "progress": [3, 4], "result": 1, "error": None}
    with sqlite3.connect("shop.db") as file:
        file.execute("update laneway_finished set value = x'ff'")
    assert client.get(f"/status/{job.id}").json == {**done, "result": None}
    jobs.close()


# -- the dashboard -----------------------------------------------------------------------------------------------


HERE = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
PAUSE = "/ops/jobs/api/v1/queues/default/pause"


def site(jobs: Laneway, auth: Any, **config: Any) -> Any:
    """Return a Flask app with the dashboard in a blueprint of its own."""
    app = made(jobs, **{"SECRET_KEY": "of a test", **config})
    around = flask.Blueprint("ops", __name__, url_prefix="/ops")
    around.register_blueprint(jobs.dashboard(auth=auth))
    app.register_blueprint(around)
    return app


def test_the_dashboard_asks_the_program_who_may(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("starlette")
    jobs = Laneway()
    seen: list[bytes] = []

    def auth() -> Any:
        role = flask.request.headers.get("X-Role")
        flask.g.user = "ada"
        return flask.redirect("/login") if role is None else {"support": "read", "boss": "act"}.get(role)

    @jobs.task
    def work() -> None: ...

    app = site(jobs, auth)

    @app.before_request  # type: ignore[untyped-decorator]
    def look() -> None:
        seen.append(flask.request.get_data())  # before the dashboard reads it

    client = app.test_client()
    work.enqueue()
    assert client.get("/ops/jobs/").location == "/login"
    assert client.get("/ops/jobs/api/v1/live", headers={"X-Role": "guest"}).status_code == 403
    for role in ("support", "boss"):
        page = client.get("/ops/jobs/", headers={"X-Role": role})
        assert (page.status_code, 'data-root="/ops/jobs/"' in page.text) == (200, True)
        assert page.headers["Cache-Control"] == "no-store"
    assert client.get("/ops/jobs", headers={"X-Role": "boss"}).status_code == 308
    assert client.head("/ops/jobs/", headers={"X-Role": "boss"}).data == b""
    assert client.get("/ops/jobs/nowhere", headers={"X-Role": "boss"}).status_code == 404
    assert client.get("/ops/jobs/static/style.css", headers={"X-Role": "support"}).status_code == 200
    live = client.get("/ops/jobs/api/v1/live", headers={"X-Role": "boss"})
    assert live.text.startswith("retry: 2000\nid: 1\nevent: figures\ndata: {")

    tokens = {
        role: client.get("/ops/jobs/api/v1/session", headers={"X-Role": role}).json["csrf_token"] for role in ("support", "boss")
    }
    acted = [
        client.post(PAUSE, json={}, headers={**HERE, "X-Role": role, "X-CSRF-Token": token}).status_code
        for role, token in [("boss", ""), ("support", tokens["support"]), ("boss", tokens["support"]), ("boss", tokens["boss"])]
    ]
    assert acted == [403, 403, 403, 200]
    with caplog.at_level("INFO", "laneway.audit"):
        marked = {**HERE, "X-Role": "boss", "X-CSRF-Token": tokens["boss"]}
        answer = client.post("/ops/jobs/api/v1/jobs/kill_all", json={"all": True}, headers=marked)
    assert (answer.status_code, answer.json["state"], answer.json["changed"]) == (202, "done", 1)  # waited for
    assert "ada" in caplog.text
    assert b'"all": true' in seen[-1]
    large = client.post(PAUSE, data=b" " * (2 << 20), content_type="application/json", headers=marked)
    assert large.status_code == 413
    jobs.close()


def test_a_user_of_flask_login_may_use_the_dashboard() -> None:
    pytest.importorskip("starlette")
    login = pytest.importorskip("flask_login")
    jobs = Laneway()

    class User(login.UserMixin):  # type: ignore[misc, name-defined]
        id = "7"
        email = "ada@example"

    @login.login_required  # type: ignore[untyped-decorator]
    def auth() -> str:
        return "act"

    app = site(jobs, auth)
    manager = login.LoginManager(app)
    manager.user_loader(lambda _: User())
    manager.login_view = "enter"
    app.add_url_rule("/login", "enter", lambda: str(login.login_user(User())))
    client = app.test_client()
    assert client.get("/ops/jobs/").location.startswith("/login?next=")
    assert client.get("/login").text == "True"
    assert client.get("/ops/jobs/").status_code == 200
    jobs.close()


def test_the_dashboard_without_auth_is_for_this_machine() -> None:
    pytest.importorskip("starlette")
    jobs = Laneway()
    client = site(jobs, None).test_client()
    assert client.get("/ops/jobs/").status_code == 200
    assert client.get("/ops/jobs/", environ_base={"REMOTE_ADDR": "10.0.0.1"}).status_code == 403
    jobs.close()


def test_the_dashboard_can_be_mounted_beside_a_flask_app() -> None:
    pytest.importorskip("starlette")
    from werkzeug.middleware.dispatcher import DispatcherMiddleware  # noqa: PLC0415 - Flask brings it

    from laneway.web import dashboard  # noqa: PLC0415 - it needs an extra
    from laneway.web.wsgi import as_wsgi  # noqa: PLC0415

    jobs = Laneway()
    app = made(jobs)
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/jobs": as_wsgi(dashboard(jobs))})
    client = app.test_client()
    assert client.get("/jobs").location == "/jobs/"
    assert client.get("/jobs/api/v1/counts").json["ready"] == 0
    assert client.get("/elsewhere").status_code == 404
    jobs.close()


def test_the_dashboard_with_auth_needs_a_secret_key() -> None:
    pytest.importorskip("starlette")
    with pytest.raises(ConfigError, match=r"set app.secret_key before you register its blueprint"):
        site(Laneway(), lambda: "act", SECRET_KEY=None)


def test_the_tests_on_the_page_about_flask_pass() -> None:
    pytest.importorskip("flask_sqlalchemy")
    pytest.importorskip("starlette")
    Path("test_shop.py").write_text(program((ROOT / "docs" / "flask.md").read_text(encoding="utf-8")))
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_shop.py")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


# -- commands ----------------------------------------------------------------------------------------------------


PROGRAM = """
import os
from flask import Flask, current_app
from flask.cli import FlaskGroup
from laneway.contrib.flask import Laneway

jobs = Laneway()

def say(text: str) -> None:
    os.write(1, f"{text} {current_app.config['CURRENCY']}\\n".encode())

@jobs.task
def plain() -> None:
    say("plain")

@jobs.task
async def later() -> None:
    say("later")

@jobs.task(isolate=True)
def alone() -> None:
    say("alone")

made = 0

def create_app(currency: str = "EUR") -> Flask:
    global made
    made += 1
    assert made == 1, "the app was made twice"
    app = Flask(__name__)
    app.config.update(LANEWAY_URL="sqlite:///jobs.db", CURRENCY=currency)
    jobs.init_app(app)
    return app

if __name__ == "__main__":
    FlaskGroup(create_app=create_app)()
"""
FLASK = ("-m", "flask", "--app")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program in this folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LANEWAY_", "FLASK_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", *command], env=clean, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "worker", "currency"),
    [
        ((*FLASK, "shop", "laneway"), (), "EUR"),
        ((*FLASK, "shop:create_app('USD')", "laneway"), (), "USD"),
        (("shop.py", "laneway"), (), "EUR"),
        (("-m", "laneway"), ("shop:create_app",), "EUR"),
        (("-m", "laneway"), ("./shop.py",), "EUR"),
    ],
    ids=["flask", "flask with arguments", "a script", "laneway", "a file"],
)  # fmt: skip
def test_commands_find_what_a_factory_of_flask_makes(start: tuple[str, ...], worker: tuple[str, ...], currency: str) -> None:
    Path("shop.py").write_text(PROGRAM)
    named = ["-A", *worker] if worker else []
    for task in ("plain", "later", "alone"):
        assert run(*start, "enqueue", *named, f"shop.{task}").returncode == 0
    done = run(*start, "worker", *worker, "--burst", "-p", "2")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{task} {currency}" for task in ("alone", "later", "plain")]
    assert "3 done" in done.stderr


def test_mistakes_at_flask_laneway_are_one_line() -> None:
    Path("shop.py").write_text(PROGRAM)
    wrong = run(*FLASK, "shop", "laneway", "statsu")
    assert (wrong.returncode, 'Did you mean "status"?' in wrong.stderr, wrong.stderr.count("\n")) == (2, True, 1)
    assert "flask laneway [OPTIONS] COMMAND" in run(*FLASK, "shop", "laneway", "--help").stdout.replace("[COMMAND]", "COMMAND")
    unbound = run("-m", "laneway", "worker", "shop:jobs")
    assert '"jobs" in shop.py is bound to no web program yet: name what makes it, such as shop:create_app' in unbound.stderr
    Path("broken.py").write_text(PROGRAM.replace("made += 1", "raise OSError('no disk')"))
    broken = run("-m", "laneway", "worker", "broken")
    assert (broken.returncode, broken.stderr.count("\n")) == (2, 1), broken.stderr
    assert '"create_app" in broken.py cannot be called: broken.py, line' in broken.stderr


def test_a_flask_app_stands_for_its_extension(tmp_path: Path) -> None:
    Path("web.py").write_text(
        "from flask import Flask\nfrom laneway import App\nfrom laneway.contrib.flask import Laneway\n"
        "app = Flask('web')\nbare = Flask('bare')\none = App('sqlite://')\ntwo = Laneway(app)\nnumber = lambda: 3\n"
    )
    module = sys.modules.pop("web", None)
    try:
        assert isinstance(find_app("web:app", None), Laneway)
        assert type(find_app("web:one", None)) is App
        with pytest.raises(ConfigError, match=r'"bare" in web.py is a Flask, not an App'):
            find_app("web:bare", None)
        with pytest.raises(ConfigError, match=r'"number" in web.py returns a int, not an App'):
            find_app("web:number", None)
    finally:
        sys.modules.pop("web", None)
        sys.path.remove(str(tmp_path))
    assert module is None
