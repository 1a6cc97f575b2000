"""A Django project's app: its settings, its store, and what is around its runs.

Without a URL the jobs are in a database of Django's, so that an enqueue in `atomic()` is part of the transaction. The store, or
the outbox, goes where Django goes: while tests run, its databases have other names.

Enters: the setting `LANEWAY`.  Leaves: an `App`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote, urlencode

from laneway.desk.app import App
from laneway.desk.task_base import TaskBase
from laneway.desk.transaction import find_outbox
from laneway.errors import ConfigError, did_you_mean
from laneway.outbox.database import OutboxURL
from laneway.outbox.tables import create
from laneway.settings import UNSET, Found, Settings
from laneway.store.backends import LIBPQ
from laneway.store.contract import Store
from laneway.store.inspection import Inspect

try:
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.db import connections
    from django.db.backends.signals import connection_created

    from laneway.contrib.django.connections import forget_inherited, with_own_async_connections, with_own_connections
except ModuleNotFoundError as missing:
    raise ConfigError('laneway.contrib.django needs Django: pip install "laneway[django]"') from missing

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["IN_MEMORY", "Atomic", "ProjectApp", "ProjectSettings", "database_url", "make_tables", "project_app", "read_settings"]

Atomic = Literal["join", "outbox", "commit"]
ATOMIC = ("join", "outbox", "commit")
#: Keys of LANEWAY that are the app's own options in capitals.
OPTIONS = ("DEAD_DAYS", "DEAD_MAX", "DEAD_AFTER", "ENQUEUE_TIMEOUT", "CONNECTIONS", "FORMAT_ERROR")
KEYS = ("URL", "DATABASE", "ATOMIC", "PERMISSION", *OPTIONS)
#: Loads Django and finds the tasks; imported by whatever needs the tasks.
DISCOVER = "laneway.contrib.django.discover"
IN_MEMORY = "sqlite://"


class ProjectSettings:
    """The setting `LANEWAY`, checked."""

    def __init__(self, given: object) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(f'LANEWAY = {given!r}: use a dict, such as {{"URL": "redis://localhost:6379/0"}}')
        values: dict[str, Any] = dict(cast("Mapping[str, Any]", given))
        for key in values:
            if key not in KEYS:
                raise ConfigError(f"LANEWAY has no key {key!r}.{did_you_mean(str(key), KEYS)} Keys: {', '.join(KEYS)}")
        self.url: str | None = values.get("URL")
        self.database: str = values.get("DATABASE", "default")  #: the alias whose transactions an enqueue takes part in
        self.atomic: Atomic | None = values.get("ATOMIC")  #: None: join in the same database, else commit
        self.permission: str | None = values.get("PERMISSION")  #: to use the dashboard; None: staff may
        self.options = {key.lower(): values[key] for key in OPTIONS if key in values}
        if self.database not in settings.DATABASES:
            known = ", ".join(settings.DATABASES)
            raise ConfigError(f'LANEWAY["DATABASE"] = {self.database!r}: DATABASES has no such alias, only {known}')
        if self.atomic is not None and self.atomic not in ATOMIC:
            raise ConfigError(f'LANEWAY["ATOMIC"] = {self.atomic!r}: use one of {", ".join(map(repr, ATOMIC))}, or leave it out')


def read_settings() -> ProjectSettings:
    """Read the setting `LANEWAY`; without one everything has its default."""
    try:
        given = getattr(settings, "LANEWAY", {})
    except ImproperlyConfigured:
        raise ConfigError(
            "DJANGO_SETTINGS_MODULE is not set: run manage.py laneway, or set it, such as to shop.settings"
        ) from None
    return ProjectSettings(given)


class ProjectApp(App):
    """The app of a Django project."""

    def __init__(self, chosen: ProjectSettings) -> None:
        around, self.alias = Settings(), chosen.database  #: of the database whose transactions an enqueue takes part in
        #: whether the store is in a database of Django's, since the settings name no other place
        self.is_inside = chosen.url is None and around.find("url").value is None
        # An outbox is in that database, unless a setting of Laneway's names its place.
        self._boxed = chosen.atomic == "outbox" and not self.is_inside and around.find("outbox").value is None
        self._name: object = connections.settings[self.alias]["NAME"]
        url = database_url(self.alias) if self.is_inside else chosen.url
        outbox: str | None = UNSET if chosen.atomic in (None, "outbox") else None
        super().__init__(url, imports=(DISCOVER,), outbox=self._outbox_url() if self._boxed else outbox, **chosen.options)
        self.middleware(with_own_connections)
        self.middleware(with_own_async_connections)
        self.lifespan(forget_inherited)

    @property
    def store(self) -> Store:
        """The store, in the database that Django uses now."""
        self._follow()
        return super().store

    @property
    def store_inspect(self) -> Inspect:
        """The store's inspection side, in the database that Django uses now."""
        self._follow()
        return super().store_inspect

    @property
    def outbox(self) -> OutboxURL | None:
        """Where the outbox is, if there is one: in the database that Django uses now."""
        self._follow()
        return super().outbox

    @property
    def is_in_memory(self) -> bool:
        """Whether Django's database is in memory, where the store cannot reach it: it is in a memory of its own."""
        return self.is_inside and self.url == IN_MEMORY

    def _follow(self) -> None:
        """Leave a database that Django does not use any more: its tests have begun, or ended."""
        name = connections.settings[self.alias]["NAME"]
        if name == self._name or self.desk.is_tested:
            return
        self._name = name
        if self.is_inside:
            self.close()
            self.swap_stores(None)
            self.url = database_url(self.alias)
        if self._boxed:
            self.desk.outbox = find_outbox(Found(self._outbox_url(), "code"), self.url)

    def _outbox_url(self) -> str | None:
        """Return the address of an outbox in Django's database; None if that is in memory: no other process could read it."""
        url = database_url(self.alias)
        return None if url == IN_MEMORY else url

    def known(self, name: str) -> TaskBase | None:
        """Return a task that was declared so far, without looking for more."""
        return self._declared.get(name)

    def use_store(self, url: str) -> None:
        """Use this store from now on, in place of the one in the settings."""
        self.is_inside = False
        super().use_store(url)


