"""Stores: where jobs live. A URL chooses one; its driver is imported only then."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from laneway.config import REDIS, StoreURL, check_options, number, parse_url, safe_url
from laneway.errors import ConfigError
from laneway.store.contract import Store
from laneway.store.inspect import Inspect

__all__ = ["check_url", "hush", "open_store", "version_of"]

#: Options of a Redis URL that are ours, and those that go on to its driver.
OUR_REDIS = ("connections", "timeout")
DRIVERS_REDIS = (
    "client_name", "db", "password", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname",
    "ssl_keyfile", "ssl_keyfile_password", "username",
)  # fmt: skip


def check_url(url: str) -> StoreURL:
    """Return a URL taken apart, or raise ConfigError for what is wrong with it, its options included."""
    parsed = parse_url(url)
    number(parsed.options, "timeout", 5.0)
    if parsed.scheme in REDIS:
        _check_redis(url, parsed)
        return parsed
    check_options(parsed, ("synchronous", "timeout"))
    synchronous = parsed.options.get("synchronous", "normal")
    if synchronous.lower() not in ("normal", "full"):
        raise ConfigError(f"synchronous={synchronous}: use normal (survives a killed process) or full (and a power cut)")
    return parsed


def _check_redis(url: str, parsed: StoreURL) -> None:
    check_options(parsed, (*OUR_REDIS, *DRIVERS_REDIS))
    if parsed.scheme != "rediss" and (tls := [name for name in parsed.options if name.startswith("ssl_")]):
        raise ConfigError(f"{safe_url(url)!r}: {tls[0]} is for TLS: write rediss:// in place of {parsed.scheme}://")
    connections = parsed.options.get("connections", "5")
    if not connections.isdecimal() or not 0 < int(connections) <= 10_000:
        raise ConfigError(f"connections={connections}: use a whole number from 1 to 10000")
    if parsed.scheme == "unix" and not urlsplit(url).path.strip("/"):
        raise ConfigError(f"{safe_url(url)!r}: name the socket, as in unix:///run/redis/redis.sock?db=0")
    if any(importlib.util.find_spec(name) is None for name in ("redis", "hiredis")):
        raise ConfigError(f'{safe_url(url)} needs a driver that is not installed here: pip install "laneway[redis]"')


def open_store(
    url: str, *, dead_days: float, dead_max: int, dead_after: float, enqueue_timeout: float = 2.0, connections: int | None = None
) -> tuple[Store, Inspect]:
    """Return the store a URL names and its inspection side. Nothing is opened yet."""
    parsed = check_url(url)
    timeout = number(parsed.options, "timeout", 5.0)
    if parsed.scheme in REDIS:
        from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - only who uses it loads it

        redis = RedisStore(
            _for_driver(url), connections=connections or int(parsed.options.get("connections", 5)), timeout=timeout,
            enqueue_timeout=enqueue_timeout, dead_days=dead_days, dead_max=dead_max, dead_after=dead_after,
        )  # fmt: skip
        return redis, RedisInspect(redis)
    from laneway.store.sqlite import SQLiteInspect, SQLiteStore  # noqa: PLC0415 - the same

    store = SQLiteStore(
        Path(parsed.path).resolve() if parsed.path else None, synchronous=parsed.options.get("synchronous", "normal").lower(),
        timeout=timeout, enqueue_timeout=enqueue_timeout, dead_days=dead_days, dead_max=dead_max, dead_after=dead_after,
    )  # fmt: skip
    return store, SQLiteInspect(store)


def hush(url: str) -> None:
    """Let who opens this store in this process, or in its children, say nothing about how it is set up: somebody else does."""
    if check_url(url).scheme in REDIS:
        from laneway.store.redis import opening  # noqa: PLC0415 - only who uses it loads it

        opening.hush()


def version_of(url: str) -> int:
    """Return the version of the tables or keys that this Laneway uses in the store a URL names."""
    if check_url(url).scheme in REDIS:
        from laneway.store.redis.opening import VERSION  # noqa: PLC0415 - only who uses it loads it
    else:
        from laneway.store.sqlite.schema import VERSION  # noqa: PLC0415 - the same
    return VERSION


def _for_driver(url: str) -> str:
    """Return a Redis URL as its driver reads it: without our options, and with its name for the password of a key."""
    address, _, query = url.partition("?")
    options = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in OUR_REDIS]
    named = [("ssl_password" if name == "ssl_keyfile_password" else name, value) for name, value in options]
    return f"{address}?{urlencode(named)}" if named else address
