"""What the words of a command mean: durations, moments, states, and values of a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from laneway.errors import did_you_mean
from laneway.settings import SETTINGS, Settings, read_duration, read_size

__all__ = ["DURATION", "MOMENT", "SIZE", "OneOf", "Reader", "chosen_settings", "setting_option", "when"]

F = TypeVar("F", bound=Callable[..., Any])

# Click's types are generic only since 8.2 and 8.4; type checkers see the latest.
if TYPE_CHECKING:
    ParamType = click.ParamType[object]
    Choice = click.Choice[str]
else:
    ParamType = click.ParamType
    Choice = click.Choice


class Reader(ParamType):
    """A value that a function reads; what the function raises is said to the user."""

    def __init__(self, name: str, read: Callable[[object], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Read it."""
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def _read_moment(value: object) -> datetime:
    try:
        return datetime.fromisoformat(str(value)).astimezone()
    except (ValueError, OverflowError):
        raise ValueError("use a date and a time, such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00") from None


#: 30, 30s, 5m, 2h, 1d.
DURATION = Reader("duration", read_duration)
#: 2026-12-24T18:00+01:00. Without an offset it is in this machine's time zone.
MOMENT = Reader("moment", _read_moment)
#: 400M, 4G, or bytes.
SIZE = Reader("size", read_size)


class OneOf(Choice):
    """A choice that knows what a mistyped word may have meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        if value not in self.choices:
            known = ", ".join(self.choices)
            self.fail(f'there is no "{value}".{did_you_mean(str(value), self.choices)} Choose from {known}', param, ctx)
        return str(value)


def when(within: float | None, at: datetime | None, *, needed: bool = False) -> float | datetime | None:
    """Return the time that --in and --at mean together."""
    if within is not None and at is not None:
        raise click.UsageError("--in and --at together: leave one out")
    if needed and within is None and at is None:
        raise click.UsageError("say when: --in 5m, or --at 2026-12-24T18:00")
    return within if at is None else at


def setting_option(name: str, *flags: str, **more: Any) -> Callable[[F], F]:
    """Add an option that sets a setting; its help says its default and its name in the environment.

    The value stays as it is written: `Settings.find` reads it, and says in the same words what is wrong with it.
    """
    setting = SETTINGS[name]
    shown = f"{setting.help} [{setting.environment}; {setting.shown_default}]"
    return click.option(*(flags or (f"--{name.replace('_', '-')}",)), name, metavar=setting.metavar, help=shown, **more)


def chosen_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a command: what its flags say, else what is written elsewhere."""
    around = Settings()
    return {name: around.find(name, flag=(f"--{name.replace('_', '-')}", _joined(value))).value for name, value in flags.items()}


def _joined(value: Any) -> Any:
    """An option that may be repeated gives a tuple; each of its values may be a list of its own."""
    return ",".join(cast("tuple[str, ...]", value)) or None if isinstance(value, tuple) else value
