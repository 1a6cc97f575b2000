"""What the stages and run.py share: programs that can be killed and started again, and the audit of the provider's ledger."""

# ruff: noqa: S603 - it starts programs of its own

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The user that runs a PostgreSQL server if we are root: PostgreSQL refuses to run as root.
POSTGRES_USER = "postgres"


# -- programs --------------------------------------------------------------------------------------------------------


class Program:
    """A program in a session of its own, which can be killed and started again; what it says goes to a file."""

    ends_by = signal.SIGTERM

    def __init__(self, name: str, folder: Path, command: list[str], **options: Any) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._options = options

    def start(self) -> None:
        """Start it, if it does not run."""
        if not self.lives:
            with self.log.open("ab") as said:
                self.process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, **self._options
                )

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> bool:
        """Kill -9 the program, not its children. Return False if it did not run."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        self.process.wait(30)
        return True

    def stop(self) -> None:
        """End it if it runs, and whatever is left of its session."""
        if self.process is None or not self.lives:
            return
        self.process.send_signal(self.ends_by)
        deadline = time.monotonic() + 30
        # Not reaped yet: so its number is nobody else's when its group is killed.
        while not os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def python(*arguments: str | Path) -> list[str]:
    """Return a command that runs one of our programs."""
    return [sys.executable, *map(str, arguments)]


def provider(folder: Path, *options: str) -> Program:
    """Return the payment provider, and say to all programs that start later where it is."""
    port = free_port()
    os.environ["BILLING_PROVIDER"] = f"127.0.0.1:{port}"
    return Program("provider", folder, python(HERE / "provider.py", str(port), folder / "ledger.db", *options))


class Fleet(Program):
    """What one `laneway worker` command starts: a supervisor, a zygote and workers."""

    def __init__(self, folder: Path, stage: str | Path, *options: str) -> None:
        super().__init__("fleet", folder, python("-m", "laneway", "worker", stage, *options))

    def workers(self) -> list[int]:
        """Return the pids of its workers."""
        found = descendants(self.process.pid) if self.process is not None and self.lives else []
        return [pid for pid in found if _title(pid).startswith("laneway: worker")]

    def kill_a_worker(self) -> bool:
        """Kill -9 one worker; its supervisor will start another. Return False if there is none."""
        for pid in random.sample(found := self.workers(), len(found)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *descendants(child))]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def free_port() -> int:
    """Return a port that nobody listens on, below those that the system gives to clients."""
    while True:
        port = random.randrange(22_100, 32_000)  # noqa: S311 - no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(is_so: Callable[[], object], what: str, *, seconds: float = 60.0) -> None:
    """Look again and again until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            sys.exit(f"wrong: waited {seconds:.0f} s for {what}")
        time.sleep(0.005)


# -- stores on a server ----------------------------------------------------------------------------------------------


class Redis(Program):
    """A Redis server of ours. It may forget the last second when it is killed, as with its usual settings."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        settings = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": folder,
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
        }
        (folder / "redis.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        super().__init__("redis", folder, [os.environ.get("REDIS_SERVER", "redis-server"), str(folder / "redis.conf")])


class Postgres(Program):
    """A PostgreSQL server of ours. This run kills processes, and not the machine: so nothing waits for the disk."""

    ends_by = signal.SIGINT  # at once, and not when the last client has gone

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"postgresql://{POSTGRES_USER}@127.0.0.1:{port}/postgres"
        home = folder / "postgres"
        home.mkdir()
        as_user: dict[str, Any] = {"cwd": home}
        if os.geteuid() == 0:
            person = pwd.getpwnam(POSTGRES_USER)
            as_user.update(user=person.pw_uid, group=person.pw_gid, extra_groups=[])
            os.chown(home, person.pw_uid, person.pw_gid)
            folder.chmod(0o755)
        programs = _postgres_programs()
        made = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={POSTGRES_USER}", "-D", "data"]
        subprocess.run([programs / "initdb", *made], check=True, stdout=subprocess.DEVNULL, timeout=120, **as_user)
        settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": home, "fsync": "off"}
        settings |= {"max_connections": 200, "full_page_writes": "off", "dynamic_shared_memory_type": "mmap"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        super().__init__("postgresql", folder, [str(programs / "postgres"), "-D", "data", *options], **as_user)

    def kill(self) -> bool:
        """Kill -9 the server and all of its processes: those that go on would keep its memory, and no other could start."""
        if self.process is None or not self.lives:
            return False
        self.process.send_signal(signal.SIGSTOP)  # it makes no further children
        children = descendants(self.process.pid)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()
        wait_until(lambda: not any(_title(pid) for pid in children), "the end of PostgreSQL's processes")
        return True


def _postgres_programs() -> Path:
    """Return the folder of the server's programs, which Debian does not put into PATH."""
    named, found = os.environ.get("POSTGRES_BIN"), shutil.which("postgres")
    if named or found:
        return Path(named) if named else Path(str(found)).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parts[-2]))
    if not installed:
        sys.exit("no PostgreSQL server here: apt-get install postgresql")
    return installed[-1]


def make_outbox() -> None:
    """Make the outbox's tables in our database, for jobs in another store."""
    subprocess.run(python("-m", "laneway", "outbox", "init", HERE / "invoices.py"), check=True, stdout=subprocess.DEVNULL)


# -- the ledger ------------------------------------------------------------------------------------------------------


