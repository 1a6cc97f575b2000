"""Finding the app that a command works on.

The app is named by the argument APP, else -A, else LANEWAY_APP, else `app` under [tool.laneway] in pyproject.toml here; else it
is in app.py or main.py here. The name is a module and an attribute, or the path of a file: then the module is imported as from
its own folder, so that its tasks have the names they have for a program that runs there. The name may also be a web program whose
extension is the app, or a function that makes it (`create_app`). Every mistake in it is a ConfigError of one line.

Enters: what the user wrote.  Leaves: an `App`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from laneway.desk.app import App
from laneway.errors import ConfigError, StoreUnavailable, did_you_mean
from laneway.settings import Settings
from laneway.store import backend_of, check_url

__all__ = ["check_store", "choose", "find_app", "guarded", "load_tasks"]

T = TypeVar("T")

FILES = ("app.py", "main.py")
#: How web programs name the function that makes them.
FACTORIES = ("create_app", "make_app")
HOW = "name it as in: laneway worker shop.jobs:app, or laneway worker ./shop/app.py"


_MISSING = object()


class _NoModule(ConfigError):
    """The module itself is missing, not something it imports."""


def find_app(argument: str | None, option: str | None, store: str | None = None) -> App:
    """Return the app that a command works on, with its store replaced by `store` if that is given."""
    text, origin = choose(argument, option)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    app = _load(text, origin)
    if store is not None:
        app.use_store(store)
    return app


def choose(argument: str | None, option: str | None) -> tuple[str, str]:
    """Return the app's name, and a few words on where it is written (none for the command itself)."""
    if argument and option and argument != option:
        raise ConfigError(f"two apps are named, {argument} and -A {option}: leave one out")
    if named := argument or option:
        return named, ""
    found = Settings().find("app")
    if found.value is not None:
        return found.value, f"{found.source}: "
    for file in FILES:
        if Path(file).is_file():
            return f"./{file}", ""
    raise ConfigError(f"no app found: there is no app.py or main.py in {Path.cwd()}; {HOW}", no_app=True)


# -- loading -----------------------------------------------------------------------------------------------------


def _load(text: str, origin: str) -> App:
    place, colon, attribute = text.rpartition(":")
    if not colon or "/" in attribute or "\\" in attribute:
        place, attribute = text, ""
    if place.endswith(".py") or "/" in place or "\\" in place:
        module = _import_file(place, origin)
    else:
        module = _import(place, lambda error: _no_module(place, origin, error))
    return _pick(module, attribute or _usual(module), origin)


def _import_file(place: str, origin: str) -> ModuleType:
    file = Path(place).expanduser()
    if file.is_dir():
        inside = [f"{place.rstrip('/')}/{name}" for name in FILES if (file / name).is_file()]
        raise ConfigError(f"{origin}{place} is a folder: name a file in it{f', such as {inside[0]}' if inside else ''}")
    if not file.is_file():
        near = did_you_mean(file.name, [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else [])
        raise ConfigError(f"{origin}there is no file {place}.{near}")
    file = file.resolve()
    named = file.parent if file.stem == "__init__" else file.with_suffix("")
    sys.path.insert(0, str(named.parent))
    module = _import(named.name, lambda _: _NoModule(f"{origin}{place} cannot be imported: a module's file ends in .py"))
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != file:
        raise ConfigError(f'{origin}{place} cannot be imported: "{named.name}" is already {found or "built in"}. Rename the file')
    return module


def _import(name: str, missing: Callable[[ModuleNotFoundError], _NoModule]) -> ModuleType:
    def load() -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise missing(error) from None
            raise

    return guarded(f"{name} cannot be imported", load)


def _no_module(name: str, origin: str, error: ModuleNotFoundError) -> _NoModule:
    parent, _, last = name.rpartition(".")
    if hasattr(sys.modules.get(parent), last):
        return _NoModule(f'{origin}there is no module "{name}". Did you mean "{parent}:{last}"?')
    here = Path.cwd()
    known = [file.stem for file in here.glob("*.py")] + [file.parent.name for file in here.glob("*/__init__.py")]
    near = did_you_mean(str(error.name), known)
    return _NoModule(f'{origin}there is no module "{error.name}" in {here} nor among the installed ones.{near}')


def load_tasks(app: App) -> int:
    """Import the modules in the app's `imports`; return the number of its tasks."""
    return len(guarded("the app's imports cannot be imported", lambda: app.declared))


def guarded(what: str, load: Callable[[], T]) -> T:
    """Call a function that runs a user's module; an error in that becomes one line with its place."""
    try:
        return load()
    except _NoModule:
        raise
    except SystemExit as error:
        raise ConfigError(f'{what}: {_where(error)}it ends the program. Put that under if __name__ == "__main__":') from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a user's module may raise anything while it is imported
        hint = ""
        if "relative import with no known parent" in str(error):
            hint = ". It is part of a package: name it as a module, such as shop.app, from the folder above"
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"{what}: {_where(error)}{type(error).__name__}: {said}{hint}") from None


