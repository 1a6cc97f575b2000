"""Draws the pictures of docs/fan-out.md, docs/source-of-truth.md and docs/exactly-once.md: plain SVG, two panels side by side.

python scripts/drawings.py

A panel is a small story: actors from left to right, time from top to bottom. The left one lacks a rule, and shows the failure
that the rule prevents; the right one has it. Colours follow the reader's: light, or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["DRAWINGS", "Drawing", "Kill", "Lost", "Note", "Panel", "Say", "draw"]

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, GAP, TOP, ROW = 720, 40, 84, 34
PANEL = (WIDTH - GAP) // 2
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.panel { font-weight: 600 }
.actor { font-weight: 600; fill: #2f6fb5 }
.line, .arrow { stroke: #57606a; fill: none }
.line { stroke-dasharray: 2 4 }
.head { fill: #57606a }
.box { fill: #eaf2fb; stroke: #2f6fb5 }
.wrong { fill: #b3261e } .right { fill: #1a7f37 }
.cross { stroke: #b3261e; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .actor { fill: #58a6ff }
  .line, .arrow { stroke: #8b949e }
  .head { fill: #8b949e }
  .box { fill: #14253a; stroke: #58a6ff }
  .wrong { fill: #ff8b80 } .right { fill: #56d364 }
  .cross { stroke: #ff8b80 }
}
"""


@dataclass(frozen=True)
class Say:
    """One actor tells another one something."""

    who: str
    whom: str
    text: str


@dataclass(frozen=True)
class Lost(Say):
    """It is said, and never heard."""


@dataclass(frozen=True)
class Note:
    """What an actor does, or is now."""

    who: str
    text: str


@dataclass(frozen=True)
class Kill(Note):
    """An actor is killed."""


@dataclass(frozen=True)
class Panel:
    """A story, and how it ends."""

    title: str
    actors: Sequence[str]
    steps: Sequence[Say | Note]
    end: str
    is_right: bool = False

    def place(self, actor: str) -> float:
        """Return how far an actor stands from the panel's left edge."""
        inset = 50
        return inset + self.actors.index(actor) * (PANEL - 2 * inset) / (len(self.actors) - 1)


@dataclass(frozen=True)
class Drawing:
    """A file of the documents."""

    name: str
    title: str
    panels: tuple[Panel, Panel]


def draw(drawing: Drawing) -> str:
    """Return a drawing as SVG."""
    rows = max(len(panel.steps) for panel in drawing.panels)
    height = TOP + rows * ROW + 40
    parts = [_text(0, 18, drawing.title, "title", "start")]
    for number, panel in enumerate(drawing.panels):
        parts += _panel(panel, number * (PANEL + GAP), rows)
    told = "; ".join(f"{panel.title}: {_tell(panel)}" for panel in drawing.panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">\n'
        f"<title>{escape(drawing.title)}</title>\n<desc>{escape(told)}</desc>\n<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _tell(panel: Panel) -> str:
    """Say a story in words."""
    return ", ".join([*(_words(step) for step in panel.steps), panel.end])


def _words(step: Say | Note) -> str:
    if isinstance(step, Say):
        return f"{step.who} to {step.whom}: {step.text}{' (lost)' if isinstance(step, Lost) else ''}"
    return f"{step.who}: {step.text}"


def _panel(panel: Panel, left: float, rows: int) -> Iterator[str]:
    yield _text(left, 44, panel.title, "panel", "start")
    bottom = TOP + rows * ROW
    for actor in panel.actors:
        x = left + panel.place(actor)
        yield _text(x, 70, actor, "actor")
        yield f'<line class="line" x1="{x:.0f}" x2="{x:.0f}" y1="{TOP - 6}" y2="{bottom}"/>'
    for number, step in enumerate(panel.steps):
        y = TOP + number * ROW + ROW / 2
        yield from _arrow(panel, step, left, y) if isinstance(step, Say) else _note(panel, step, left, y)
    yield _text(left, bottom + 26, panel.end, f"panel {'right' if panel.is_right else 'wrong'}", "start")


def _arrow(panel: Panel, step: Say, left: float, y: float) -> Iterator[str]:
    start, goal = left + panel.place(step.who), left + panel.place(step.whom)
    forward = 1 if goal > start else -1
    end = (start + goal) / 2 if isinstance(step, Lost) else goal
    yield f'<line class="arrow" x1="{start:.0f}" x2="{end - forward * 4:.0f}" y1="{y + 6:.0f}" y2="{y + 6:.0f}"/>'
    if isinstance(step, Lost):
        yield _cross(end, y + 6)
    else:
        tail = end - forward * 8
        yield f'<path class="head" d="M{end:.0f} {y + 6:.0f} L{tail:.0f} {y + 2:.0f} L{tail:.0f} {y + 10:.0f} Z"/>'
    middle = (start + end) / 2 - (forward * 8 if isinstance(step, Lost) else 0)
    yield _text(middle, y, step.text, "")


def _note(panel: Panel, step: Note, left: float, y: float) -> Iterator[str]:
    x = left + panel.place(step.who)
    if isinstance(step, Kill):
        yield _cross(x, y)
        is_last = panel.actors.index(step.who) == len(panel.actors) - 1
        yield _text(x - 14 if is_last else x + 14, y + 4, step.text, "wrong", "end" if is_last else "start")
        return
    width = wide(step.text) + 14
    middle = min(max(x, left + width / 2), left + PANEL - width / 2)
    yield f'<rect class="box" x="{middle - width / 2:.0f}" y="{y - 9:.0f}" width="{width:.0f}" height="22" rx="4"/>'
    yield _text(middle, y + 6, step.text, "")


def wide(text: str) -> float:
    """Return about how wide a text is, in pixels."""
    return 6.3 * len(text)


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 6:.0f} {y - 6:.0f} l12 12 m0 -12 l-12 12"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "middle") -> str:
    kinds = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{kinds}>{escape(text)}</text>'


