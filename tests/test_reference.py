"""The reference and the code agree, both ways: what is there is in it, and what it names is there."""

from __future__ import annotations

import builtins
import contextlib
import datetime
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import laneway
from laneway import App, JobHandle, LaneHandle, Retry, Worker, errors, logs
from laneway.capacity import Crew, Load, Machine, Need, Option, Pace, Plan
from laneway.cli import laneway as program
from laneway.desk.collector import Collector, KeyedCollector
from laneway.desk.context import JobContext
from laneway.desk.inspection import Explanation, Inspection, ScheduleInfo
from laneway.desk.options import CollectorOptions, JobOptions, TaskOptions
from laneway.desk.stats import Day, Point, Stats, Summary, Times
from laneway.desk.synonyms import Missing
from laneway.desk.task import Task
from laneway.pool import Dispatch, WorkerPool, WorkerStats
from laneway.settings import SETTINGS
from laneway.store.error_groups import ErrorGroup
from laneway.store.findings import Finding
from laneway.store.inspection import JobInfo, LaneInfo, PayloadInfo, QueueInfo, RunningJob, WorkerStatus
from laneway.store.runs import Run
from laneway.testing import Testing

TEXT = (Path(__file__).parent.parent / "docs" / "reference.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))

#: What each section is about: everything public of these classes is in it.
CLASSES: dict[str, tuple[type, ...]] = {
    "App": (App,),
    "Tasks": (Task,),
    "Collectors": (Collector, KeyedCollector, LaneHandle),
    "JobHandle": (JobHandle,),
    "Retry": (Retry,),
    "Workers": (Worker, JobContext),
    "app.inspect": (
        Inspection,
        Explanation,
        ScheduleInfo,
        JobInfo,
        LaneInfo,
        PayloadInfo,
        QueueInfo,
        WorkerStatus,
        RunningJob,
        Finding,
    ),
    "app.stats": (Stats, Point, Day, Summary, Times, Run, ErrorGroup),
    "Testing": (Testing,),
    "Pools": (WorkerPool, WorkerStats, Dispatch),
    "Capacity": (Load, Machine, Crew, Plan, Pace, Need, Option),
}

#: Whose names are public: every one of their `__all__` is in the reference.
MODULES = (
    "laneway", "laneway.errors", "laneway.capacity", "laneway.contrib.fastapi", "laneway.contrib.flask",
    "laneway.contrib.opentelemetry", "laneway.contrib.sentry", "laneway.contrib.starlette", "laneway.pool", "laneway.testing",
    "laneway.testing.pytest_plugin", "laneway.web", "laneway.web.wsgi", "laneway.worker.balance",
)  # fmt: skip

#: Names without an underscore that only our own modules use. They are promised to nobody.
OURS = {
    App: {"need_connections", "set_connections", "store_inspect", "swap_stores", "use_store"},
    Worker: {"run_in"},
    Task: {"handle", "prepare", "retries", "signature"},
    Collector: {"draft", "keyed", "payload", "prepare", "read", "retries", "spoilt"},
    KeyedCollector: {"draft", "keyed", "payload", "prepare", "read", "retries", "spoilt"},
    JobContext: {
        "claim", "claim_may_be_lost", "declared", "finishes", "ids", "marked", "notes", "notes_changed", "row", "started",
        "take_notes",
    },
    WorkerStatus: {"held"},
    Run: {"enqueued", "finished", "started"},
}  # fmt: skip
OUR_NAMES = {
    "laneway.errors": {"did_you_mean"},
    "laneway.worker.balance": {"check", "choose", "smoothed_loads", "name_of", "read_weights"},
}

SPAN = re.compile(r"`([^`]+)`")
WORD = re.compile(r"[A-Za-z_]\w*")
FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[A-Za-z](?![\w-]))")
COMMON = {"-A", "--app", "--store", "--json"}


