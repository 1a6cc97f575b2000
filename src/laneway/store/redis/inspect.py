"""The Redis store's inspection side: look, find and act."""

from __future__ import annotations

from laneway.store.redis.act import Acting

__all__ = ["RedisInspect"]


class RedisInspect(Acting):
    """Looks at the store and acts on it, in steps of its own."""
