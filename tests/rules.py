"""Rules of the models, taken out one at a time: short sequences of moves after which each is missed.

They stand in files beside the models. `make soak` looks for others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis.strategies import SearchStrategy

from conftest import SOAK

__all__ = ["known", "missed_after"]

Moves = list[tuple[Any, ...]]


def known(model: str) -> dict[str, Moves]:
    """Return the moves after which a rule of a model is missed, by rule."""
    parts = Path(__file__).with_name(f"{model}_rules.txt").read_text(encoding="utf-8").split("\n\n")
    lines = [part.strip().splitlines() for part in parts]
    return {rule: [ast.literal_eval(move.strip()) for move in moves] for rule, *moves in lines}


def missed_after(model: str, rule: str, moves: SearchStrategy[Moves], play: Callable[[Moves, bool], None]) -> Moves:
    """Return moves after which a rule is missed, and nothing else. `play` is told whether the rule is in force."""

    def is_missed(moves: Moves) -> bool:
        try:
            play(moves, False)
        except AssertionError:
            return True
        return False

    if SOAK:
        found = find(moves, is_missed, settings=settings(max_examples=20_000, phases=[Phase.generate]))
    else:
        found = known(model)[rule]
        assert is_missed(found)
    play(found, True)
    return found