def words(text: str) -> set[str]:
    """Return the words that stand as code in a text: in blocks that do not run, and between backticks."""
    fenced = re.findall(r"^```(?:text|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {word for piece in (*fenced, *SPAN.findall(prose)) for word in WORD.findall(piece)}


def public(owner: type) -> set[str]:
    """Return what a class offers by itself, not what it has of Python's own."""
    ours = [kind for kind in owner.__mro__ if kind.__module__.startswith("laneway")]
    names = {name for kind in ours for name in (*vars(kind), *getattr(kind, "__annotations__", {}))}
    missing = {name for kind in ours for name, one in vars(kind).items() if isinstance(one, Missing)}
    return {name for name in names - missing if not name.startswith("_")}


def parameters(owner: type) -> set[str]:
    """Return the words by which a class and its methods are called."""
    calls = [owner, *(found for name in public(owner) if callable(found := getattr(owner, name, None)))]
    return {name for call in calls for name in inspect.signature(call).parameters}


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of all table rows, the heads left out."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "owner"), [(section, owner) for section, owners in CLASSES.items() for owner in owners],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)  # fmt: skip
def test_all_that_a_public_class_offers_is_in_its_section(section: str, owner: type) -> None:
    assert OURS.get(owner, set()) <= public(owner), "what is ours must be there, too"
    assert public(owner) - OURS.get(owner, set()) - words(SECTIONS[section]) == set()


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_public_module_is_in_the_reference(module: str) -> None:
    ours = OUR_NAMES.get(module, set())
    names = set(importlib.import_module(module).__all__)
    assert ours <= names
    assert names - ours - words(TEXT) == set()


@pytest.mark.parametrize("section", CLASSES)
def test_what_a_section_lists_is_there(section: str) -> None:
    known = {name for owner in CLASSES[section] for name in public(owner) - OURS.get(owner, set())}
    known |= {name for owner in CLASSES[section] for name in parameters(owner)} | {"inspect", "stats", "url"}
    known |= {*TaskOptions.__annotations__, *CollectorOptions.__annotations__, *JobOptions.__annotations__, *errors.__all__}
    known |= {name for module in MODULES for name in importlib.import_module(module).__all__}
    listed = {
        match[1]
        for cells in rows(SECTIONS[section])
        for span in SPAN.findall(cells[0])
        if (match := re.match(r"(?:\w+\.)*([A-Za-z_]\w*)(?=$|[ (])", span))
    }
    assert listed - known == set()


#: What the first words of a dotted name stand for; None is what users name so in their own code.
ROOTS: dict[str, Any] = {
    "app.inspect": Inspection, "app.stats": Stats, "app": App("sqlite://"), "task": Task, "job": JobHandle, "pool": WorkerPool,
    "laneway": laneway, "worker": Worker, "draft": None, "page": None, "error": None,
}  # fmt: skip


def leads_somewhere(dotted: str) -> bool:
    root = next((root for root in ROOTS if dotted.startswith(f"{root}.")), None)
    if root is None or ROOTS[root] is None:
        return root is not None
    found: Any = ROOTS[root]
    for part in dotted.removeprefix(f"{root}.").split("."):
        if not hasattr(found, part) and inspect.ismodule(found):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{part}")
        if not hasattr(found, part):
            return not inspect.ismodule(found) and part in getattr(found, "__annotations__", {})
        found = getattr(found, part)
    return True


def test_every_dotted_name_leads_somewhere() -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    dotted = {found[1] for span in SPAN.findall(prose) if (found := re.match(r"@?([a-z_]+(?:\.\w+)+)", span))}
    loggers = {logs.runs_log.name}
    named = {name for name in dotted if not name.endswith((".py", ".db", ".toml"))} - loggers
    assert {name for name in named if not leads_somewhere(name)} == set()


def test_every_class_that_is_named_is_there() -> None:
    known = {name for module in MODULES for name in importlib.import_module(module).__all__}
    known |= {owner.__name__ for owners in CLASSES.values() for owner in owners} | {*vars(builtins), *vars(datetime)}
    known |= {"Gathering", "KeyedGathering", "NoCurrentJob", "ASGI", "Starlette"}
    named = {span for span in SPAN.findall(TEXT) if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*", span)}
    assert named - known == set()


# -- errors ------------------------------------------------------------------------------------------------------


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    (tree,) = re.findall(r"^```text\n(LanewayError\n.*?)^```", SECTIONS["Errors"], re.MULTILINE | re.DOTALL)
    parents: list[str] = []
    drawn: dict[str, str | None] = {}
    for line in tree.splitlines():
        before, name = re.fullmatch(r"([^A-Za-z]*)(\w+).*", line, re.DOTALL).groups()  # type: ignore[union-attr]
        depth = len(before) // 4
        parents[depth:] = [name]
        drawn[name] = parents[depth - 1] if depth else None
    real = {name: getattr(errors, name) for name in errors.__all__ if name != "did_you_mean"}
    assert drawn == {name: None if kind is errors.LanewayError else kind.__bases__[0].__name__ for name, kind in real.items()}


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "section", "table"),
    [(TaskOptions, "Tasks", 0), (JobOptions, "Enqueueing", 0), (CollectorOptions, "Collectors", 0)],
    ids=["task", "using", "collector"],
)
def test_the_options_of_a_declaration_are_those_of_its_table(options: type, section: str, table: int) -> None:
    body = re.findall(r"(?:^\|.*\n)+", SECTIONS[section], re.MULTILINE)[table]
    listed = {span for cells in rows(body) for span in SPAN.findall(cells[0])}
    assert listed == {*options.__annotations__, *(["lane"] if options is CollectorOptions else [])}


