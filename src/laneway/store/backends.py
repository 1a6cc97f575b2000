"""The stores that come with Laneway, as a URL names them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode

from laneway.config import IN_PASSWORDS, safe_url
from laneway.errors import ConfigError
from laneway.store.contract import Store
from laneway.store.inspection import Inspect
from laneway.store.registry import Backend, StoreSettings, StoreURL, number, register

__all__ = ["LIBPQ", "Postgres", "Redis", "SQLite"]

#: The options of libpq that a URL may have.
LIBPQ = (
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname", "fallback_application_name",
    "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
    "load_balance_hosts", "options", "passfile", "password", "port", "require_auth", "requirepeer", "service", "sslcert",
    "sslcompression", "sslcrl", "sslcrldir", "sslkey", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslmode",
    "sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs", "tcp_user_timeout", "user",
)  # fmt: skip


class SQLite(Backend):
    """A file, or memory."""

    schemes = ("sqlite",)
    example = '"sqlite:///jobs.db" (a file), "sqlite://" (in memory, one process)'
    options = ("synchronous", "timeout")

    def path(self, url: str, parts: SplitResult) -> str:
        """Return the file's path; empty: in memory."""
        if parts.netloc:
            raise ConfigError(
                f"{safe_url(url)!r}: a path needs three slashes (sqlite:///jobs.db), an absolute one four "
                "(sqlite:////var/lib/jobs.db)"
            )
        return unquote(parts.path.removeprefix("/"))

    def check(self, url: StoreURL) -> None:
        """Check `timeout` and `synchronous`."""
        number(url.options, "timeout", 5.0)
        synchronous = url.options.get("synchronous", "normal")
        if synchronous.lower() not in ("normal", "full"):
            raise ConfigError(f"synchronous={synchronous}: use normal (survives a killed process) or full (and a power cut)")

    def open(self, url: StoreURL, settings: StoreSettings) -> tuple[Store, Inspect]:
        """Return the store and its inspection side."""
        from laneway.store.sqlite import SQLiteInspect, SQLiteStore  # noqa: PLC0415 - loaded only if it is used

        store = SQLiteStore(
            Path(url.path).resolve() if url.path else None, synchronous=url.options.get("synchronous", "normal").lower(),
            timeout=number(url.options, "timeout", 5.0), enqueue_timeout=settings.enqueue_timeout,
            dead_days=settings.dead_days, dead_max=settings.dead_max, dead_after=settings.dead_after,
        )  # fmt: skip
        return store, SQLiteInspect(store)

    def layout(self) -> int:
        """Return the version of the tables."""
        from laneway.store.sqlite.schema import VERSION  # noqa: PLC0415 - loaded only if it is used

        return VERSION

    def steps(self, found: int) -> list[str]:
        """Return the migration steps from a version of the tables."""
        from laneway.store.sqlite.schema import MIGRATIONS  # noqa: PLC0415 - loaded only if it is used

        return [what for version, (what, _) in sorted(MIGRATIONS.items()) if version >= found]

    def address(self, url: StoreURL) -> str:
        """Return a URL with the file's absolute path, without options."""
        return f"sqlite:///{quote(str(Path(url.path).resolve()))}" if url.path else safe_url(url.url)

    def is_same_database(self, url: StoreURL, other: StoreURL) -> bool:
        """Return whether two URLs name the same file."""
        return other.scheme in self.schemes and bool(url.path) and Path(url.path).absolute() == Path(other.path).absolute()

    def is_missing(self, url: StoreURL) -> bool:
        """Return whether there is no such file."""
        return bool(url.path) and not Path(url.path).exists()


