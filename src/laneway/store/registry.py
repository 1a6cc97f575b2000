"""The store that a URL names.

Each kind of store is a `Backend`, found by the URL's scheme. Another package can add one: an entry point of the group
`laneway.stores`, whose name is the scheme and whose object is a Backend without arguments.

Enters: a URL.  Leaves: a `StoreURL`, or a store and its inspection side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import Struct

from laneway.config import IN_PASSWORDS, safe_name, safe_url
from laneway.errors import ConfigError, did_you_mean
from laneway.store.contract import Store
from laneway.store.inspection import Inspect

__all__ = ["Backend", "StoreSettings", "StoreURL", "backend_of", "check_url", "number", "open_store", "parse_url", "register"]

#: The entry point group in which other packages register their stores.
GROUP = "laneway.stores"


class StoreURL(Struct, frozen=True):
    """A parsed address of a store."""

    scheme: str
    path: str  #: for a server its address, without user and password; empty: in the memory of this process
    options: dict[str, str]
    url: str  #: as it was written

    def __repr__(self) -> str:
        return f"<StoreURL {self.scheme}>"

    def split(self) -> SplitResult:
        """Return the parts of the URL."""
        return urlsplit(self.url)


class StoreSettings(Struct, frozen=True, kw_only=True):
    """An app's settings for its store, beside the URL. Times are in seconds, except for the days."""

    dead_days: float
    dead_max: int
    dead_after: float
    enqueue_timeout: float = 2.0
    connections: int | None = None  #: None: not given


class Backend(ABC):
    """A kind of store. Its driver is imported only when a store is opened.

    What depends on the kind of a store is decided here: nothing else asks for the scheme of its URL. A backend has `schemes`,
    `options`, an `example`, and the abstract methods. The others have defaults, for a store on a server: one in files also has
    `address` and `is_missing`, and one in a database that users have as well `is_same_database`.
    """

    schemes: ClassVar[tuple[str, ...]]
    example: ClassVar[str]  #: a URL of it, for messages; each backend has one
    options: ClassVar[tuple[str, ...]]  #: the options that a URL may have behind its question mark

    @abstractmethod
    def path(self, url: str, parts: SplitResult) -> str:
        """Return the path of a URL's store, see `StoreURL`; raise ConfigError for a URL that is wrong."""

    @abstractmethod
    def check(self, url: StoreURL) -> None:
        """Raise ConfigError for options that are wrong, or a driver that is missing."""

    @abstractmethod
    def open(self, url: StoreURL, settings: StoreSettings) -> tuple[Store, Inspect]:
        """Return the store and its inspection side. Nothing is opened yet."""

    @abstractmethod
    def layout(self) -> int:
        """Return the version of tables or keys that this code uses."""

    def steps(self, found: int) -> list[str]:  # noqa: ARG002 - for backends that have had another version
        """Return the steps of `migrate` for a store of a version, a few words for each."""
        return []

    def script(self, url: StoreURL, found: int | None) -> str:  # noqa: ARG002 - most have none
        """Return SQL that does what `migrate` does, for a store of a version; None: for one that is not there."""
        raise ConfigError(f"a {url.scheme} store is not made by SQL: run laneway migrate without --sql")

    def address(self, url: StoreURL) -> str:
        """Return a URL that leads to the store from every folder, without secrets: for messages and for copies."""
        return safe_url(url.url)

    def is_same_database(self, url: StoreURL, other: StoreURL) -> bool:
        """Return whether a store is in the same database as another one, of any kind, as far as their URLs say."""
        return url.url == other.url

    def is_missing(self, url: StoreURL) -> bool:  # noqa: ARG002 - for backends that can tell without opening it
        """Return whether there is no such store yet, and the first use would create it."""
        return False

    def suppress_startup_warnings(self) -> None:  # noqa: B027 - most have no warnings
        """Suppress start-up warnings about the server in this process and its children."""


_backends: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Let URLs with the backend's schemes name its stores."""
    for scheme in backend.schemes:
        _backends[scheme] = backend


def backend_of(scheme: str) -> Backend:
    """Return the backend of a scheme, or raise ConfigError."""
    if scheme not in _backends:
        from importlib.metadata import entry_points  # noqa: PLC0415 - it takes as long to load as all of the rest

        for found in entry_points(group=GROUP, name=scheme):
            register(found.load()())
    if scheme not in _backends:
        raise ConfigError(f'there is no store "{scheme}" in this version: {_examples()}')
    return _backends[scheme]


def check_url(url: object) -> StoreURL:
    """Return a parsed URL, or raise ConfigError if it or one of its options is wrong."""
    parsed = parse_url(url)
    backend = backend_of(parsed.scheme)
    for name in parsed.options:
        if name not in backend.options:
            near, known = did_you_mean(name, backend.options), ", ".join(backend.options)
            raise ConfigError(f'the {parsed.scheme} store has no option "{safe_name(name)}".{near} It has: {known}')
    backend.check(parsed)
    return parsed


def parse_url(url: object) -> StoreURL:
    """Parse a URL, or raise ConfigError that says what to write."""
    if not isinstance(url, str):
        given = repr(url) if isinstance(url, int) else type(url).__name__  # bytes may have a password in them
        raise ConfigError(f"a store's URL must be a string, not {given}: {_examples()}")
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may have a part of the password in it
        raise ConfigError(f"{safe_url(url)!r} is not a store's URL: {_examples()}. {IN_PASSWORDS}") from None
    if not parts.scheme or "://" not in url:
        raise ConfigError(f"{safe_url(url)!r} is not a store's URL: {_examples()}")
    path = backend_of(parts.scheme).path(url, parts)
    if parts.fragment:
        raise ConfigError(f"{safe_url(url)!r}: write # as %23")
    return StoreURL(parts.scheme, path, dict(parse_qsl(parts.query, keep_blank_values=True)), url)


def open_store(url: str, settings: StoreSettings) -> tuple[Store, Inspect]:
    """Return the store a URL names and its inspection side. Nothing is opened yet."""
    parsed = check_url(url)
    return backend_of(parsed.scheme).open(parsed, settings)


def number(options: dict[str, str], name: str, default: float) -> float:
    """Return an option of a URL as a positive number."""
    text = options.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ConfigError(f"{name}={text}: use a positive number, such as {name}={default:g}")
    return value


def _examples() -> str:
    *most, last = dict.fromkeys(backend.example for backend in _backends.values())
    return f"use {', '.join(most)} or {last}"
