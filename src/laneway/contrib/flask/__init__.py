"""Laneway in Flask: an extension that is an app of tasks.

```
jobs = Laneway()

@jobs.task
def ship(order_id: int) -> None: ...

def create_app() -> Flask:
    app = Flask(__name__)
    jobs.init_app(app)
    return app
```

`flask laneway worker` runs them, each inside of the application's context.
"""

from __future__ import annotations

from laneway.contrib.flask.extension import Laneway

__all__ = ["Laneway"]
