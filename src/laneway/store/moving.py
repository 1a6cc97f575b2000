"""Moving: the steps of a copy, and their order.

1. The target is closed, and must have no jobs. So nothing can come into it before the copy has ended.
2. The source is closed: pushes, claims and actions raise `StoreMoved`, outcomes are still taken.
3. The copier waits until nothing runs in the source. Jobs of workers that died go back.
4. Portions go over, each with its cursor in one step of the target.
5. Both are counted, and compared. The target is opened, then the source is marked as finished. It stays closed.

A copier that was killed can be started again: both stores know the copy's id, so it goes on where it was. Until the target has
been opened, `reopen` undoes everything: the source is as it was.

Enters: two open stores.  Leaves: what was copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from laneway.config import safe_url
from laneway.errors import ConfigError, StoreError
from laneway.ids import new_id
from laneway.store.contract import Store
from laneway.store.liveness import recover_dead_workers
from laneway.store.registry import backend_of, check_url
from laneway.store.transfer import Move, StoredCounts, Transfer, transfer_of

__all__ = ["Copied", "Side", "copy_store", "reopen_store", "side_of"]

#: How often the copier looks whether jobs still run, seconds.
LOOK_EVERY = 0.2


class Side(Struct, frozen=True):
    """A store that takes part in a copy."""

    store: Store
    transfer: Transfer
    address: str  #: without its password


class Copied(Struct, frozen=True):
    """What a copy has done."""

    copied: int  #: how many jobs, payloads and records went over this time
    source: StoredCounts
    target: StoredCounts


def side_of(store: Store, url: str) -> Side:
    """Return a store that can take part in a copy, or raise ConfigError."""
    parsed = check_url(url)
    if not parsed.path:
        raise ConfigError(f"{safe_url(url)!r} is in the memory of one process: only a store that others can reach can be copied")
    return Side(store, transfer_of(store), backend_of(parsed.scheme).address(parsed))


def _tell_nobody(word: str, number: int) -> None:
    """Ignore the progress."""


def copy_store(
    source: Side, target: Side, *, timeout: float | None = None, tell: Callable[[str, int], None] = _tell_nobody
) -> Copied:
    """Move all that is in the source into the target; see this module. `tell` is called with a word and a number."""
    copy = _copy_id(source, target)
    filled = target.transfer.begin(Move(copy, source.address, fills=True), ())
    if filled.copy != copy:
        raise _taken(target, filled)
    _check_target(source, target, copy)
    closed = source.transfer.close(Move(copy, target.address))
    if closed.copy != copy:
        raise _taken(source, closed)
    copied = 0
    if not filled.finished:
        _wait(source, timeout, tell)
        target.transfer.begin(filled, source.transfer.queues())
        copied = _copy(source.transfer, target.transfer, tell)
    there, here = target.transfer.stored_counts(), source.transfer.stored_counts()
    if not filled.finished:
        _compare(source, target, here, there)
    target.transfer.finish()
    source.transfer.finish()
    return Copied(copied, here, there)


def reopen_store(side: Side) -> Move | None:
    """Let a store go on that a copy had closed; return its part in that copy, None if it was not closed."""
    move = side.transfer.move()
    if move is None or not move.closed:
        return None
    side.transfer.reopen()
    return move


def _copy_id(source: Side, target: Side) -> str:
    """Return the id of the copy to continue, or a new one; raise an error if one of the stores is part of another copy."""
    mine, theirs = source.transfer.move(), target.transfer.move()
    if mine is not None and mine.closed:
        if mine.fills:
            raise mine.refusal(source.store)
        same = theirs is not None and theirs.copy == mine.copy and theirs.fills
        if not same and (mine.address != target.address or mine.finished):
            raise _taken(source, mine)
        if theirs is not None and theirs.closed and not same:
            raise _taken(target, theirs)
        return mine.copy
    if theirs is not None and theirs.closed:
        # The copier was killed before it could close the source; nothing was copied.
        if theirs.fills and theirs.address == source.address and not target.transfer.copied():
            return theirs.copy
        raise _taken(target, theirs)
    return new_id()


def _taken(side: Side, move: Move) -> StoreError:
    if move.fills:
        what = f"{side.store} has a part of another copy, of {move.address}, that was not finished"
        return StoreError(f"{what}: finish that one, or use an empty store")
    done = "was moved" if move.finished else "is being moved"
    return StoreError(f"{side.store} {done} to {move.address}: use that address, or undo it with laneway store reopen")


def _check_target(source: Side, target: Side, copy: str) -> None:
    found = source.transfer.move()
    if found is not None and found.copy == copy and found.fills:
        target.transfer.reopen()
        raise ConfigError(f"{source.store} and {target.store} are one and the same store: name another one to copy to")
    if target.transfer.copied():
        return
    held = target.transfer.stored_counts()
    if (held.jobs or held.payloads) and not _is_finished(target):
        target.transfer.reopen()
        what = f"{target.store} is not empty: it has {held.jobs} jobs and {held.payloads} payloads"
        raise StoreError(f"{what}. Nothing was changed: use an empty store")


def _is_finished(side: Side) -> bool:
    move = side.transfer.move()
    return move is not None and move.finished


def _wait(source: Side, timeout: float | None, tell: Callable[[str, int], None]) -> None:
    """Wait until nothing runs in the source."""
    until = None if timeout is None else time.monotonic() + timeout
    while running := source.transfer.stored_counts().running:
        tell("running", running)
        recover_dead_workers(source.store)
        if until is not None and time.monotonic() > until:
            what = f"{running} jobs of {source.store} still run. It stays closed, and nothing was copied"
            raise StoreError(f"{what}: start the copy again to go on, or undo it with laneway store reopen", running=running)
        time.sleep(LOOK_EVERY)


def _copy(source: Transfer, target: Transfer, tell: Callable[[str, int], None]) -> int:
    """Copy what is behind the target's cursors; return how much that was."""
    cursors, copied = target.copied(), 0
    for portion in source.export(cursors):
        target.take(replace(portion, before=cursors.get(portion.section, "")))
        cursors[portion.section] = portion.cursor
        copied += portion.size
        tell("copied", copied)
    return copied


def _compare(source: Side, target: Side, here: StoredCounts, there: StoredCounts) -> None:
    """Raise an error if the target has fewer jobs. Records may have expired meanwhile, and schedules of code may be new."""
    mine, theirs = here.as_dict(), there.as_dict()
    counted = [name for name in ("waiting", "blocked", "dead", "payloads") if theirs[name] != mine[name]]
    if counted:
        numbers = ", ".join(f"{name}: {mine[name]} there, {theirs[name]} here" for name in counted)
        what = f"{target.store} does not have what {source.store} has ({numbers}). Both stay closed"
        raise StoreError(f"{what}: undo the copy with laneway store reopen on the source, and copy into an empty store")
