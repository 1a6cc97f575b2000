"""`laneway migrate`: bring a store's tables to this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from laneway.cli.command import CliCommand, app_argument, app_options, examples, json_option, opened, said
from laneway.errors import SchemaError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from laneway.desk.app import App
    from laneway.store.registry import Backend

__all__ = ["migrate"]


@click.command(
    "migrate", cls=CliCommand,
    epilog=examples("laneway migrate --dry-run", "laneway migrate shop.jobs:app", "laneway migrate --sql --store postgresql://localhost/shop"),
)  # fmt: skip
@app_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--sql", is_flag=True, help="Only print the statements, for a PostgreSQL database; run them with psql.")
@app_options
@json_option
def migrate(
    app_name: str | None, dry_run: bool, sql: bool, app_option: str | None, store: str | None, as_json: bool
) -> None:  # fmt: skip
    """Bring the store's tables to this version.

    Stop all workers first, and make a backup. It is done as a whole or not at all; a store that has this version stays as it is.
    """
    from laneway.store import backend_of, check_url  # noqa: PLC0415 - the help needs none of it

    with opened(app_option, store, app_name, looks=False) as app:
        backend = backend_of(check_url(app.url).scheme)
        if sql:
            _print_sql(app, backend, as_json)
            return
        found, expected = _versions(app, backend.layout())
        if not dry_run:
            app.store.migrate()
    steps = [] if found is None else backend.steps(found)
    if found is None:
        text = f"there is no store yet: one of version {expected} {'would be' if dry_run else 'was'} made"
    elif found == expected:
        text = f"the tables have version {found} already: nothing to do"
    else:
        text = f"the tables {'would go' if dry_run else 'went'} from version {found} to {expected}"
        text = "\n  ".join([f"{text}:" if steps else text, *steps])
    said(text, {"from": found, "to": expected, "steps": steps, "dry_run": dry_run}, as_json)


def _print_sql(app: App, backend: Backend, as_json: bool) -> None:
    """Print what would be done as SQL. The store need not be there, and this user need not have any rights in it."""
    from laneway.store import check_url  # noqa: PLC0415 - the help needs none of it

    expected = backend.layout()
    try:
        found, _ = _versions(app, expected)
    except SchemaError:
        raise
    except StoreError as error:
        found = None
        click.echo(f"the statements are for a database without Laneway's tables: {error}", err=True)
    text = backend.script(check_url(app.url), found)
    if found == expected:
        text = f"-- the tables have version {found} already: nothing to do"
    said(text, {"from": found, "to": expected, "sql": text}, as_json)


def _versions(app: App, expected: int) -> tuple[int | None, int]:
    """Return the version a store has and the one it is to have; None for a store that is not there."""
    from laneway.desk.locate import check_store  # noqa: PLC0415 - the help needs none of it

    try:
        check_store(app, to_write=False)
    except SchemaError as error:
        found: int | None = getattr(error, "found", None)
        if found is None or found > expected:
            raise
        return found, expected
    except StoreUnavailable as error:
        if not error.missing:
            raise
        return None, expected
    return expected, expected
