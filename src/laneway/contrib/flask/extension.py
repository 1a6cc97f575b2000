"""The extension: an `App` whose settings and store come from a Flask app.

Tasks are declared once, on the extension. Each Flask app that it is bound to has a store of its own, as its configuration says:
the app whose context is active counts, else the one that was bound last. Without LANEWAY_URL the store is in the database of
Flask-SQLAlchemy, so that an enqueue can be part of a session's transaction.

Enters: Flask apps.  Leaves: runs inside of their contexts.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from laneway.core.job import FINISHED
from laneway.desk.app import App
from laneway.errors import ConfigError, UnknownJob, did_you_mean
from laneway.present.job_status import job_status
from laneway.settings import PREFIX, Settings
from laneway.store.contract import Store
from laneway.store.inspection import Inspect

try:
    from flask import Flask, abort, current_app, has_app_context
except ModuleNotFoundError as missing:
    raise ConfigError('laneway.contrib.flask needs Flask: pip install "laneway[flask]"') from missing

from laneway.contrib.flask.command import command

if TYPE_CHECKING:
    from flask import Blueprint
    from flask.ctx import AppContext

    from laneway.contrib.flask.pages import FlaskAuth
    from laneway.testing import Testing

__all__ = ["Laneway"]

#: Keys of a Flask app's configuration: options of `App` in capitals.
OPTIONS = ("URL", "OUTBOX", "DEAD_DAYS", "DEAD_MAX", "DEAD_AFTER", "ENQUEUE_TIMEOUT", "CONNECTIONS")
KEYS = tuple(f"{PREFIX}{option}" for option in OPTIONS)
UNBOUND = (
    "this Laneway is bound to no Flask app yet: call init_app(app). A command finds your app as in: "
    "flask --app shop laneway worker, or laneway worker shop:create_app"
)


class Laneway(App):
    """Tasks of Flask apps, and the stores their jobs live in.

    >>> from flask import Flask, current_app
    >>> app = Flask("shop")
    >>> app.config.update(LANEWAY_URL="sqlite://", CURRENCY="EUR")
    >>> jobs = Laneway(app)
    >>> @jobs.task
    ... def price(cents: int) -> str:
    ...     return f"{cents / 100:.2f} {current_app.config['CURRENCY']}"
    >>> with jobs.testing("inline"):
    ...     price.using(id="first").enqueue(450).created
    True
    """

    def __init__(
        self, app: Flask | None = None, *, imports: Iterable[str] = (),
        format_error: Callable[[BaseException], str] | None = None,
    ) -> None:  # fmt: skip
        self._stores_of: weakref.WeakKeyDictionary[Flask, App] = weakref.WeakKeyDictionary()  # the app that has the store
        self._engines_of: weakref.WeakKeyDictionary[Flask, list[Any]] = weakref.WeakKeyDictionary()
        self._last: Flask | None = None
        self.inline: AppContext | None = None  #: where a test has enqueued the job that runs now; see `under_test`
        super().__init__("sqlite://", imports=imports, format_error=format_error)
        self.middleware(self._in_context)
        _extensions.add(self)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Bind the extension to a Flask app: read its settings, and give it the commands `flask laneway …`."""
        if app.extensions.get("laneway", self) is not self:
            raise ConfigError("this Flask app has a Laneway already: declare all its tasks on one")
        keeper = App(**_read_settings(app))
        before = self._stores_of.get(app)
        if before is not None:
            before.close()
        self._stores_of[app] = keeper
        weakref.finalize(app, keeper.close).atexit = False
        self._last = app
        self.url, self.settings, self.sources, self.dead_after = keeper.url, keeper.settings, keeper.sources, keeper.dead_after
        self.desk.outbox = keeper.desk.outbox
        app.extensions["laneway"] = self
        app.cli.add_command(command)

    @property
    def is_bound(self) -> bool:
        """Whether a Flask app has said where the store is."""
        return self._last is not None

    @property
    def flask(self) -> Flask:
        """The Flask app: the one whose context is active, if it uses this extension, else the one that was bound last."""
        if has_app_context() and current_app.extensions.get("laneway") is self:
            return current_app._get_current_object()  # type: ignore[attr-defined, no-any-return]
        if self._last is None:
            raise ConfigError(UNBOUND)
        return self._last

    # -- the store -------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Store, Inspect]:
        keeper = self._stores_of[self.flask]
        return keeper._stores or keeper._open()

    def use_store(self, url: str) -> None:
        """Use this store from now on, in place of the one in the configuration."""
        self._stores_of[self.flask].use_store(url)
        self.url = url

    def set_connections(self, connections: int) -> None:
        """Set the most connections of this process to a store on a server, overriding all other settings."""
        self._stores_of[self.flask].set_connections(connections)

    def close(self) -> None:
        """Close the stores' files and connections. The next use opens them again."""
        for keeper in list(self._stores_of.values()):
            keeper.close()

    def close_databases(self) -> None:
        """Close idle connections of Flask-SQLAlchemy; for forks."""
        for app in list(self._stores_of):
            if app not in self._engines_of and "sqlalchemy" in app.extensions:
                self._engines_of[app] = list(_engines(app).values())
            for engine in self._engines_of.get(app, ()):
                if engine.url.get_backend_name() != "sqlite" or _sqlite_file(engine) is not None:  # else its tables would be gone
                    engine.dispose()

    # -- runs ------------------------------------------------------------------------------------------------

    def _in_context(self, _: object) -> Iterator[None]:
        """Run a job in a context of its own: when it ends, sessions are removed, as after a request."""
        if self._last is None and self.desk.is_tested:  # a test of what needs no Flask
            yield
            return
        with self.inline or self.flask.app_context():
            yield

    def testing(self, mode: str) -> Testing:
        """Put the app under test: `with jobs.testing("fake") as there`. See `laneway.testing`."""
        from laneway.contrib.flask.under_test import FlaskTesting  # noqa: PLC0415 - only tests need it

        return FlaskTesting(self, mode)

    # -- for views -------------------------------------------------------------------------------------------

    def status_or_404(self, id: str) -> dict[str, Any]:  # noqa: A002 - the glossary's word
        """Return how a job stands, for a view to return as JSON: its id, state, progress, result and last error.

        Aborts with 404 if there is no such job: it never was, or has finished and its result is not kept any more.
        """
        try:
            status = job_status(self, id)
        except UnknownJob as unknown:
            abort(404, str(unknown))
        progress, errors = status["progress"], status["errors"]
        return {
            "id": id,
            "state": status["state"],
            "progress": None if progress is None else [progress["done"], progress["total"]],
            "result": status["result"],
            "error": errors[-1]["message"] if errors and status["state"] not in FINISHED else None,
        }

    def dashboard(self, auth: FlaskAuth | None = None, **options: Any) -> Blueprint:
        """Return the dashboard as a blueprint: `app.register_blueprint(jobs.dashboard(auth=staff), url_prefix="/jobs")`.

        `auth` is a function without arguments that says what the user of this request may do: "read", "act" or None. It may also
        return a response, such as a redirect to a login page. Without it only this machine is let in. Other options are those of
        `laneway.web.dashboard`.
        """
        from laneway.contrib.flask.pages import make_blueprint  # noqa: PLC0415 - it needs an extra

        return make_blueprint(self, auth, options)


