"""Laneway: background jobs for Python.

Every job runs in a lane. Jobs in one lane never overlap and never overtake. Lanes run in parallel.
"""

from __future__ import annotations

from laneway.app import App
from laneway.errors import LanewayError
from laneway.handle import JobHandle
from laneway.retry import Retry

__all__ = ["App", "JobHandle", "LanewayError", "Retry"]

__version__ = "0.1.0.dev0"
