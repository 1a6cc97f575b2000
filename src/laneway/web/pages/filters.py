"""What templates write: times, numbers, values and addresses, each in one way.

Times are said as people say them, with the exact one as a tooltip and for screen readers. Numbers are short where they are long,
and exact in their title. Every address begins where the dashboard is mounted.

Enters: plain values.  Leaves: escaped HTML.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from laneway.present.words import digits, trimmed
from laneway.web.pages.points import spark

__all__ = ["FILTERS", "json_text", "link_from", "number", "plain_number", "quoted", "short", "when", "words_for"]

NONE = Markup('<span class="none" title="nothing, or not known">–</span>')
#: The longest value that is written out, characters.
LONGEST = 20_000

_SPANS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


# -- times -------------------------------------------------------------------------------------------------------


def when(at: datetime | str | None, now: datetime | None = None) -> Markup:
    """Return a time as words, with the exact one beside it.

    >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    >>> when(datetime(2026, 1, 2, 11, 57, 4, tzinfo=UTC), noon)
    Markup('<time datetime="2026-01-02T11:57:04+00:00" title="2026-01-02 11:57:04 UTC">2 min ago</time>')
    """
    if at is None or at == "":
        return NONE
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    moment = moment.astimezone(UTC)
    said = words_for((moment - (now or datetime.now(UTC))).total_seconds())
    exact = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(exact, f"{moment:%Y-%m-%d %H:%M:%S}", said)


def words_for(seconds: float) -> str:
    """Say how far away a moment is.

    >>> [words_for(seconds) for seconds in (-0.4, -75, -7300, 90, 200_000)]
    ['now', '1 min ago', '2 h ago', 'in 1 min', 'in 2 d']
    """
    away = abs(seconds)
    for length, unit in _SPANS:
        if away >= length:
            said = f"{int(away // length)} {unit}"
            return f"in {said}" if seconds > 0 else f"{said} ago"
    return "now"


# -- numbers -----------------------------------------------------------------------------------------------------


def number(value: float | None, kind: str = "count") -> Markup:
    """Return a number: a `count`, a `rate` (a second), `bytes`, `seconds` or a `share` (of one).

    >>> number(1234), number(2_345_678)
    (Markup('1,234'), Markup('<data value="2345678" title="2,345,678">2.35 M</data>'))
    """
    if value is None or not math.isfinite(value):
        return NONE
    said = short(value, kind)
    exact = f"{value:,}" if kind in ("count", "bytes") and value == int(value) else said
    if kind == "bytes":
        exact = f"{value:,.0f} bytes"
    if exact == said or (kind == "bytes" and value < 1024):
        return escape(said)
    return Markup('<data value="{}" title="{}">{}</data>').format(value, exact, said)


def short(value: float, kind: str = "count") -> str:
    """Return a number as plain text.

    >>> [short(value, kind) for value, kind in ((0, "rate"), (0.123, "rate"), (1530, "rate"), (3 << 20, "bytes"))]
    ['0/s', '0.12/s', '1,530/s', '3 MiB']
    >>> [short(value, "seconds") for value in (0, 0.00042, 0.0421, 4.26, 250, 9000, 300_000)]
    ['0 s', '420 µs', '42 ms', '4.3 s', '4 min 10 s', '2 h 30 min', '3 d 11 h']
    >>> [short(value, "share") for value in (0, 0.0004, 0.123, 1)]
    ['0 %', '0.04 %', '12.3 %', '100 %']
    """
    return _KINDS[kind](value)


def _count(value: float) -> str:
    if abs(value) < 999_999.5:
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else trimmed(f"{value:,.1f}")
    for least, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= least * 0.9999995:
            return f"{digits(value / least)} {unit}"
    return f"{value:,.0f}"


def _rate(value: float) -> str:
    return f"{_count(value) if value >= 1e6 else digits(value)}/s" if value >= 0.005 or not value else "<0.01/s"


def _bytes(value: float) -> str:
    for least, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= least:
            return f"{digits(value / least)} {unit}"
    return f"{value:,.0f} B"


def _seconds(value: float) -> str:
    if value <= 0:
        return "0 s"
    if value < 0.9995:
        return f"{value * 1e6:.0f} µs" if value < 0.0009995 else f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{digits(round(value, 1))} s"
    whole = round(value)
    for (length, unit), (part, smaller) in itertools.pairwise(_SPANS):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def _share(value: float) -> str:
    percent = value * 100
    return f"{digits(percent)} %" if percent >= 0.01 or not percent else "<0.01 %"


_KINDS: dict[str, Callable[[float], str]] = {
    "count": _count, "rate": _rate, "bytes": _bytes, "seconds": _seconds, "share": _share,
}  # fmt: skip


def plain_number(value: float) -> str:
    """Return a number as a user would type it.

    >>> plain_number(20.04999), plain_number(0.000123456), plain_number(1234567.0)
    ('20.05', '0.0001235', '1234567')
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


# -- values and addresses ----------------------------------------------------------------------------------------


def json_text(value: Any, indent: int = 0) -> str:
    """Return a value as JSON, as far as a page can show it. Templates escape it."""
    text = msgspec.json.encode(value).decode()
    if indent:
        text = msgspec.json.format(text, indent=indent)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def quoted(text: str) -> str:
    """Return a name as a part of a path.

    >>> quoted("a/b ?")
    'a%2Fb%20%3F'
    """
    return quote(text, safe="")


def link_from(root: str) -> Callable[..., str]:
    """Return what makes addresses below a root: parts of a path, and parameters; those that are None or empty are left out.

    >>> link_from("/jobs")("lanes", "a/b ?", queue="mail&more", after=None)
    '/jobs/lanes/a%2Fb%20%3F?queue=mail%26more'
    """

    def link(*parts: str, **parameters: object) -> str:
        path = "/".join(map(quoted, parts))
        asked = urlencode({name: str(value) for name, value in parameters.items() if value is not None and value != ""})
        return f"{quote(root.rstrip('/'))}/{path}" + (f"?{asked}" if asked else "")

    return link


FILTERS: dict[str, Callable[..., Any]] = {
    "when": when, "number": number, "json": json_text, "quoted": quoted, "plain_number": plain_number, "spark": spark,
}  # fmt: skip