#: All of this process. A factory makes tables when it is called, in a process that forks afterwards: a zygote, or a server that
#: preloads. Two processes with one connection would read each other's answers, and lose the locks of an SQLite file.
_extensions: weakref.WeakSet[Laneway] = weakref.WeakSet()


def _before_fork() -> None:
    for one in list(_extensions):
        one.close_databases()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


# -- settings --------------------------------------------------------------------------------------------------------


def _read_settings(app: Flask) -> dict[str, Any]:
    """Return the options of `App` that a Flask app's configuration has; without an address, that of its database."""
    config = cast("dict[str, Any]", app.config)
    for key, value in config.items():
        if key.startswith(PREFIX) and key not in KEYS and os.environ.get(key) != value:  # some programs copy the environment
            raise ConfigError(f"app.config[{key!r}]: there is no such key.{did_you_mean(key, KEYS)} Keys: {', '.join(KEYS)}")
    options = {option.lower(): config.get(f"{PREFIX}{option}") for option in OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    if "url" not in given and Settings().find("url").value is None and (url := _database_url(app)):
        given["url"] = url
    return given


def _database_url(app: Flask) -> str | None:
    """Return the address of a store in the database of Flask-SQLAlchemy; None: the app does not use it."""
    if "sqlalchemy" not in app.extensions and cast("dict[str, Any]", app.config).get("SQLALCHEMY_DATABASE_URI"):
        raise ConfigError("call db.init_app(app) before jobs.init_app(app): without LANEWAY_URL the jobs are in its database")
    engine = _engines(app).get(None)
    if engine is None:
        return None
    if engine.url.get_backend_name() == "postgresql":
        return str(engine.url.set(drivername="postgresql").render_as_string(hide_password=False))
    if engine.url.get_backend_name() == "sqlite":
        file = _sqlite_file(engine)
        return "sqlite://" if file is None else f"sqlite:///{quote(file)}"
    raise ConfigError(
        f"the database of Flask-SQLAlchemy is of the kind {engine.url.get_backend_name()}, which can hold no jobs: set "
        'LANEWAY_URL, such as "redis://localhost:6379/0"'
    )


def _engines(app: Flask) -> dict[str | None, Any]:
    """Return the engines of Flask-SQLAlchemy by their bind keys; that of the default is None."""
    with app.app_context():
        return dict(getattr(app.extensions.get("sqlalchemy"), "engines", {}))


def _sqlite_file(engine: Any) -> str | None:
    """Return the path of an engine's file; None: it is in memory."""
    name = str(engine.url.database or ":memory:")
    if ":memory:" in name or "mode=memory" in str(engine.url):
        return None
    return str(Path(name.removeprefix("file:").partition("?")[0]).absolute())
