"""What is examined of an SQLite file: its disk, its log, its pages, and the library that reads it.

Enters: the file's path and the database's own figures.  Leaves: findings.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

from laneway.store.findings import Finding, megabytes
from laneway.store.sqlite.schema import VERSION

__all__ = ["check_database", "check_disk", "check_file", "check_integrity", "check_library", "check_space", "file_system"]

#: File systems of other machines: their locks and mapped memory do not reach from one machine to the next.
NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ncpfs", "sshfs", "s3fs",
    "gcsfuse", "rclone", "davfs",
}  # fmt: skip
#: Folders that a virtual machine or a container shares with its host.
SHARED = {"9p", "virtiofs", "vboxsf", "vmhgfs", "vmhgfs-fuse", "prl_fs", "drvfs", "grpcfuse", "osxfs"}
IN_MEMORY = {"tmpfs", "ramfs"}

#: The first release without a race of checkpoints that damages files in rare cases ("WAL-reset bug").
SAFE_CHECKPOINTS = (3, 51, 3)

#: A log that is larger could not start anew for long: SQLite begins again after 8 MB, and the largest transactions are some MB.
LARGE_LOG = 64_000_000
#: Free pages that are less than this are not worth a vacuum.
MUCH_FREE = 64_000_000
#: With less space on the disk writes fail soon, bytes; with less than the second a busy day may fill it.
NO_SPACE, LITTLE_SPACE = 100_000_000, 1_000_000_000

_ESCAPED = re.compile(r"\\([0-7]{3})")


def check_library(version: tuple[int, int, int] = sqlite3.sqlite_version_info[:3]) -> Finding:
    """Judge the version of SQLite. One that is too old to be used is refused before."""
    name = "SQLite " + ".".join(map(str, version))
    if version >= SAFE_CHECKPOINTS:
        return Finding("version", "ok", name)
    return Finding(
        "version", "note",
        f"{name} is older than 3.51.3, and may damage a file in the rare case that two programs write at the same moment. "
        "Programs of Laneway take turns; others that write to the same file do not",
        "Let no other program write to this file while workers run, or use a Python with a newer SQLite",
    )  # fmt: skip


def check_file(path: Path, connection: sqlite3.Connection) -> list[Finding]:
    """Judge a file: where it lies, and how it is used."""
    size = path.stat().st_size
    findings = [check_space(shutil.disk_usage(path.parent).free, size), _journal(connection, path, size)]
    try:
        kind = file_system(str(path), Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:  # not every system has it
        return findings
    return [check_disk(kind), *findings]


def check_disk(kind: str) -> Finding:
    """Judge the file system on which a file lies."""
    name = kind.removeprefix("fuse.")
    if name in NETWORK:
        return Finding(
            "disk", "problem",
            f"the file is on a network disk ({kind}), which has no shared memory and no dependable locks: it can be damaged",
            "Stop all programs and move it to a disk of this machine; for several machines use Redis",
        )  # fmt: skip
    if name in SHARED or kind.startswith("fuse"):
        return Finding(
            "disk", "warning",
            f"the file is in a folder that other systems may share ({kind}): if programs on both sides use it, it is damaged",
            "Move it to a disk of this machine, or let programs on one side alone use it",
        )  # fmt: skip
    if name in IN_MEMORY:
        return Finding(
            "disk", "warning", f"the file is in memory ({kind}): when the machine stops, all jobs are lost", "Move it to a disk"
        )
    if name == "overlay":
        return Finding(
            "disk", "note", "the file is in the layer of a container (overlay): when the container is removed, all jobs are lost",
            "Put its folder on a volume",
        )  # fmt: skip
    return Finding("disk", "ok", f"{kind}, a disk of this machine")


def file_system(path: str, mounts: str) -> str:
    """Return the type of the file system that holds an absolute path, by the text of /proc/self/mountinfo."""
    found, best = "unknown", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if len(fields := left.split(" ")) < 5 or not right:
            continue
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of several mounts on one folder the last one counts
            found, best = right.split(" ")[0], len(point)
    return found


def check_space(free: int, size: int) -> Finding:
    """Judge the free space on the disk of a file of a size."""
    text = f"{megabytes(free)} free on its disk, {megabytes(size)} in the file"
    if free < NO_SPACE:
        return Finding("space", "problem", f"{text}: writes fail when it is full", "Make room on the disk")
    if free < LITTLE_SPACE:
        return Finding("space", "warning", f"{text}: a backlog may fill it", "Make room on the disk")
    if free < size:
        return Finding("space", "note", f"{text}: a backup, a migration or a vacuum needs as much again", "Make room before")
    return Finding("space", "ok", text)


def _journal(connection: sqlite3.Connection, path: Path, size: int) -> Finding:
    [(mode,)] = connection.execute("pragma journal_mode").fetchall()
    if mode != "wal":
        return Finding(
            "journal", "warning", f"its journal mode is {mode}, not wal: readers and writers block each other",
            "The next worker sets wal when it opens the file. If it stays so, the disk has no shared memory: use another",
        )  # fmt: skip
    log = path.with_name(f"{path.name}-wal")
    length = log.stat().st_size if log.exists() else 0
    if length > LARGE_LOG and length > size // 4:
        return Finding(
            "journal", "warning",
            f"its log has {megabytes(length)}, and the file {megabytes(size)}: a program that reads for long keeps SQLite from "
            "emptying the log, or did so once. It takes space, and makes reading slow",
            "End programs that have a transaction open on the file. The log goes when the last program closes the file",
        )  # fmt: skip
    return Finding("journal", "ok", f"wal, a log of {megabytes(length)}")


def check_database(connection: sqlite3.Connection, *, in_file: bool) -> list[Finding]:
    """Judge what SQLite reports about the database."""
    findings = [Finding("layout", "ok", f"version {VERSION} of the tables")]
    if not in_file:
        text = "the store is in the memory of this process: when it ends, all jobs are lost"
        return [*findings, Finding("disk", "note", text, "Use a file, such as sqlite:///jobs.db")]
    full, pages, free, size = (
        connection.execute(f"pragma {name}").fetchone()[0]
        for name in ("synchronous", "page_count", "freelist_count", "page_size")
    )
    if full < 2:
        findings.append(Finding(
            "synchronous", "note", "synchronous=normal here: if the whole machine fails, the last seconds can be lost",
            "Where that is too much, write ?synchronous=full in the address; each enqueue then waits for the disk",
        ))  # fmt: skip
    else:
        findings.append(Finding("synchronous", "ok", "full: each commit waits for the disk"))
    text = f"{megabytes(free * size)} of {megabytes(pages * size)} are free pages"
    if free * size > MUCH_FREE and free > pages // 2:
        advice = "To give them back to the disk, stop all programs and run vacuum on the file"
        findings.append(Finding("pages", "note", f"{text}: SQLite uses them again, and the file does not shrink", advice))
    else:
        findings.append(Finding("pages", "ok", text))
    return findings


def check_integrity(connection: sqlite3.Connection) -> Finding:
    """Read the whole file, and judge whether it is damaged."""
    try:
        said = [str(row[0]) for row in connection.execute("pragma quick_check(3)")]
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    if said == ["ok"]:
        return Finding("integrity", "ok", "all pages are sound")
    text = " ".join("; ".join(said).split())
    return Finding("integrity", "problem", f"the file is damaged: {text}", "Stop all programs and restore a backup")
