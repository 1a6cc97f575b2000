"""The audit: a line in the log for every action, done or refused: the user, the action, its target, and the result.

Goes to the logger `laneway.audit`; a handler that wants fields finds them in the record's `audit`. Values are written as JSON, so
that a line break in a name cannot forge a line.
"""

from __future__ import annotations

import json
import logging
from typing import Any

__all__ = ["audit"]

log = logging.getLogger("laneway.audit")
#: The most characters of a target.
MOST = 500


def audit(who: str, action: str, target: Any, result: str) -> None:
    """Write a line."""
    fields = {"who": who, "action": action, "target": target, "result": result}
    shown = (f"{name}={json.dumps(value, default=str)[:MOST]}" for name, value in fields.items())
    log.info("%s", " ".join(shown), extra={"audit": fields})
