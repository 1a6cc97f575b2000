"""Where the store is, and what its URL says.

Enters: what the code or the environment gives.  Leaves: a `StoreURL`.  Called by: `app`, `store.open_store`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from laneway.errors import ConfigError, did_you_mean
from laneway.settings import UNSAID, Found, Settings

__all__ = [
    "REDIS",
    "StoreURL",
    "check_options",
    "check_written_url",
    "choose_url",
    "mask_urls",
    "number",
    "parse_url",
    "safe_url",
]

EXAMPLES = 'use "sqlite:///jobs.db" (a file), "sqlite://" (in memory, one process) or "redis://localhost:6379/0"'
IN_PASSWORDS = "In a password write / as %2F, @ as %40, : as %3A, # as %23, ? as %3F, [ as %5B and ] as %5D"
REDIS = ("redis", "rediss", "unix")
#: Options of URLs that hold no secret. The values of all others are hidden: a mistyped "pasword" too is one.
SHOWN = (
    "client_name", "connections", "db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname",
    "ssl_keyfile", "synchronous", "timeout", "username",
)  # fmt: skip

_SCHEME = re.compile(r"(?:[A-Za-z][\w+.-]*:)?//")
#: An address without a password: a host, perhaps its port, and a path.
_ADDRESS = re.compile(r"(?:(?:\[[\w:.%]*\]|[\w.-]+)(?::\d{0,5})?)?(?:/[^#@:]*)?")
_URL = re.compile(r"(?:[A-Za-z][\w+.-]*)?://[^\s'\"]*")


class StoreURL(Struct, frozen=True):
    """A store's address, taken apart."""

    scheme: str
    path: str  #: of a server: its address, without user and password
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"<StoreURL {self.scheme}>"


def choose_url(url: str | None, app_file: str | None, settings: Settings | None = None) -> Found:
    """Return the URL to use: what the code says, else the setting, else laneway.db beside the app's file."""
    found = (settings or Settings()).find("url", code=UNSAID if url is None else url)
    if found.value is not None:
        return found
    folder = Path(app_file).resolve().parent if app_file else Path.cwd()
    return Found(f"sqlite:///{quote(str(folder / 'laneway.db'))}", found.source)


def check_written_url(found: Found, check: Callable[[str], object]) -> None:
    """Check a URL; what is wrong with one that is written outside the code says where that is."""
    try:
        check(found.value)
    except ConfigError as error:
        raise (error if found.source == "code" else ConfigError(f"{found.source} ({safe_url(found.value)}): {error}")) from None


def safe_url(url: str) -> str:
    """Return a URL without its secrets, for messages, titles and logs. Of a malformed one more is hidden rather than less.

    >>> safe_url("redis://ada:secret@store:6379/0?db=1&password=x")
    'redis://ada:***@store:6379/0?db=1&password=***'
    >>> safe_url("redis://:sec/ret#1"), safe_url("ada:p@ss?word@store")
    ('redis://:***', 'ada:***@store')
    """
    found = _SCHEME.match(url)
    scheme = found[0] if found else ""
    rest = url[len(scheme) :]
    address, mark, query = rest.partition("?")
    if scheme.startswith(("sqlite:", "unix:")) and address[:1] in ("", "/"):
        pass  # a path
    elif not _ADDRESS.fullmatch(address):
        # Whatever stands before the last @ may be a password, and so may what follows a : that is not before a port.
        before, at, after = rest.rpartition("@")
        user, colon, _ = (before if at else rest).partition(":")
        user = user if colon and re.fullmatch(r"[\w.+-]*", user) else ""
        host, mark, query = after.partition("?")
        if not at or not _ADDRESS.fullmatch(host):
            return f"{scheme}{user}{colon}***"
        address = f"{user}{colon}***@{host}"
    return f"{scheme}{address}{mark}{'&'.join(map(_safe_option, query.split('&')))}"


def _safe_option(written: str) -> str:
    name, equals, value = written.partition("=")
    if not written or (name in SHOWN and not {"@", "#"} & set(value)):
        return written
    return f"{_safe_name(name)}=***" if equals else "***"


def _safe_name(name: str) -> str:
    """Return an option's name; what can be none may be a part of a password."""
    return name if re.fullmatch(r"\w{1,40}", name) else "***"


def mask_urls(text: str) -> str:
    """Return a text in which all URLs are without their secrets."""
    return _URL.sub(lambda found: safe_url(found[0]), text)


def parse_url(url: object) -> StoreURL:
    """Take a URL apart, or raise ConfigError that says what to write."""
    if not isinstance(url, str):
        given = repr(url) if isinstance(url, int) else type(url).__name__  # bytes may have a password in them
        raise ConfigError(f"a store's URL must be a string, not {given}: {EXAMPLES}")
    try:
        parts = urlsplit(url)
    except ValueError:  # what it says may have a part of the password in it
        raise ConfigError(f"{safe_url(url)!r} is no store's URL: {EXAMPLES}. {IN_PASSWORDS}") from None
    if not parts.scheme or "://" not in url:
        raise ConfigError(f"{safe_url(url)!r} is no store's URL: {EXAMPLES}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme in REDIS:
        _check_redis_address(url, parts)
        return StoreURL(parts.scheme, f"{parts.netloc.rpartition('@')[2]}{parts.path}" or "localhost", options)
    if parts.scheme != "sqlite":
        raise ConfigError(f'there is no store "{parts.scheme}" in this version: {EXAMPLES}')
    if parts.netloc:
        raise ConfigError(
            f"{safe_url(url)!r}: a path needs three slashes (sqlite:///jobs.db), an absolute one four (sqlite:////var/lib/jobs.db)"
        )
    if parts.fragment:
        raise ConfigError(f"{safe_url(url)!r}: write # as %23")
    return StoreURL(parts.scheme, unquote(parts.path.removeprefix("/")), options)


def _check_redis_address(url: str, parts: SplitResult) -> None:
    """Refuse what the driver would take for something else."""
    try:
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{safe_url(url)!r}: this is no port. {IN_PASSWORDS}") from None
    if parts.scheme != "unix" and parts.path.strip("/") and not re.fullmatch(r"/\d{1,5}", parts.path):
        raise ConfigError(f"{safe_url(url)!r}: the path is a database's number, as in redis://localhost:6379/0")
    if parts.fragment:
        raise ConfigError(f"{safe_url(url)!r}: write # as %23")


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


def check_options(url: StoreURL, known: tuple[str, ...]) -> None:
    """Refuse options that the store does not have."""
    for name in url.options:
        if name not in known:
            near = did_you_mean(name, known)
            raise ConfigError(f'the {url.scheme} store has no option "{_safe_name(name)}".{near} It has: {", ".join(known)}')
