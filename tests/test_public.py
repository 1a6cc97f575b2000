"""The front door, and how the rooms behind it hang together."""

from __future__ import annotations

import ast
import doctest
import functools
import graphlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import laneway

ROOT = Path(laneway.__file__).parent
FILES = {
    ".".join(["laneway", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
STORE = {name for name in FILES if name == "laneway.store" or name.startswith("laneway.store.")}
CORE = [name for name in FILES if name.startswith("laneway.core.")]
#: Each knows only those before it: modules, and packages with all that is in them.
FLOORS = (
    ("errors", "clock", "ids", "kernel", "locks", "shield"), ("core",), ("logs", "settings"),
    ("config", "events", "transactions"), ("store",), ("outbox",), ("desk",), ("pool",), ("worker",), ("fleet", "testing"),
    ("present", "capacity"), ("cli", "web", "contrib"), ("__main__",),
)  # fmt: skip
#: Imports of a floor above, made when a function is called.
UPWARDS = {
    ("laneway.desk.app", "laneway.testing"),  # `app.testing()` is called by tests alone
    ("laneway.worker.isolate", "laneway.fleet.forker"),  # a worker that runs alone starts what a fleet starts for its workers
    ("laneway.worker.isolate", "laneway.fleet.messages"),
    ("laneway.logs", "laneway.cli.show"),  # the lines of a log on a terminal are drawn as the commands draw
}
#: Modules that only a Django project with its settings can import.
OF_A_PROJECT = {"laneway.contrib.django"} | {
    f"laneway.contrib.django.{name}" for name in ("admin", "discover", "models", "urls", "views")
}
#: What a module of `core` neither imports nor calls: it computes, and does nothing else.
IMPURE = {
    "asyncio", "contextvars", "ctypes", "fcntl", "logging", "mmap", "multiprocessing", "os", "select", "selectors", "shutil",
    "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time",
}  # fmt: skip
#: Values with more than `MOST_ATTRIBUTES`, each with the reason why groups would make them harder to read.
WIDE = {
    "Row",  # the columns of the table of jobs, in their order: it is made of what a statement returns, for each job claimed
    "JobInfo",  # what users read of a job, each by its own name: a group would need a property for each of its fields as well
}
MOST_ATTRIBUTES = 20
IMPURE_CALLS = {"open", "print", "input", "now", "today", "utcnow", "read_text", "write_text", "getenv"}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """All modules, parsed when the first test asks: every process of the tests imports this module, and one needs them."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def targets(statement: ast.stmt) -> Iterator[tuple[str, str | None]]:
    """Yield what an import names: (module, None) or (module, name)."""
    if isinstance(statement, ast.Import):
        yield from ((alias.name, None) for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, "imports are absolute"
        for alias in statement.names:
            inside = f"{statement.module}.{alias.name}"
            yield (inside, None) if inside in FILES else (str(statement.module), alias.name)


def loaded(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that are loaded with a module: not those in functions, nor those for type checkers only."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from loaded(statement.orelse)
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from loaded(getattr(statement, part, []))
        else:
            yield from (module for module, _ in targets(statement) if module in FILES)


def known(tree: ast.Module) -> set[str]:
    """Return the modules that a module imports anywhere, in its functions too; not those for type checkers only."""
    for_checkers = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inside in ast.walk(statement)
    }
    found = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom) and id(one) not in for_checkers]
    return {module for one in found for module, _ in targets(one) if module in FILES}


@functools.cache
def imports() -> dict[str, set[tuple[str, str]]]:
    """Return for each module the names that others import from it, and who does."""
    found: dict[str, set[tuple[str, str]]] = {name: set() for name in FILES}
    for user, tree in trees().items():
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for module, thing in targets(statement):
                    if thing is not None and module in FILES and module != user:
                        found[module].add((thing, user))
    return found


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return the modules that are loaded with each."""
    return {name: set(loaded(tree.body)) for name, tree in trees().items()}


def reach(start: str) -> set[str]:
    """Return all that is loaded because of a module, the packages that hold it left out."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph()[waiting.pop()] - found:
            found.add(module)
            waiting.append(module)
    return found


def exported(name: str) -> list[str]:
    if name in OF_A_PROJECT:
        [found] = [one for one in trees()[name].body if ast.unparse(one).startswith("__all__")]
        return list(ast.literal_eval(ast.unparse(found).partition(" = ")[2]))
    return list(getattr(importlib.import_module(name), "__all__", []))


def test_the_front_door_is_sorted_and_everything_is_there() -> None:
    assert laneway.__all__ == sorted(laneway.__all__, key=str.lower)
    assert len(set(laneway.__all__)) == len(laneway.__all__)
    assert [name for name in laneway.__all__ if not hasattr(laneway, name)] == []


def test_every_modules_all_names_what_is_there() -> None:
    names = [(name, thing) for name in FILES if name not in OF_A_PROJECT for thing in exported(name)]
    assert [(name, thing) for name, thing in names if not hasattr(importlib.import_module(name), thing)] == []
    assert names == list(dict.fromkeys(names))


def test_every_modules_all_names_what_others_import_from_it() -> None:
    used = [(name, thing, user) for name in FILES for thing, user in imports()[name]]
    assert [f"{thing} of {name}, imported by {user}" for name, thing, user in used if thing not in exported(name)] == []


def test_every_module_opens_with_its_story() -> None:
    assert [name for name in FILES if not ast.get_docstring(trees()[name])] == []


def test_importing_laneway_loads_neither_an_event_loop_nor_a_driver() -> None:
    program = "import json, sys; old = {*sys.modules}; from laneway import App; print(json.dumps(sorted({*sys.modules} - old)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    modules = set(json.loads(done.stdout))
    assert "laneway.desk.app" in modules
    assert modules & {"asyncio", "sqlite3", "_sqlite3", "redis", "psycopg", "pydantic", "laneway.store.sqlite"} == set()


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8")])
def test_the_examples_in_docstrings_do_what_they_show(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_some_docstrings_have_examples() -> None:
    shown = [name for name, path in FILES.items() if ">>> " in path.read_text(encoding="utf-8")]
    assert {"laneway.desk.app", "laneway.desk.task", "laneway.desk.handle", "laneway.core.retry"} <= set(shown)


def attributes(declared: ast.ClassDef) -> set[str]:
    """Return the attributes that a class gives its instances: fields, slots, and what its methods assign to `self`."""
    found: set[str] = set()
    for statement in declared.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if "ClassVar" not in ast.unparse(statement.annotation):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")]):
                slots: str | tuple[str, ...] = ast.literal_eval(statement.value)
                found |= {slots} if isinstance(slots, str) else set(slots)
            case _:
                pass
    for node in ast.walk(declared):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def test_a_class_has_few_attributes() -> None:
    declared = [one for tree in trees().values() for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    wide = {f"{one.name}: {len(attributes(one))}" for one in declared if len(attributes(one)) > MOST_ATTRIBUTES}
    assert {one for one in wide if one.partition(":")[0] not in WIDE} == set()
    assert len(wide) == len(WIDE), "WIDE names a class that is not wide any more"


def test_attributes_are_fields_slots_and_what_methods_assign() -> None:
    source = """
class One(Struct):
    __slots__ = ("slot", "other")
    field: int = 0
    shared: ClassVar[int] = 1
    method = wrapped(method)
    def __init__(self):
        self.plain = self.chained = read(self.unset)
        self.first, self.field = 1, 2
        self.counted += 1
"""
    [one] = ast.parse(source).body
    assert isinstance(one, ast.ClassDef)
    assert attributes(one) == {"slot", "other", "field", "plain", "chained", "first", "counted"}


def test_imports_point_one_way() -> None:
    order = list(graphlib.TopologicalSorter(graph()).static_order())
    assert order.index("laneway.errors") < order.index("laneway.desk.app") < order.index("laneway.fleet.zygote")


def floor(name: str) -> int:
    room = name.split(".")[1]
    [number] = [number for number, rooms in enumerate(FLOORS) if room in rooms]
    return number


def test_each_floor_knows_only_those_below_it() -> None:
    named = {(user, used) for user in FILES for used in known(trees()[user]) if "laneway" not in (user, used)}
    assert {(user, used) for user, used in named if floor(used) > floor(user)} == UPWARDS
    assert [f"{user} imports {used}" for user, used in named if "web" in user.split(".") and "cli" in used.split(".")] == []


@pytest.mark.parametrize("name", CORE)
def test_the_core_only_computes(name: str) -> None:
    imported = {
        alias.name.split(".")[0] for node in ast.walk(trees()[name]) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module).split(".")[0] for node in ast.walk(trees()[name]) if isinstance(node, ast.ImportFrom)}
    calls = [node.func for node in ast.walk(trees()[name]) if isinstance(node, ast.Call)]
    called = {
        call.id if isinstance(call, ast.Name) else call.attr for call in calls if isinstance(call, ast.Name | ast.Attribute)
    }
    assert imported & IMPURE == set()
    assert called & IMPURE_CALLS == set()
    assert {one for one in reach(name) if not one.startswith("laneway.core.")} <= {"laneway.errors"}


def test_the_contract_does_not_know_the_inspection_side_nor_any_store() -> None:
    assert reach("laneway.store.contract") & STORE == set()


def test_what_enqueues_knows_only_the_contract_of_a_store() -> None:
    assert reach("laneway.desk.enqueue") & STORE == {"laneway.store.contract", "laneway.store.two_steps"}


def test_a_walk_over_imports_sees_what_is_loaded_and_nothing_else() -> None:
    tree = ast.parse(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from laneway.desk.app import App\n"
        "try:\n    from laneway.core.job import Job\nfinally:\n    import laneway.store.contract\n"
        "from laneway.store.sqlite import store\ndef later():\n    from laneway.desk.task import Task\n"
    )
    assert list(loaded(tree.body)) == ["laneway.core.job", "laneway.store.contract", "laneway.store.sqlite.store"]
