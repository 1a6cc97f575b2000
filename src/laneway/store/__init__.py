"""Stores: where jobs live. A URL chooses one; its driver is imported only then."""

from __future__ import annotations

from pathlib import Path

from laneway.config import StoreURL, check_options, number, parse_url
from laneway.errors import ConfigError
from laneway.store.contract import Store
from laneway.store.inspect import Inspect

__all__ = ["check_url", "open_store"]


def check_url(url: str) -> StoreURL:
    """Return a URL taken apart, or raise ConfigError for what is wrong with it, its options included."""
    parsed = parse_url(url)
    check_options(parsed, ("synchronous", "timeout"))
    number(parsed.options, "timeout", 5.0)
    synchronous = parsed.options.get("synchronous", "normal")
    if synchronous.lower() not in ("normal", "full"):
        raise ConfigError(f"synchronous={synchronous}: use normal (survives a killed process) or full (and a power cut)")
    return parsed


def open_store(url: str, *, dead_days: float, dead_max: int, dead_after: float) -> tuple[Store, Inspect]:
    """Return the store a URL names and its inspection side. Nothing is opened yet."""
    parsed = check_url(url)
    synchronous = parsed.options.get("synchronous", "normal").lower()
    from laneway.store.sqlite import SQLiteInspect, SQLiteStore  # noqa: PLC0415 - only who uses it loads it

    store = SQLiteStore(
        Path(parsed.path).resolve() if parsed.path else None, synchronous=synchronous,
        timeout=number(parsed.options, "timeout", 5.0), dead_days=dead_days, dead_max=dead_max, dead_after=dead_after,
    )  # fmt: skip
    return store, SQLiteInspect(store)
