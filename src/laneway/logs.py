"""Where the log of `laneway worker` goes: lines for each run on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TextIO

__all__ = ["start_logging"]

log = logging.getLogger("laneway")


def start_logging(stream: TextIO, tasks: Sequence[str]) -> None:
    """Show the log. A program that has set up logging itself keeps its own, except on a terminal."""
    log.disabled = False  # logging.config switches off loggers that it does not name
    if stream.isatty():
        from laneway.cli.show import JobLines  # noqa: PLC0415 - only a terminal needs it

        JobLines(stream, tasks).install()
    elif not logging.getLogger().handlers and not log.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
