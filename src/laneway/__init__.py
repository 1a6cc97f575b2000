"""Laneway: background jobs for Python.

Every job runs in a lane. Jobs in one lane never overlap and never overtake. Lanes run in parallel.
"""

from __future__ import annotations

from laneway.app import App
from laneway.context import Cancel, RetryIn, Snooze, current_job
from laneway.errors import LanewayError
from laneway.handle import JobHandle
from laneway.retry import Retry
from laneway.worker import Worker

__all__ = ["App", "Cancel", "current_job", "JobHandle", "LanewayError", "Retry", "RetryIn", "Snooze", "Worker"]

__version__ = "0.1.0.dev0"
