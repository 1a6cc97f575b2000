"""Which store a URL names: ours, those of other packages, and what errors say about what was written."""

from __future__ import annotations

import sqlite3
import textwrap
from pathlib import Path

import pytest

from laneway import App, Worker
from laneway.desk.locate import check_store
from laneway.errors import ConfigError, StoreBusy, StoreUnavailable
from laneway.store import registry

PACKAGE = """
    from laneway.store.backends import SQLite

    class Elsewhere(SQLite):
        schemes = ("elsewhere",)
        example = '"elsewhere://"'
        options = ()

        def path(self, url, parts):
            return ""
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package that is installed, and brings a store."""
    (tmp_path / "elsewhere_store.py").write_text(textwrap.dedent(PACKAGE))
    told = tmp_path / "elsewhere_store-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere-store\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[laneway.stores]\nelsewhere = elsewhere_store:Elsewhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))


@pytest.mark.usefixtures("package")
def test_another_package_can_bring_a_store() -> None:
    app = App("elsewhere://here")
    done: list[int] = []

    @app.task
    def add(number: int) -> None:
        done.append(number)

    add.enqueue(7)
    Worker(app).run(burst=True)

    assert done == [7]


@pytest.mark.usefixtures("package")
def test_its_options_are_checked_as_ours_are() -> None:
    with pytest.raises(ConfigError, match='the elsewhere store has no option "timeout"'):
        App("elsewhere://here?timeout=3")


def test_a_scheme_that_nobody_knows_names_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r'no store "mysql" in this version: use "sqlite:///jobs.db" .* or "postgresql://'):
        App("mysql://localhost")


def test_a_store_that_is_not_there_yet_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no store") as caught:
        check_store(App(f"sqlite:///{tmp_path / 'jobs.db'}"), to_write=False)
    assert (caught.value.missing, caught.value.written) == (True, False)


def test_who_was_held_up_by_another_program_has_written_nothing(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", enqueue_timeout=0.05)
    task = app.task(name="nothing")(lambda: None)
    task.enqueue()
    stranger = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    stranger.execute("begin immediate")
    with pytest.raises(StoreBusy) as caught:
        task.enqueue()
    assert (caught.value.written, caught.value.missing) == (False, False)
    stranger.close()