def test_the_settings_are_those_of_the_table() -> None:
    assert {span for cells in rows(SECTIONS["Settings"]) for span in SPAN.findall(cells[0])} == set(SETTINGS)


def test_the_words_of_the_dashboard_are_those_of_its_table() -> None:
    from laneway.web import dashboard  # noqa: PLC0415 - it is loaded late everywhere

    listed = {span for cells in rows(SECTIONS["The dashboard"]) for span in SPAN.findall(cells[0])}
    assert listed == set(inspect.signature(dashboard).parameters)


# -- commands ----------------------------------------------------------------------------------------------------


def commands(command: click.Command = program, path: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}".strip())


COMMANDS = dict(commands())


def flags(command: click.Command) -> set[str]:
    return {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}


def listed_commands() -> dict[str, set[str]]:
    """Return the commands that the reference lists, with the flags of their rows."""
    found: dict[str, set[str]] = {}
    for cells in rows(SECTIONS["Command line"].partition("### laneway worker")[0]):
        for span in SPAN.findall(cells[0]):
            if not re.match(r"[a-z]", span):
                continue  # an exit code, a flag
            name = next((name for name in sorted(COMMANDS, key=len, reverse=True) if f"{span} ".startswith(f"{name} ")), span)
            found[name] = {flag for piece in SPAN.findall(" ".join(cells)) for flag in FLAG.findall(piece)}
    return found


def test_every_command_is_listed_and_what_is_listed_is_a_command() -> None:
    assert set(listed_commands()) == set(COMMANDS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "worker"])
def test_the_options_of_a_command_are_those_of_its_row(name: str) -> None:
    long = {flag for flag in flags(COMMANDS[name]) - COMMON if flag.startswith("--")}
    row = listed_commands()[name]
    assert {flag for flag in row if flag.startswith("--")} - COMMON == long
    assert row <= flags(COMMANDS[name])


def test_the_options_of_a_worker_are_those_of_its_table() -> None:
    table = SECTIONS["Command line"].partition("### laneway worker")[2]
    listed = {flag for cells in rows(table) for span in SPAN.findall(cells[0]) for flag in FLAG.findall(span)}
    assert listed == flags(COMMANDS["worker"])


def test_the_common_options_are_those_of_all_commands_but_the_ones_that_are_named() -> None:
    (named,) = re.findall(r"All commands but (.+?) take `-A APP`", SECTIONS["Command line"])
    assert set(SPAN.findall(named)) == {name for name, command in COMMANDS.items() if not flags(command) >= COMMON}


def test_no_flag_is_named_that_no_command_has() -> None:
    real = {flag for command in COMMANDS.values() for flag in flags(command)} | {"--help", "-m"}  # click's, and Python's
    assert {flag for span in SPAN.findall(TEXT) for flag in FLAG.findall(span)} - real == set()
