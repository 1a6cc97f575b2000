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

__all__ = ["REDIS", "StoreURL", "check_options", "check_written_url", "choose_url", "number", "parse_url", "safe_url"]

EXAMPLES = 'use "sqlite:///jobs.db" (a file), "sqlite://" (in memory, one process) or "redis://localhost:6379/0"'
REDIS = ("redis", "rediss", "unix")


class StoreURL(Struct, frozen=True):
    """A store's address, taken apart."""

    scheme: str
    path: str
    options: dict[str, str]


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
    """Return a URL without its password, for titles and logs.

    >>> safe_url("redis://ada:secret@store:6379/0")
    'redis://ada:***@store:6379/0'
    """
    hidden = re.sub(r"(://[^/@:]*:).*@", r"\1***@", url)
    return re.sub(r"([?&][^=&]*password=)[^&]*", r"\1***", hidden)


def parse_url(url: object) -> StoreURL:
    """Take a URL apart, or raise ConfigError that says what to write."""
    if not isinstance(url, str):
        raise ConfigError(f"a store's URL must be a string, not {url!r}: {EXAMPLES}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is no store's URL ({error}): {EXAMPLES}") from None
    if not parts.scheme or "://" not in url:
        raise ConfigError(f"{url!r} is no store's URL: {EXAMPLES}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme in REDIS:
        _check_redis_address(url, parts)
        return StoreURL(parts.scheme, f"{parts.netloc}{parts.path}" or "localhost", options)
    if parts.scheme != "sqlite":
        raise ConfigError(f'there is no store "{parts.scheme}" in this version: {EXAMPLES}')
    if parts.netloc:
        raise ConfigError(
            f"{url!r}: a path needs three slashes (sqlite:///jobs.db), an absolute one four (sqlite:////var/lib/jobs.db)"
        )
    if parts.fragment:
        raise ConfigError(f"{url!r}: write # as %23")
    return StoreURL(parts.scheme, unquote(parts.path.removeprefix("/")), options)


def _check_redis_address(url: str, parts: SplitResult) -> None:
    """Refuse what the driver would take for something else."""
    try:
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{safe_url(url)!r}: this is no port; in a password write / as %2F, @ as %40 and : as %3A") from None
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
            raise ConfigError(
                f'the {url.scheme} store has no option "{name}".{did_you_mean(name, known)} It has: {", ".join(known)}'
            )
