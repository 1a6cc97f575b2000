"""The worker: claims jobs, runs them, and settles what they meant."""

from __future__ import annotations

from laneway.worker.worker import Worker

__all__ = ["Worker"]
