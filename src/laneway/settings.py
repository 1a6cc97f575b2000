"""Settings: each with the places where it may be written, and its meaning.

A setting is what a flag of the command says, else what the code says, else the environment (LANEWAY_SLOTS), else its key under
[tool.laneway] in the pyproject.toml of the working folder, else its default. A value that cannot be used is a ConfigError of one
line: the place where it is written, the value, and what to write instead.

Enters: texts and TOML values.  Leaves: `Found` values that know where they come from.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from laneway.errors import ConfigError, did_you_mean
from laneway.logs import FORMS, LEVELS

__all__ = [
    "BALANCES",
    "LOOPS",
    "PREFIX",
    "SETTINGS",
    "UNSET",
    "Found",
    "Secret",
    "Setting",
    "Settings",
    "check_numbers",
    "read_duration",
    "read_size",
]

PREFIX = "LANEWAY_"
#: The policies with a name: see `worker.balance`.
BALANCES = ("even", "adaptive", "strict")
#: The kinds of event loops: see `worker.event_loop`.
LOOPS = ("asyncio", "uvloop")
FILE = "pyproject.toml"


class _Unsaid:
    def __repr__(self) -> str:
        return "as set"


#: The default of parameters that the code does not give: None may be a value.
UNSET: Final[Any] = _Unsaid()

_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


# -- reading one value -------------------------------------------------------------------------------------------


def read_duration(value: object) -> float:
    """Return seconds, or raise ValueError that says how durations are written.

    >>> [read_duration(text) for text in ("30", "30s", "1.5m", "2h", "1d", 7)]
    [30.0, 30.0, 90.0, 7200.0, 86400.0, 7.0]
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|[smhdw]?)", _text(value), re.IGNORECASE)
    if not found:
        raise ValueError("use seconds, or a number with its unit: 30, 30s, 5m, 2h, 1d")
    return float(found[1]) * _SECONDS[found[2].lower()]


def read_size(value: object) -> int:
    """Return bytes, or raise ValueError that says how sizes are written.

    >>> [read_size(text) for text in ("400M", "2 GiB", 1024)]
    [419430400, 2147483648, 1024]
    """
    found = re.fullmatch(r"(\d+)\s*([KMG]?)(i?B)?", _text(value), re.IGNORECASE)
    if not found or not int(found[1]):
        raise ValueError("use an amount of memory: 400M or 2G")
    return int(found[1]) * _BYTES[found[2].upper()]


def _text(value: object) -> str:
    """Return a flag's, variable's or TOML value as text; a list or table becomes a text that fits no setting."""
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else "?"


def _whole(low: int, high: int | None = None) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = _text(value)
        if not re.fullmatch(r"\d{1,18}", text) or int(text) < low or (high is not None and int(text) > high):
            raise ValueError(f"use a whole number from {low}" + (f" to {high}" if high is not None else ""))
        return int(text)

    return read


def _more_than_nothing(value: object) -> float:
    try:
        number = float(_text(value))
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError("use a number greater than 0")
    return number


