"""The store for many machines: jobs and lanes in Redis or Valkey."""

from __future__ import annotations

from laneway.store.redis.inspection import RedisInspect
from laneway.store.redis.store import RedisStore

__all__ = ["RedisInspect", "RedisStore"]