def _where(error: BaseException) -> str:
    """Return the line of the user's code where an error was raised: the last one that is not in a library."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}, line {error.lineno}: "
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    ours = str(Path(__file__).parents[1])
    libraries = (ours, str(Path(os.__file__).parent))
    theirs = [frame for frame in frames if not frame.filename.startswith(libraries) and "site-packages" not in frame.filename]
    if not theirs:
        return ""
    return f"{_short(theirs[-1].filename)}, line {theirs[-1].lineno}: "


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _usual(module: ModuleType) -> str:
    """Return the attribute to take where none is named: the only App there is, else `app`, which may be a web program, or
    `create_app`, which makes one."""
    names = [name for name in _apps(module) if _is_bound(getattr(module, name))]
    known = [name for name in ("app", *FACTORIES) if hasattr(module, name)]
    return names[0] if len(names) == 1 else next(iter(known), "app")


def _apps(module: ModuleType) -> list[str]:
    return [name for name, thing in vars(module).items() if isinstance(thing, App)]


def _is_bound(app: object) -> bool:
    """Return whether an app knows its store. The extension of a web framework learns it from the web program."""
    return bool(getattr(app, "is_bound", True))


def _pick(module: ModuleType, attribute: str, origin: str) -> App:
    value: Any = module
    names = _apps(module)
    file = _short(getattr(module, "__file__", None) or module.__name__)
    there = f"Apps there: {', '.join(names)}" if names else "There is no App in it: write app = App(...)"
    attribute = attribute.removesuffix("()")
    for part in attribute.split("."):
        value = getattr(value, part, _MISSING)  # once: a module may make its app when it is asked for it
        if value is _MISSING:
            raise ConfigError(f'{origin}there is no "{attribute}" in {file}.{did_you_mean(attribute, names)} {there}')
    said = f'"{attribute}" in {file}'
    is_function = inspect.isfunction(value)
    value = _extension(guarded(f"{said} cannot be called", value) if is_function else value)
    if not isinstance(value, App):
        kind = "a class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise ConfigError(f"{origin}{said} {'returns' if is_function else 'is'} {kind}, not an App. {there}")
    if not _is_bound(value):
        made = next((name for name in FACTORIES if hasattr(module, name)), "create_app")
        raise ConfigError(f"{origin}{said} is bound to no web program yet: name what makes it, such as {module.__name__}:{made}")
    return value


def _extension(value: object) -> object:
    """Return the app that is an extension of a web program; anything else as it is."""
    extensions: object = getattr(value, "extensions", None)
    return cast("dict[str, object]", extensions).get("laneway", value) if isinstance(extensions, dict) else value


# -- its store ---------------------------------------------------------------------------------------------------


def check_store(app: App, *, to_write: bool) -> None:
    """Raise a StoreError if the app's store cannot be used. Without `to_write` no store is created."""
    url = check_url(app.url)
    if not to_write and not url.path:
        raise ConfigError(f"{app.url} is a store in the memory of one process: no other can look at it")
    backend = backend_of(url.scheme)
    if not to_write and backend.is_missing(url):
        message = f"there is no store {backend.address(url)} yet: the first enqueue makes it, or a worker"
        raise StoreUnavailable(message, written=False, missing=True)
    app.inspect.counts()
    if to_write:
        app.store.note([])  # a worker would wait for a store that cannot be written to; at start-up that is a mistake