_making = threading.RLock()


@functools.cache
def _made() -> ProjectApp:
    from laneway.contrib.django.atomic import Surrounding  # noqa: PLC0415 - it needs this module

    chosen = read_settings()
    made = ProjectApp(chosen)
    made.desk.surrounding = Surrounding(made, chosen)
    return made


def project_app() -> ProjectApp:
    """Return the app of this project: one for a process."""
    with _making:
        return _made()


def make_tables(using: str, plan: object = None, **_: Any) -> None:
    """Make the store's tables when Django makes its own, or bring them to this version, and those of an outbox.

    Django has no plan if it has deleted all rows (`flush`, and after each test of a `TransactionTestCase`): jobs go with them.
    """
    app = project_app()
    if using != app.alias:
        return
    if app.is_inside:
        app.store.migrate()
        if plan is None:
            app.inspect.delete_all()
        app.close()
    connection, outbox = connections[using], app.outbox
    if outbox is not None and outbox.kind == connection.vendor:
        with connection.cursor() as cursor:
            for statement in connection.ops.prepare_sql_script(create(outbox.kind, outbox.schema)):
                cursor.execute(statement)
            if plan is None:
                cursor.execute(f"delete from {outbox.schema}laneway_outbox")  # noqa: S608 - a checked name


def _let_go(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Close the store before Django's tests remove a database, or copy it: PostgreSQL refuses that while a session is open.

    Django has no signal for it, but connects with a connection that is none of the project's.
    """
    if "django.test" in sys.modules and not any(connection is one for one in connections.all(initialized_only=True)):
        project_app().close()


connection_created.connect(_let_go)


# -- the store in a database of Django's -----------------------------------------------------------------------------


def database_url(alias: str) -> str:
    """Return the URL of a store in a database of Django's."""
    known: dict[str, Any] = connections[alias].settings_dict
    vendor = connections[alias].vendor
    if vendor == "sqlite":
        name = str(known["NAME"])
        if name == ":memory:" or "mode=memory" in name:
            return IN_MEMORY
        path = name.removeprefix("file:").partition("?")[0] if name.startswith("file:") else name  # SQLite's own kind of URL
        return f"sqlite:///{quote(str(Path(path).absolute()))}"
    if vendor == "postgresql":
        return _postgres_url(known)
    raise ConfigError(
        f'the database "{alias}" is of the kind {vendor}, which can hold neither jobs nor an outbox: use '
        '{"URL": "redis://localhost:6379/0", "ATOMIC": "commit"}'
    )


def _postgres_url(known: Mapping[str, Any]) -> str:
    """Return a URL with the parts of Django's settings that libpq knows."""
    options = {name: value for name, value in known.get("OPTIONS", {}).items() if name in LIBPQ}
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "password": known["PASSWORD"], **options}
    query = urlencode({name: str(value) for name, value in parts.items() if value not in ("", None)}, quote_via=quote)
    return f"postgresql:///{quote(str(known['NAME'] or ''), safe='')}{'?' if query else ''}{query}"
