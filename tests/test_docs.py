"""The documents keep their word: what they show runs, prints what they say, and leads somewhere.

All ```python blocks of a document are one program, run in an empty folder as `shop.py` with the store in memory unless it
names another, or is one of those below. Its lines keep their numbers, so a traceback points into the document. What a block
prints is checked where the document shows it: as a comment behind every `print(...)`, or as the ```text block that follows at
once ("..." is anything).
What is not to run is marked as text or console.
"""

from __future__ import annotations

import doctest
import itertools
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
#: Those of examples/billing, django_shop and migrating are run by test_billing.py, test_django.py and test_migrating.py.
EXAMPLES = {
    str(path.relative_to(ROOT / "examples")): path
    for path in sorted((ROOT / "examples").rglob("*.py"))
    if not {"billing", "django_shop", "migrating"} & set(path.parts)
}

#: Documents whose program keeps its jobs in its own database.
OWN_STORE = {"docs/flask.md"}

END = "\x1e"  # printed after each block
SAID = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACE = re.compile(r"^[a-z]+:|^#")  # of another site, or of the same page


@dataclass
class Block:
    """A fenced block; lines are counted from 0, the fences excluded."""

    kind: str
    start: int
    end: int
    text: str


def blocks(source: str) -> list[Block]:
    found: list[Block] = []
    kind: str | None = None
    start = 0
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        assert line.startswith("```"), f"the block in line {number + 1} is indented: it would not run"
        if kind is None:
            kind, start = line.removeprefix("```"), number + 1
        else:
            found.append(Block(kind, start, number, "\n".join(lines[start:number])))
            kind = None
    assert kind is None, f"the block in line {start} has no end"
    return found


def program(source: str) -> str:
    """Return a document as Python: its blocks where they stand, a mark behind each, and nothing else."""
    lines = source.splitlines()
    kept = [""] * len(lines)
    for block in blocks(source):
        if block.kind == "python":
            kept[block.start : block.end] = lines[block.start : block.end]
            kept[block.end] = f"print({END!r})"
    return "".join(f"{line}\n" for line in kept)


def shown(source: str) -> list[tuple[Block, str | None]]:
    """Return the Python blocks, each with what the document says that it prints."""
    lines = source.splitlines()
    found: list[tuple[Block, str | None]] = []
    every = blocks(source)
    for block, after in itertools.zip_longest(every, every[1:]):
        if block.kind != "python":
            continue
        follows = after is not None and after.kind == "text" and not any(lines[block.end + 1 : after.start - 1])
        comments = SAID.findall(block.text)
        found.append((block, after.text if after and follows else "\n".join(comments) if comments else None))
    return found


def run(path: Path, folder: Path, **environ: str) -> str:
    """Run a program in a folder and return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=folder, env={**kept, "TMPDIR": str(folder), **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_runs_and_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    source = DOCUMENTS[name].read_text(encoding="utf-8")
    path = tmp_path / "shop.py"
    path.write_text(program(source), encoding="utf-8")
    printed = run(path, tmp_path, **({} if name in OWN_STORE else {"LANEWAY_URL": "sqlite://"})).split(f"{END}\n")

    for (block, said), real in zip(shown(source), printed, strict=False):
        fits = said is None or doctest.OutputChecker().check_output(f"{said}\n", real, doctest.ELLIPSIS)
        assert fits, f"{name}, line {block.start + 1}: it says\n{said}\nand prints\n{real}"
    assert len(printed) == len(shown(source)) + 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert run(EXAMPLES[name], tmp_path)


def test_the_orders_show_what_goes_wrong_without_a_collector(tmp_path: Path) -> None:
    naive, careful = (line.split() for line in run(EXAMPLES["orders/app.py"], tmp_path).splitlines()[1:])
    assert int(naive[3]) == 400
    assert int(naive[5]) > 0, "no order was overwritten"
    assert int(careful[2]) == 40
    assert int(careful[4]) == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_takes_a_store(name: str, tmp_path: Path) -> None:
    run(EXAMPLES[name], tmp_path, LANEWAY_URL="sqlite:///given.db")
    assert (tmp_path / "given.db").exists()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_of_a_document_leads_to_a_file(name: str) -> None:
    path = DOCUMENTS[name]
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if not PLACE.match(link)]
    assert [link for link in links if not (path.parent / link.partition("#")[0]).exists()] == []


def anchors(path: Path) -> set[str]:
    """Return the places of a document that a link can name: its headings, as the sites that show Markdown write them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*\\]", r"\1", head).strip() for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_to_a_part_of_a_document_leads_to_a_heading(name: str) -> None:
    path = DOCUMENTS[name]
    links = [link.partition("#") for link in LINK.findall(path.read_text(encoding="utf-8")) if not re.match("[a-z]+:", link)]
    named = [(path.parent / file if file else path, part) for file, _, part in links if part]
    assert [f"{file.name}#{part}" for file, part in named if part not in anchors(file)] == []


def test_the_readme_leads_to_every_document() -> None:
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [name for name in DOCUMENTS if name not in links] == ["README.md"]


def test_a_document_becomes_a_program_with_the_same_lines() -> None:
    source = "# Title\n```python\nprint(x := 1)  # 1\n```\n```text\n1\n```\nWords.\n```python\nprint(2)\n```\n\n```text\n2\n```\n"
    mark = f"print({END!r})"

    assert program(source).splitlines() == ["", "", "print(x := 1)  # 1", mark, *[""] * 5, "print(2)", mark, *[""] * 4]
    assert [said for _, said in shown(source)] == ["1", "2"]


def test_what_a_block_prints_is_said_behind_it_or_after_it_or_not_at_all() -> None:
    source = "```python\nprint(1)  # 1\nprint(2)  # 2\n```\n```python\nprint(3)\n```\nWords.\n```text\nno output\n```\n"
    assert [said for _, said in shown(source)] == ["1\n2", None]
