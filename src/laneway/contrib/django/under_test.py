"""While Django's tests run: their databases are removed at the end, and PostgreSQL refuses that as long as a store is connected.

Django has no signal for it. So where `django.test` is loaded, its function that removes a database closes the store first.

Enters: a function that closes the store.  Leaves: nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from django.db.backends.base.creation import BaseDatabaseCreation

__all__ = ["close_before_removal"]


def close_before_removal(close: Callable[[], None]) -> None:
    """Call `close` before Django removes a database of its tests. Called again, it does nothing."""
    remove = BaseDatabaseCreation.destroy_test_db
    if "django.test" not in sys.modules or hasattr(remove, "closes"):
        return

    @functools.wraps(remove)
    def destroy_test_db(self: BaseDatabaseCreation, *args: Any, **kwargs: Any) -> None:
        close()
        remove(self, *args, **kwargs)

    setattr(destroy_test_db, "closes", close)  # noqa: B010 - a function's type has no such name
    BaseDatabaseCreation.destroy_test_db = destroy_test_db  # type: ignore[method-assign]