class Redis(Backend):
    """A Redis or Valkey server."""

    schemes = ("redis", "rediss", "unix", "valkey", "valkeys")
    example = '"redis://localhost:6379/0"'
    #: Laneway's options, and those that are passed to the driver.
    ours = ("connections", "timeout")
    options = (
        *ours, "client_name", "db", "password", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile",
        "ssl_check_hostname", "ssl_keyfile", "ssl_keyfile_password", "username",
    )  # fmt: skip

    def path(self, url: str, parts: SplitResult) -> str:
        """Return the server's address. Refuse URLs that the driver would read in another way."""
        try:
            _ = parts.port
        except ValueError:
            raise ConfigError(f"{safe_url(url)!r}: this is not a port. {IN_PASSWORDS}") from None
        if parts.scheme != "unix" and parts.path.strip("/") and not re.fullmatch(r"/\d{1,5}", parts.path):
            raise ConfigError(f"{safe_url(url)!r}: the path is a database's number, as in redis://localhost:6379/0")
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}" or "localhost"

    def check(self, url: StoreURL) -> None:
        """Check the options, and that the driver is installed."""
        number(url.options, "timeout", 5.0)
        safe = safe_url(url.url)
        if url.scheme not in ("rediss", "valkeys") and (tls := [name for name in url.options if name.startswith("ssl_")]):
            secure = "valkeys" if url.scheme == "valkey" else "rediss"
            raise ConfigError(f"{safe!r}: {tls[0]} is for TLS: write {secure}:// in place of {url.scheme}://")
        connections = url.options.get("connections", "5")
        if not connections.isdecimal() or not 0 < int(connections) <= 10_000:
            raise ConfigError(f"connections={connections}: use a whole number from 1 to 10000")
        if url.scheme == "unix" and not url.split().path.strip("/"):
            raise ConfigError(f"{safe!r}: name the socket, as in unix:///run/redis/redis.sock?db=0")
        if any(importlib.util.find_spec(name) is None for name in ("redis", "hiredis")):
            raise ConfigError(f'{safe} needs a driver that is not installed here: pip install "laneway[redis]"')

    def open(self, url: StoreURL, settings: StoreSettings) -> tuple[Store, Inspect]:
        """Return the store and its inspection side."""
        from laneway.store.redis import RedisInspect, RedisStore  # noqa: PLC0415 - loaded only if it is used

        store = RedisStore(
            self._for_driver(url.url), connections=settings.connections or int(url.options.get("connections", 5)),
            timeout=number(url.options, "timeout", 5.0), enqueue_timeout=settings.enqueue_timeout,
            dead_days=settings.dead_days, dead_max=settings.dead_max, dead_after=settings.dead_after,
        )  # fmt: skip
        return store, RedisInspect(store)

    def layout(self) -> int:
        """Return the version of the keys."""
        from laneway.store.redis.opening import VERSION  # noqa: PLC0415 - loaded only if it is used

        return VERSION

    def steps(self, found: int) -> list[str]:
        """Return the migration steps from a version of the keys."""
        from laneway.store.redis.opening import MIGRATIONS  # noqa: PLC0415 - loaded only if it is used

        return [what for version, (what, _) in sorted(MIGRATIONS.items()) if version >= found]

    def suppress_startup_warnings(self) -> None:
        """Log no warning about a server without persistence."""
        from laneway.store.redis import opening  # noqa: PLC0415 - loaded only if it is used

        opening.suppress_startup_warnings()

    def _for_driver(self, url: str) -> str:
        """Return a URL as the driver reads it: its scheme, without our options, and with its name for the password of a key."""
        address, _, query = re.sub("^valkey(s?):", r"redis\1:", url).partition("?")
        options = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in self.ours]
        named = [("ssl_password" if name == "ssl_keyfile_password" else name, value) for name, value in options]
        return f"{address}?{urlencode(named)}" if named else address


