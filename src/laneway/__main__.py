"""`python -m laneway` is the same as `laneway`."""

from __future__ import annotations

from laneway.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
