"""Stores with tokens as one counter would give them.

A model counts claims over the whole store: 1, 2, 3. Redis has a counter for each queue, and PostgreSQL has the time in them. So
a model sees its claims by their numbers; that the real tokens are new each time, and grow within a queue, is checked here on
the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from laneway.core.job import Claim
from laneway.core.outcome import Settled
from laneway.store.contract import ClaimRequest, Exchange
from laneway.store.inspection import Filter, JobInfo, Page

__all__ = ["Numbered", "NumberedInspect"]

UNHEARD = 1  # no store gives this token


class Numbered:
    """In front of a store's class."""

    def _of_store(self, verb: str) -> Any:
        return getattr(super(), verb)

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        given = [replace(item, claim=replace(item.claim, token=self.token(item.claim.token))) for item in settled]
        answer = self._of_store("exchange")(worker, given, wants, limit)
        heard: Exchange = replace(answer, claims=[self.number(claim) for claim in answer.claims])
        return heard

    def give_back(self, worker: str, keep: Collection[int] = ()) -> list[str]:
        ids: list[str] = self._of_store("give_back")(worker, [self.token(number) for number in keep])
        return ids

    def recover(self, worker: str, cause: str, lost: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        ids: list[str] = self._of_store("recover")(worker, cause, {self.token(number): word for number, word in lost.items()})
        return ids

    @property
    def numbers(self) -> dict[int, int]:
        """Tokens → their numbers."""
        found: dict[int, int] = self.__dict__.setdefault("_numbers", {})
        return found

    def token(self, number: int) -> int:
        return next((token for token, known in self.numbers.items() if known == number), UNHEARD)

    def number(self, claim: Claim) -> Claim:
        highest: dict[str, int] = self.__dict__.setdefault("_highest_of", {})
        assert claim.token not in self.numbers
        assert claim.token > highest.get(claim.queue, 0)
        highest[claim.queue] = claim.token
        self.numbers[claim.token] = len(self.numbers) + 1
        return replace(claim, token=self.numbers[claim.token])


class NumberedInspect:
    """In front of the class of its inspection side."""

    def _of_store(self, verb: str) -> Any:
        return getattr(super(), verb)

    def __init__(self, store: Any) -> None:
        super().__init__(store)  # type: ignore[call-arg]
        self._numbers = store.numbers

    def job(self, id: str) -> JobInfo | None:  # noqa: A002
        found = self._of_store("job")(id)
        return None if found is None else self._numbered(found)

    def jobs(self, which: Filter, limit: int, after: str | None, newest: bool = False) -> Page:
        found = self._of_store("jobs")(which, limit, after, newest)
        page = Page(map(self._numbered, found))
        page.next = found.next
        return page

    def _numbered(self, job: JobInfo) -> JobInfo:
        return job if job.token is None else replace(job, token=self._numbers[job.token])
