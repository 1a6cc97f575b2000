"""Which URL to use, and how URLs are shown without their secrets. `laneway.store.registry` parses URLs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from laneway.errors import ConfigError
from laneway.settings import UNSET, Found, Settings

__all__ = ["IN_PASSWORDS", "check_written_url", "choose_url", "mask_urls", "safe_name", "safe_url"]

IN_PASSWORDS = "In a password write / as %2F, @ as %40, : as %3A, # as %23, ? as %3F, [ as %5B and ] as %5D"
#: Options of URLs that hold no secret. The values of all others are hidden, also of a mistyped "pasword".
SHOWN = (
    "client_name", "connections", "db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname",
    "ssl_keyfile", "synchronous", "timeout", "username",
)  # fmt: skip

_SCHEME = re.compile(r"(?:[A-Za-z][\w+.-]*:)?//")
#: An address without a password: a host, perhaps its port, and a path.
_ADDRESS = re.compile(r"(?:(?:\[[\w:.%]*\]|[\w.-]+)(?::\d{0,5})?)?(?:/[^#@:]*)?")
_URL = re.compile(r"[^\s'\"=(,;]*://[^\s'\"]*")


def choose_url(url: str | None, settings: Settings | None = None) -> Found:
    """Return the URL to use: the code's, else the setting's, else laneway.db in the working folder."""
    found = (settings or Settings()).find("url", code=UNSET if url is None else url)
    if found.value is not None:
        return found
    return Found(f"sqlite:///{quote(str(Path.cwd() / 'laneway.db'))}", found.source)


def check_written_url(found: Found, check: Callable[[str], object]) -> None:
    """Check a URL; for one that is written outside the code an error says where that is."""
    try:
        check(found.value)
    except ConfigError as error:
        raise (error if found.source == "code" else ConfigError(f"{found.source} ({safe_url(found.value)}): {error}")) from None


def safe_url(url: str) -> str:
    """Return a URL without its secrets, for messages, titles and logs. In a malformed one more is hidden rather than less.

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
    elif not _ADDRESS.fullmatch(address) or "@" in query:
        # Anything before the last @ may be a password, and so may what follows a : that is not before a port.
        before, at, after = rest.rpartition("@")
        user, colon, password = (before if at else rest).partition(":")
        user = user if password and re.fullmatch(r"[\w.+-]*", user) else ""  # a token may be in the place of a name
        host, mark, query = after.partition("?")
        if not at or not _ADDRESS.fullmatch(host):
            return f"{scheme}{user}{colon}***"
        address = f"{user}{colon}***@{host}"
    return f"{scheme}{address}{mark}{'&'.join(map(_safe_option, query.split('&')))}"


def _safe_option(written: str) -> str:
    name, equals, value = written.partition("=")
    if not written or (name in SHOWN and not {"@", "#"} & set(value)):
        return written
    return f"{safe_name(name)}=***" if equals else "***"


def safe_name(name: str) -> str:
    """Return the name of a URL's option; an impossible name may be a part of a password."""
    return name if re.fullmatch(r"\w{1,40}", name) else "***"


def mask_urls(text: str) -> str:
    """Return a text in which all URLs are without their secrets."""
    return _URL.sub(lambda found: safe_url(found[0]), text)
