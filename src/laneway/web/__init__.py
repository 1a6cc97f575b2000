"""The web: the JSON API, health, metrics and live figures of an app, as an ASGI app.

```
 a request ──▶ app (routes) ──▶ endpoint ──▶ access: which user, and may they? ──▶ api, actions ──▶ inspect, stats
                                   │                                              │
                                   └──▶ audit                                     └──▶ operations (what takes long)
 beside them: live (server-sent events), health, metrics; all three are made of one snapshot of the store
```

Needs the extra `web`: pip install "laneway[web]". Nothing else of Laneway loads it.

>>> from laneway import App
>>> site = dashboard(App("sqlite://"))
"""

from __future__ import annotations

from laneway.web.app import dashboard

__all__ = ["dashboard"]
