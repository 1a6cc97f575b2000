"""Settings of the shop, from the environment."""

from __future__ import annotations

import os

#: The server; each system has database numbers of its own.
REDIS = os.environ.get("SHOP_REDIS", "redis://localhost:6379")
#: What was moved to Laneway already: a deployment adds the next name.
MOVED = frozenset(os.environ.get("MOVED", "").split(","))
