"""Which store a URL names: ours, those of other packages, and what errors say about what was written."""

from __future__ import annotations

import re
import sqlite3
import textwrap
from pathlib import Path
from urllib.parse import SplitResult

import pytest

from laneway import App, Worker
from laneway.desk.locate import check_store
from laneway.errors import ConfigError, StoreBusy, StoreUnavailable
from laneway.store import registry
from laneway.store.contract import Store
from laneway.store.inspection import Inspect
from laneway.store.moving import side_of

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


class InFolders(registry.Backend):
    """Another package's store, which is in a folder."""

    schemes = ("folders",)
    example = '"folders://jobs"'
    options = ()

    def path(self, url: str, parts: SplitResult) -> str:
        return parts.netloc

    def check(self, url: registry.StoreURL) -> None: ...

    def open(self, url: registry.StoreURL, settings: registry.StoreSettings) -> tuple[Store, Inspect]:
        raise NotImplementedError

    def layout(self) -> int:
        return 1

    def address(self, url: registry.StoreURL) -> str:
        return f"folders://{Path(url.path).absolute()}"

    def is_missing(self, url: registry.StoreURL) -> bool:
        return not Path(url.path).exists()


def test_a_backend_says_where_its_stores_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    registry.register(InFolders())
    monkeypatch.chdir(tmp_path)
    there = f"folders://{tmp_path / 'jobs'}"
    with pytest.raises(StoreUnavailable, match=re.escape(f"there is no store {there} yet")):
        check_store(App("folders://jobs"), to_write=False)
    assert side_of(store, "folders://jobs").address == there


@pytest.mark.parametrize(("url", "address"), [
    ("sqlite:///my jobs.db?timeout=3", "sqlite:///{folder}/my%20jobs.db"),
    ("redis://ada:secret@store/1", "redis://ada:***@store/1"),
    ("postgresql://ada:secret@db/shop", "postgresql://ada:***@db/shop"),
])  # fmt: skip
def test_an_address_is_right_everywhere_and_tells_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = registry.parse_url(url)
    assert registry.backend_of(parsed.scheme).address(parsed) == address.format(folder=str(tmp_path).replace(" ", "%20"))


@pytest.mark.parametrize(("one", "other", "same"), [
    ("sqlite:///jobs.db", "sqlite:///./jobs.db?timeout=3", True),
    ("sqlite:///jobs.db", "sqlite:///other.db", False),
    ("sqlite://", "sqlite:///jobs.db", False),
    ("sqlite:///jobs.db", "postgresql:///jobs.db", False),
    ("postgresql://ada@db/shop", "postgres:///shop?host=db&port=5432&user=eve", True),
    ("postgresql://db/shop", "postgresql://db:5433/shop", False),
    ("postgresql://db/shop?schema=jobs", "postgresql://db/store", False),
    ("postgresql:///shop", "sqlite:///shop", False),
    ("redis://db/1", "postgresql://db/1", False),
    ("redis://db/1", "redis://db/1", True),
])  # fmt: skip
def test_a_backend_says_whether_a_store_is_in_a_database(one: str, other: str, same: bool) -> None:
    url = registry.parse_url(one)
    assert registry.backend_of(url.scheme).is_same_database(url, registry.parse_url(other)) is same


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