def _seconds(low: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        seconds = read_duration(value)
        if seconds < low:
            raise ValueError(f"use at least {low:g} seconds")
        return seconds

    return read


def _words(example: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f'use a string, such as "{example}"')
        return value

    return read


class Secret:
    """A value that is never shown by mistake.

    >>> Secret("hunter22"), Secret("hunter22").text
    (<hidden>, 'hunter22')
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<hidden>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or len(value.strip()) < 8:
        raise ValueError("use a string of at least 8 characters")
    return Secret(value.strip())


def _keywords(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in cast("list[object]", value)):
        raise ValueError("use words: password,token,card")
    words = tuple(word.strip() for word in cast("list[str]", value) if word.strip())
    if not all(any(sign.isalnum() for sign in word) for word in words):
        raise ValueError("use words of letters and digits: password,token,card")
    return words


def _names(value: object) -> tuple[str, ...]:
    from laneway.core.job import check_queue  # noqa: PLC0415 - the help needs none of it

    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in cast("list[object]", value)):
        raise ValueError("use names of queues: mail,default, or with weights: critical:6,default:3,low")
    return tuple(check_queue(name.strip()) for name in cast("list[str]", value))


def _one_of(names: Collection[str]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"use one of {', '.join(names)}")
        return str(value)

    return read


#: Words to look for in names of arguments.
REDACTED = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "authorization", "credential", "cookie", "apikey", "privatekey",
    "accesskey", "signature", "card", "cvv", "cvc", "iban", "ssn", "pin",
)  # fmt: skip


# -- the settings ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str  #: also its key under [tool.laneway]
    read: Callable[[object], Any]  #: converts the written value; its ValueError says what to write
    default: Any
    metavar: str
    help: str  #: one line
    without: str = ""  #: the default in words, where the value says too little

    @property
    def environment(self) -> str:
        """The name of its environment variable."""
        return f"{PREFIX}{self.name.upper()}"

    @property
    def shown_default(self) -> str:
        """The default as a user writes it."""
        return self.without or f"{self.default:g}"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("url", _words("sqlite:///jobs.db"), None, "URL", "The store.", "laneway.db in the working folder"),
        Setting("outbox", _words("postgresql://localhost/shop"), None, "URL", "The database with the outbox.", "none"),
        Setting("app", _words("shop.jobs:app"), None, "APP", "The app.", "app.py or main.py here"),
        Setting("queues", _names, (), "A,B", "Serve only these queues; with weights: A:6,B:3,C.", "all"),
        Setting("balance", _one_of(BALANCES), None, "NAME", "How slots are dealt to queues: even, adaptive or strict.", "even"),
        Setting("slots", _whole(1), 25, "N", "Jobs at a time, in each process."),
        Setting("processes", _whole(1, 1000), 1, "N", "Processes."),
        Setting("shutdown_timeout", _seconds(0), 25.0, "SECONDS", "How long running jobs may take to end after a stop."),
        Setting("beat", _seconds(0.05), 3.0, "SECONDS", "The time between two heartbeats of its processes."),
        Setting(
            "timeout_grace", _seconds(0.1), 2.0, "SECONDS",
            "How long a run may go on after its timeout before its process is replaced.",
        ),
        Setting("max_jobs", _whole(1), None, "N", "Replace a process after this many jobs.", "never"),
        Setting("max_memory", read_size, None, "SIZE", "Replace a process that has more memory, such as 400M.", "never"),
        Setting("loop", _one_of(LOOPS), "asyncio", "NAME", "The event loop of async tasks: asyncio or uvloop.", "asyncio"),
        Setting("health_port", _whole(1, 65_535), None, "PORT", "Answer /livez and /readyz on this port.", "none"),
        Setting("health_host", _words("::1"), "127.0.0.1", "HOST", "The address of health_port.", "127.0.0.1"),
        Setting("log_level", _one_of(LEVELS), None, "LEVEL", "What is logged: debug, info, warning or error.", "info"),
        Setting("log_format", _one_of(FORMS), None, "FORMAT", "How it is logged: text or json.", "text"),
        Setting("enqueue_timeout", _seconds(0.01), 2.0, "SECONDS", "How long an enqueue may wait for the store."),
        Setting(
            "connections", _whole(1, 10_000), None, "N", "Connections to a store on a server, in each process.",
            "slots + 3, or 5 in a program that only enqueues",
        ),
        Setting("dead_days", _more_than_nothing, 30.0, "DAYS", "How long dead jobs are kept."),
        Setting("dead_max", _whole(1), 10_000, "N", "How many dead jobs are kept.", "10000"),
        Setting(
            "dead_after", _seconds(0.001), 15.0, "SECONDS", "A worker on another host is dead without a heartbeat for this long."
        ),
        Setting("dashboard_user", _words("ada"), None, "NAME", "Who may use the dashboard, with dashboard_password.", "nobody"),
        Setting("dashboard_password", _secret, None, "TEXT", "The password of dashboard_user.", "none: this machine alone"),
        Setting("dashboard_token", _secret, None, "TEXT", "What programs show to the dashboard (Bearer).", "none"),
        Setting(
            "dashboard_redact", _keywords, REDACTED, "WORDS", "Arguments whose names have these words in them are not shown.",
            "password, token, secret and the like",
        ),
        Setting("health_lag", _seconds(0.001), 300.0, "SECONDS", "A due job that waits longer makes /healthz fail."),
        Setting("health_stall", _seconds(0.001), 60.0, "SECONDS", "/healthz fails if due work is not claimed for this long."),
    )
}  # fmt: skip


# -- finding them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A setting's value and where it comes from."""

    value: Any = field(repr=False)  #: it may be a secret, or a URL with one
    source: str  #: the flag, "code", the environment's name, the file and key, or "default"


class Settings:
    """The settings outside the code: in the environment, and in the working folder's pyproject.toml."""

    def __init__(self, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._file = (Path() if folder is None else folder) / FILE

    def find(self, name: str, *, flag: tuple[str, object] | None = None, code: object = UNSET) -> Found:
        """Return a setting. `flag` is its spelling on the command line, and its value; `code` the value in the program."""
        setting = SETTINGS[name]
        if flag is not None and flag[1] is not None:
            return Found(_read(setting, flag[1], f"{flag[0]} {_written(flag[1])}"), flag[0])
        if code is not UNSET:
            return Found(code, "code")
        if text := self._environ.get(setting.environment):
            return Found(_read(setting, text, f"{setting.environment}={_shown(setting, text)}"), setting.environment)
        if name in self.table:
            value = self.table[name]
            place = f"[tool.laneway] {name} in {self._file}"
            return Found(_read(setting, value, f"{place} is {_shown(setting, repr(value))}"), place)
        return Found(setting.default, "default")

    @functools.cached_property
    def table(self) -> Mapping[str, object]:
        """The settings under [tool.laneway] in pyproject.toml, by name."""
        try:
            text = self._file.read_text(encoding="utf-8") if self._file.is_file() else ""
            written: Mapping[str, object] = _parse(text) if "laneway" in text else {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read: {error}") from None
        named = {key.replace("-", "_"): value for key, value in written.items()}
        for key in named:
            if key not in SETTINGS:
                near = did_you_mean(key, SETTINGS)
                raise ConfigError(
                    f'[tool.laneway] in {self._file}: there is not a setting "{key}".{near} There are {", ".join(SETTINGS)}'
                )
        return named

    def unknown(self) -> list[str]:
        """Return the environment variables that look like a setting and are none, each with a suggestion."""
        known = [setting.environment for setting in SETTINGS.values()]
        unknown = [name for name in sorted(self._environ) if name.startswith(PREFIX) and name not in known]
        return [f"{name} is not a setting.{near}" for name in unknown if (near := did_you_mean(name, known))]


@functools.lru_cache(maxsize=4)  # a program may make many apps
def _parse(text: str) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415 - only where there is a file to read

    table: object = tomllib.loads(text)
    for key in ("tool", "laneway"):
        table = cast("dict[str, object]", table).get(key, {})
        if not isinstance(table, dict):
            raise ValueError("[tool.laneway] is not a table")
    return cast("dict[str, object]", table)


def _read(setting: Setting, value: object, where: str) -> Any:
    try:
        return setting.read(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _shown(setting: Setting, text: str) -> str:
    if setting.read is _secret or (setting.metavar == "URL" and any(map(str.isalnum, text))):  # a URL may have a password in it
        return "…"
    return text


def check_numbers(said: Mapping[str, object]) -> None:
    """Raise ConfigError for settings in the code that are not numbers greater than 0."""
    for name, value in said.items():
        if value is not UNSET and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ConfigError(f"{name}={value!r}: use a number greater than 0")


def _written(value: object) -> str:
    return ",".join(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else str(value)