class Postgres(Backend):
    """A PostgreSQL server."""

    schemes = ("postgresql", "postgres")
    example = '"postgresql://user@localhost/shop"'
    #: Laneway's options; all others are for libpq.
    ours = ("connections", "listen", "prepare", "schema", "synchronous", "timeout")
    options = (*ours, *LIBPQ)

    def path(self, url: str, parts: SplitResult) -> str:
        """Return the server's address, without user and password."""
        try:
            _ = parts.port
        except ValueError:
            if "," not in parts.netloc:  # several hosts, each with a port
                raise ConfigError(f"{safe_url(url)!r}: this is not a port. {IN_PASSWORDS}") from None
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}" or "localhost"

    def check(self, url: StoreURL) -> None:
        """Check our options, and that the driver is installed."""
        safe = safe_url(url.url)
        number(url.options, "timeout", 5.0)
        connections = url.options.get("connections", "5")
        if not connections.isdecimal() or not 0 < int(connections) <= 10_000:
            raise ConfigError(f"connections={connections}: use a whole number from 1 to 10000")
        schema = self._schema(url)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,50}", schema):
            raise ConfigError(f"schema={schema}: use up to 50 small letters, digits and _")
        for name in ("prepare", "synchronous"):
            if url.options.get(name, "on") not in ("on", "off"):
                raise ConfigError(f"{name}={url.options[name]}: use on or off")
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigError(f'{safe} needs a driver that is not installed here: pip install "laneway[postgres]"')

    def open(self, url: StoreURL, settings: StoreSettings) -> tuple[Store, Inspect]:
        """Return the store and its inspection side."""
        from laneway.store.postgres import PostgresInspect, PostgresStore  # noqa: PLC0415 - loaded only if it is used

        options = url.options
        store = PostgresStore(
            self.for_driver(url.url), schema=self._schema(url), listen=options.get("listen"),
            durable=options.get("synchronous") == "on", prepare=options.get("prepare", "on") == "on",
            connections=settings.connections or int(options.get("connections", 5)), timeout=number(options, "timeout", 5.0),
            enqueue_timeout=settings.enqueue_timeout, dead_days=settings.dead_days, dead_max=settings.dead_max,
            dead_after=settings.dead_after,
        )  # fmt: skip
        return store, PostgresInspect(store)

    def layout(self) -> int:
        """Return the version of the tables."""
        from laneway.store.postgres.schema import VERSION  # noqa: PLC0415 - loaded only if it is used

        return VERSION

    def steps(self, found: int) -> list[str]:
        """Return the migration steps from a version of the tables."""
        from laneway.store.postgres.schema import MIGRATIONS  # noqa: PLC0415 - loaded only if it is used

        return [what for version, what in sorted(MIGRATIONS.items()) if version > found]

    def script(self, url: StoreURL, found: int | None) -> str:
        """Return the statements from a version on, as one transaction."""
        from laneway.store.postgres.schema import script  # noqa: PLC0415 - loaded only if it is used

        return f"begin;\n{script(self._schema(url), found or 0)}\ncommit;"

    def is_same_database(self, url: StoreURL, other: StoreURL) -> bool:
        """Return whether two URLs have the same host, port and database."""
        return other.scheme in self.schemes and self._database(url) == self._database(other)

    def is_missing(self, url: StoreURL) -> bool:
        """Return whether the database has none of our tables."""
        from laneway.store.postgres.schema import read_version  # noqa: PLC0415 - loaded only if it is used
        from laneway.store.postgres.wire import PostgresWire  # noqa: PLC0415

        wire = PostgresWire(self.for_driver(url.url), timeout=number(url.options, "timeout", 5.0))
        return read_version(wire, self._schema(url)) is None

    @staticmethod
    def _database(url: StoreURL) -> tuple[object, ...]:
        """Return the host, port and database that a URL leads to."""
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - loaded only if it is used

        queried = {name: value for name, value in url.options.items() if name in ("host", "port", "dbname")}
        known = {**conninfo_to_dict(url.url.partition("?")[0]), **queried}
        return known.get("host") or "", str(known.get("port") or 5432), known.get("dbname")

    def _schema(self, url: StoreURL) -> str:
        return url.options.get("schema", "laneway")

    def for_driver(self, url: str) -> str:
        """Return a URL as libpq reads it: without our options."""
        address, _, query = url.partition("?")
        given = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)  # libpq does not read + as a space
        options = [(name, value) for name, value in given if name not in self.ours]
        return f"{address}?{urlencode(options, quote_via=quote)}" if options else address


register(SQLite())
register(Redis())
register(Postgres())
