"""A Django project's app: its settings, its store, and what is around its runs.

Without a URL the jobs are in a database of Django's, so that an enqueue in `atomic()` is part of the transaction. The store goes
where Django goes: while tests run, its databases have other names.

Enters: the setting `LANEWAY`.  Leaves: an `App`.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote, urlencode

from laneway.desk.app import App
from laneway.desk.task_base import TaskBase
from laneway.errors import ConfigError, did_you_mean
from laneway.settings import Settings
from laneway.store.backends import LIBPQ
from laneway.store.contract import Store
from laneway.store.inspection import Inspect

try:
    from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
    from django.conf import settings
    from django.db import connections, reset_queries
    from django.db.backends.signals import connection_created

    from laneway.contrib.django.under_test import close_before_removal
except ModuleNotFoundError as missing:
    raise ConfigError('laneway.contrib.django needs Django: pip install "laneway[django]"') from missing

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["Atomic", "ProjectApp", "ProjectSettings", "database_url", "make_tables", "project_app", "read_settings"]

Atomic = Literal["join", "commit"]
ATOMIC = ("join", "commit")
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
    return ProjectSettings(getattr(settings, "LANEWAY", {}))


class ProjectApp(App):
    """The app of a Django project."""

    def __init__(self, chosen: ProjectSettings) -> None:
        written = chosen.url is not None or Settings().find("url").value is not None
        self._follows = None if written else chosen.database  # the alias whose database has the store
        self._name: object = None  # of the database that has the store
        super().__init__(chosen.url if written else database_url(chosen.database), imports=(DISCOVER,), **chosen.options)
        self.middleware(_with_own_connections)
        self.middleware(_with_own_async_connections)
        self.lifespan(_forget_inherited)

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
    def is_inside(self) -> bool:
        """Whether the store is in a database of Django's, since the settings name no other place."""
        return self._follows is not None

    @property
    def is_in_memory(self) -> bool:
        """Whether Django's database is in memory, where the store cannot reach it: it is in a memory of its own."""
        return self._follows is not None and self.url == IN_MEMORY

    def _follow(self) -> None:
        """Leave a store that is in a database that Django does not use any more: its tests have begun, or ended."""
        if self._follows is None or self.desk.is_tested or self._stores is None:
            return
        if connections.settings[self._follows]["NAME"] != self._name:
            self.close()
            self.swap_stores(None)

    def known(self, name: str) -> TaskBase | None:
        """Return a task that was declared so far, without looking for more."""
        return self._declared.get(name)

    def use_store(self, url: str) -> None:
        """Use this store from now on, in place of the one in the settings."""
        self._follows = None
        super().use_store(url)

    def _open(self) -> tuple[Store, Inspect]:
        if self._follows is not None and self._stores is None:
            self._name = connections.settings[self._follows]["NAME"]
            self.url = database_url(self._follows)
            close_before_removal(self.close)
        return super()._open()


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


def make_tables(using: str, **_: Any) -> None:
    """Make the store's tables when Django makes its own, or bring them to this version: `manage.py migrate`."""
    app = project_app()
    if app.is_inside and using == read_settings().database:
        app.store.migrate()
        app.close()


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
        f'the database "{alias}" is of the kind {vendor}, which can hold no jobs: give LANEWAY a URL, such as '
        '{"URL": "redis://localhost:6379/0"}'
    )


def _postgres_url(known: Mapping[str, Any]) -> str:
    """Return a URL with the parts of Django's settings that libpq knows."""
    options = {name: value for name, value in known.get("OPTIONS", {}).items() if name in LIBPQ}
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "password": known["PASSWORD"], **options}
    query = urlencode({name: str(value) for name, value in parts.items() if value not in ("", None)}, quote_via=quote)
    return f"postgresql:///{quote(str(known['NAME'] or ''), safe='')}{'?' if query else ''}{query}"


# -- connections of runs ---------------------------------------------------------------------------------------------


def _with_own_connections(_: object) -> Iterator[None]:
    """Recycle the thread's database connections around a run, as Django does around a request."""
    reset_queries()
    _recycle()
    try:
        yield
    finally:
        _recycle()


def _recycle() -> None:
    """Close what is broken or too old. A connection in an atomic block is a test's, whose jobs run where they are enqueued."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


async def _with_own_async_connections(_: object) -> AsyncIterator[None]:
    """Give an async run a thread of its own for what it asks of the database, as Django does for a request, and close its
    connections: the thread ends with the run."""
    async with ThreadSensitiveContext() as context:
        try:
            yield
        finally:
            if context in SyncToAsync.context_to_thread_executor:  # else it asked nothing, and has no thread
                await sync_to_async(connections.close_all)()


_made_in: weakref.WeakKeyDictionary[BaseDatabaseWrapper, int] = weakref.WeakKeyDictionary()  # the process that connected
#: Connections inherited over a fork. Never closed here: closing would end the parent's session.
_inherited: list[object] = []


def _note_process(connection: BaseDatabaseWrapper, **_: object) -> None:
    _made_in[connection] = os.getpid()


connection_created.connect(_note_process)


def _forget_inherited() -> Iterator[None]:
    """Let a worker, or an isolated run, connect anew: what it has inherited belongs to its parent."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and _made_in.get(connection) != os.getpid():
            _inherited.append(connection.connection)
            connection.connection = None
    yield