# -- the stories -----------------------------------------------------------------------------------------------------

_TWO = ("worker", "provider")
_JOBS = ("program", "database", "store")
_MAKERS = ("program A", "database", "program B")
_SWEEP = ("sweeper", "store", "worker")
_EFFECT = ("store", "worker", "database")

DRAWINGS = (
    Drawing(
        "fan-out",
        "One job for everybody, or one for each",
        (
            Panel(
                "A loop in one job",
                _TWO,
                (
                    Say("worker", "provider", "charge customer 1"),
                    Say("worker", "provider", "charge customer 2"),
                    Kill("worker", "killed: 2 not written down"),
                    Note("worker", "the job starts again"),
                    Say("worker", "provider", "charge customer 2"),
                    Say("worker", "provider", "charge customer 3 …"),
                ),
                "2 pays twice, and 3 has waited for all of it",
            ),
            Panel(
                "A job for each customer",
                ("worker A", "provider", "worker B"),
                (
                    Say("worker A", "provider", "customer 1"),
                    Say("worker B", "provider", "customer 2"),
                    Kill("worker B", "killed"),
                    Say("worker A", "provider", "customer 3"),
                    Note("worker A", "job 2 is ready again: only it runs twice"),
                    Say("worker A", "provider", "customer 2"),
                ),
                "a kill costs one job; the others go on",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "lost-answer",
        "An idempotency key: the answer may be lost, the charge is not",
        (
            Panel(
                "Without a key",
                _TWO,
                (
                    Say("worker", "provider", "charge customer 7"),
                    Note("provider", "charges 12 €"),
                    Lost("provider", "worker", "receipt"),
                    Note("worker", "failed? it tries again"),
                    Say("worker", "provider", "charge customer 7"),
                    Note("provider", "charges 12 €"),
                ),
                "customer 7 has paid twice",
            ),
            Panel(
                "With the invoice as the key",
                _TWO,
                (
                    Say("worker", "provider", "charge, key invoice-7"),
                    Note("provider", "charges 12 €"),
                    Lost("provider", "worker", "receipt"),
                    Note("worker", "failed? it tries again"),
                    Say("worker", "provider", "charge, key invoice-7"),
                    Say("provider", "worker", "the first receipt"),
                ),
                "customer 7 has paid once",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "late-job",
        "charged_at: a job that comes late looks first",
        (
            Panel(
                "Without looking",
                ("database", "worker", "provider"),
                (
                    Say("worker", "provider", "key invoice-7"),
                    Say("worker", "database", "charged"),
                    Note("provider", "a day later: forgets keys"),
                    Note("worker", "another job for 7 comes late"),
                    Say("worker", "provider", "key invoice-7"),
                    Note("provider", "never heard of it: charges"),
                ),
                "customer 7 has paid twice, a day apart",
            ),
            Panel(
                "With a look at charged_at",
                ("database", "worker", "provider"),
                (
                    Say("worker", "provider", "key invoice-7"),
                    Say("worker", "database", "charged_at = now"),
                    Note("provider", "a day later: forgets keys"),
                    Note("worker", "another job for 7 comes late"),
                    Say("worker", "database", "charged?"),
                    Say("database", "worker", "yesterday"),
                ),
                "nothing to do",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "two-programs",
        "on conflict do nothing: two programs make invoices at the same time",
        (
            Panel(
                "Without it",
                _MAKERS,
                (
                    Say("program A", "database", "who is due?"),
                    Say("program B", "database", "who is due?"),
                    Note("database", "customer 7, says it to both"),
                    Say("program A", "database", "insert for 7"),
                    Say("program B", "database", "insert for 7"),
                    Note("database", "invoices 1 and 2: two keys"),
                ),
                "customer 7 pays both",
            ),
            Panel(
                "unique (customer, month)",
                _MAKERS,
                (
                    Say("program A", "database", "who is due?"),
                    Say("program B", "database", "who is due?"),
                    Note("database", "customer 7, says it to both"),
                    Say("program A", "database", "insert for 7"),
                    Say("program B", "database", "insert for 7"),
                    Note("database", "invoice 1; the second is nothing"),
                ),
                "one invoice, one job, one charge",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "gap",
        "A row and its job in one transaction",
        (
            Panel(
                "One after the other",
                _JOBS,
                (
                    Say("program", "database", "insert invoice"),
                    Say("program", "database", "commit"),
                    Kill("program", "killed before the enqueue"),
                    Note("store", "knows of nothing"),
                ),
                "an invoice that no job charges",
            ),
            Panel(
                "with app.transaction(conn)",
                _JOBS,
                (
                    Say("program", "database", "insert invoice"),
                    Say("program", "store", "enqueue: same transaction"),
                    Kill("program", "killed: neither is there"),
                    Note("database", "or commit: both are there"),
                ),
                "both or neither",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "lost-store",
        "What is to be done is a row, not a job",
        (
            Panel(
                "Only jobs know it",
                _JOBS,
                (
                    Say("program", "store", "charge customers 1 to 1,000"),
                    Say("program", "database", "next date moved"),
                    Kill("store", "lost with 600 jobs"),
                    Say("program", "database", "who is due?"),
                    Say("database", "program", "nobody"),
                ),
                "600 are never charged, and nobody knows who",
            ),
            Panel(
                "Invoices know it",
                _JOBS,
                (
                    Say("program", "database", "1,000 invoices"),
                    Kill("store", "lost with 600 jobs"),
                    Say("program", "database", "not charged?"),
                    Say("database", "program", "600 invoices"),
                    Say("program", "store", "enqueue these 600"),
                ),
                "the next sweep mends it",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "sweep",
        'unique_until="end": a sweep during a run',
        (
            Panel(
                'Unique until the claim ("claim")',
                _SWEEP,
                (
                    Say("sweeper", "store", "invoice 7"),
                    Say("store", "worker", "claim: 7"),
                    Note("worker", "asks the provider …"),
                    Say("sweeper", "store", "7 is still open"),
                    Note("store", "no equal job waits: a second one"),
                    Say("store", "worker", "claim: 7"),
                ),
                "two jobs at once; only the key saves the customer",
            ),
            Panel(
                'Unique until the end ("end")',
                _SWEEP,
                (
                    Say("sweeper", "store", "invoice 7"),
                    Say("store", "worker", "claim: 7"),
                    Note("worker", "asks the provider …"),
                    Say("sweeper", "store", "7 is still open"),
                    Note("store", "its job runs: nothing is added"),
                    Say("worker", "store", "done"),
                ),
                "one job, however often one sweeps",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "once",
        "A receipt: what is written, is written once",
        (
            Panel(
                "Without a receipt",
                _EFFECT,
                (
                    Say("store", "worker", "claim"),
                    Say("worker", "database", "total − 10, commit"),
                    Kill("worker", "killed before “done”"),
                    Say("store", "worker", "claim, again"),
                    Say("worker", "database", "total − 10, commit"),
                ),
                "20 are gone",
            ),
            Panel(
                "with current_job().once(conn)",
                _EFFECT,
                (
                    Say("store", "worker", "claim"),
                    Say("worker", "database", "total − 10, receipt"),
                    Kill("worker", "killed before “done”"),
                    Say("store", "worker", "claim, again"),
                    Say("database", "worker", "receipt is there"),
                ),
                "first is False: 10 are gone",
                is_right=True,
            ),
        ),
    ),
    Drawing(
        "finish",
        "finish: your transaction ends the job",
        (
            Panel(
                "Effect, then done",
                _EFFECT,
                (
                    Say("store", "worker", "claim"),
                    Say("worker", "database", "total − 10, commit"),
                    Kill("worker", "killed before “done”"),
                    Say("store", "worker", "claim, again"),
                ),
                "it runs again, and must find out",
            ),
            Panel(
                "with current_job().finish(conn)",
                _EFFECT,
                (
                    Say("store", "worker", "claim"),
                    Say("worker", "database", "total − 10, finish"),
                    Kill("worker", "killed after the commit"),
                    Note("store", "finished in that commit: done"),
                ),
                "nothing runs again",
                is_right=True,
            ),
        ),
    ),
)


def main() -> None:
    """Write them all."""
    for drawing in DRAWINGS:
        (FOLDER / f"{drawing.name}.svg").write_text(draw(drawing), encoding="utf-8")


if __name__ == "__main__":
    main()
