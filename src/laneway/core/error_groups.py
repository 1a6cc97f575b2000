"""Faults: failures grouped by cause.

Ten thousand errors of a bad deployment are one fault. Errors belong together if they are of the same kind, have the same message
except for names and numbers, and were raised at the same place in the user's own code.

Enters: `ErrorInfo`.  Leaves: the key of its fault.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from msgspec import Struct

from laneway.core.outcome import ErrorInfo

__all__ = ["MOST_FAULTS", "Fault", "fault_of", "normal", "place_of"]

#: The most faults that are kept; the one not seen for longest goes first.
MOST_FAULTS = 500
#: The most characters of a sample's traceback that are kept, from its end.
SAMPLE_TRACEBACK = 8_000
#: The number of characters of a message that tell faults apart.
MESSAGE = 300

_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+)(?:, in ([^\n]+))?', re.MULTILINE)
_HERE = re.escape(str(Path(__file__).parents[1])) + r"[/\\]"
_FOREIGN = re.compile(rf"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]|^<|^{_HERE}")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_NUMBERED = re.compile(r"[\w-]*\d[\w-]*")  # numbers, ids, addresses: words with a digit
_SPACE = re.compile(r"\s+")


class Fault(Struct, frozen=True):
    """A kind of failure, how often it was seen, and the last one as a sample."""

    id: str
    kind: str  #: the exception's class, or what happened
    message: str  #: its message, without names and numbers
    place: str  #: file, line and function in the user's code; empty if not known
    count: int
    error: ErrorInfo  #: the sample, with its traceback
    job: str = ""  #: of the sample
    task: str = ""
    queue: str = ""


def fault_of(error: ErrorInfo, job: str, task: str, queue: str) -> Fault:
    """Return a failure as a fault that was seen once."""
    message, place = normal(error.message), place_of(error.traceback)
    id_ = hashlib.blake2b(f"{error.kind}\0{message}\0{place}".encode(errors="replace"), digest_size=8).hexdigest()
    sample = ErrorInfo(error.kind, error.message, error.traceback[-SAMPLE_TRACEBACK:])
    return Fault(id_, error.kind, message, place, 1, sample, job, task, queue)


def normal(message: str) -> str:
    """Return a message without the parts that differ from one time to the next.

    >>> normal("no user 'bob' in 3 tries, see 0x7f3a")
    "no user '…' in # tries, see #"
    """
    text = _QUOTED.sub("'…'", message[:MESSAGE])
    return _SPACE.sub(" ", _NUMBERED.sub("#", text)).strip()


def place_of(traceback: str) -> str:
    """Return the last place in a traceback that is in the user's own code; if none is, the last; if there is none, ''.

    >>> place_of('  File "/app/shop.py", line 7, in charge\\n')
    '/app/shop.py:7 in charge'
    """
    frames: list[tuple[str, str, str]] = _FRAME.findall(traceback)
    own = [frame for frame in frames if not _FOREIGN.search(frame[0])]
    if not frames:
        return ""
    file, line, function = (own or frames)[-1]
    return f"{file}:{line} in {function}" if function else f"{file}:{line}"
