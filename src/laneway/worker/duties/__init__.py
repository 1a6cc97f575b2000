"""Duties beside the exchanges, each in a thread of its own."""
