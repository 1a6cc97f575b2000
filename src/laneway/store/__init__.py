"""Stores: where jobs live. A URL chooses one; its driver is imported only then."""

from __future__ import annotations

from laneway.store import backends as _backends  # noqa: F401 # pyright: ignore[reportUnusedImport] - registers them
from laneway.store.registry import StoreSettings, StoreURL, backend_of, check_url, open_store

__all__ = ["StoreSettings", "StoreURL", "backend_of", "check_url", "open_store"]