class Ledger:
    """The provider's own books, read from its file: what it has really charged."""

    def __init__(self, folder: Path) -> None:
        wait_until((folder / "ledger.db").exists, "the provider's ledger")
        self._database = sqlite3.connect(folder / "ledger.db", timeout=30, isolation_level=None)
        wait_until(self._has_tables, "the provider's ledger")

    def _has_tables(self) -> bool:
        return bool(self._database.execute("select 1 from sqlite_master where name = 'keys'").fetchall())

    def charges(self) -> int:
        """Return how many charges there are; they are numbered, and none is ever removed."""
        return int(self._database.execute("select coalesce(max(id), 0) from charges").fetchone()[0])

    def wait_for(self, charges: int) -> None:
        """Wait until there are so many charges."""
        wait_until(lambda: self.charges() >= charges, f"{charges} charges")

    def total(self) -> tuple[int, int]:
        """Return the sum of all charges, in cents, and how often the provider was asked for them."""
        cents, calls = self._database.execute("select coalesce(sum(cents), 0), coalesce(sum(calls), 0) from charges").fetchone()
        return cents, calls

    def receipts(self) -> dict[str, tuple[int, int]]:
        """Return the customer and the amount of each charge, by its receipt."""
        found = self._database.execute("select id, customer, cents from charges")
        return {f"charge-{number}": (customer, cents) for number, customer, cents in found}

    def by_customer(self) -> dict[int, list[str]]:
        """Return the keys of each customer's charges."""
        found: dict[int, list[str]] = {}
        for customer, key in self._database.execute("select customer, key from charges order by id"):
            found.setdefault(customer, []).append(key or "no key")
        return found


def charged_wrongly(ledger: Ledger, prices: dict[int, int]) -> Iterator[str]:
    """Compare the ledger with what each customer owes: once, and no more."""
    found = ledger.by_customer()
    twice = [customer for customer, keys in found.items() if len(keys) > 1]
    never = [customer for customer in prices if customer not in found]
    if twice:
        one = twice[0]
        yield f"{len(twice):,} customers were charged more than once, such as customer {one}: {', '.join(found[one])}"
    if never:
        yield f"{len(never):,} customers were never charged, such as customer {never[0]}"
    if strangers := set(found).difference(prices):
        yield f"{len(strangers):,} were charged who are no customers: {sorted(strangers)[:3]}"
    cents, _ = ledger.total()
    if cents != (owed := sum(prices.values())):
        yield f"the ledger's sum is {euros(cents)}, and {euros(owed)} were due"


def euros(cents: int) -> str:
    """Write an amount."""
    return f"{cents / 100:,.2f} €"


def prices_of(customers: int) -> dict[int, int]:
    """Return what each customer pays a month, in cents."""
    return {customer: 500 + customer * 37 % 4500 for customer in range(1, customers + 1)}


# -- a stage, shown --------------------------------------------------------------------------------------------------

CUSTOMERS, KILLS = 40, 3


def show(stage: str, begin: Callable[[], object], *, loses_jobs: bool = False, sweeps: bool = False) -> None:
    """Let a stage charge forty customers, kill its worker three times on the way, and compare the ledger.

    With `loses_jobs` the store loses the jobs that wait, once half of the customers have paid. With `sweeps` the stage
    is to charge them all the same.
    """
    import books  # noqa: PLC0415 - run.py sets the environment first
    from laneway import App  # noqa: PLC0415 - the same

    prices = prices_of(CUSTOMERS)
    with tempfile.TemporaryDirectory(prefix="laneway-billing-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        books.create(prices.items())
        bank = provider(folder, "--latency", "0.06", "--no-bad-days")  # so all that goes wrong comes from kills
        fleet = Fleet(folder, stage, "-s", "4", "--log-level", "warning")
        app = App(books.STORE)
        app.store.migrate()  # on SQLite the tables must be there before a transaction of ours
        if not books.SAME_DATABASE:
            make_outbox()
        stack.callback(app.close)
        for program in (bank, fleet):
            stack.callback(program.stop)
            program.start()
        ledger = Ledger(folder)
        begin()
        for kill in range(1, KILLS + 1):
            ledger.wait_for(kill * 5)
            wait_until(fleet.kill_a_worker, "a worker to kill")
        lost = _lose_jobs(app, ledger) if loses_jobs else 0
        if sweeps:
            wait_until(lambda: not books.outstanding(1), "the sweeper to mend it")
        wait_until(lambda: _is_quiet(app), "the end of all jobs")
        _tell(Path(stage).name, ledger, prices, lost)


def _lose_jobs(app: Any, ledger: Ledger) -> int:
    """Stand for a store that is lost: all jobs that wait are gone."""
    ledger.wait_for(CUSTOMERS // 2)
    return int(app.inspect.delete_all("ready", queue="charges"))


def _is_quiet(app: Any) -> bool:
    """Whether no job is left, but for sweeps, which come again and again."""
    return not any(sum(queue.counts.values()) for queue in app.inspect.queues() if queue.name != "sweeps")


def _tell(stage: str, ledger: Ledger, prices: dict[int, int], lost: int) -> None:
    import books  # noqa: PLC0415 - see above

    say = sys.stdout.write
    say(f"{stage}: {len(prices)} customers, {KILLS} workers killed, {lost} jobs lost, {ledger.charges()} charges\n")
    wrong = list(charged_wrongly(ledger, prices))
    for line in wrong:
        say(f"  wrong: {line}\n")
    if not wrong:
        say(f"  right: each customer was charged once, {euros(ledger.total()[0])}\n")
    subscriptions, invoices = books.everything()
    still_due = sum(next_charge_on == books.TODAY for _, _, next_charge_on in subscriptions)
    open_ones = len(books.outstanding(len(prices)))
    say(f"  the database says: {still_due} are due, {len(invoices)} invoices, {open_ones} of them not charged\n")
