"""The settings of a fleet (of `laneway worker`), as one value that is sent to the zygote."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["AppChoice", "FleetSettings"]


class AppChoice(Struct, frozen=True):
    """Which app a fleet runs, and on which store."""

    name: str | None = None  #: as the command's argument, if given,
    option: str | None = None  #: and with -A
    store: str | None = None  #: use this store instead of the app's


class FleetSettings(Struct, frozen=True, kw_only=True, tag=True):
    """The settings of a fleet."""

    app: AppChoice = AppChoice()
    queues: tuple[str, ...] = ()  #: all if empty
    weights: dict[str, float] = {}  #: of the queues that have one
    balance: str | None = None  #: how slots are dealt to queues
    slots: int = 25
    processes: int = 1
    connections: int | None = None  #: to a store on a server, in each process; None: as the app says
    burst: bool = False
    reload: bool = False
    shutdown_timeout: float = 25.0  #: how long running jobs may take to end after a stop, seconds
    max_jobs: int | None = None  #: a process that has run this many jobs is replaced
    max_memory: int | None = None  #: and so is one that uses more memory, bytes
    beat: float = 3.0  #: how often the supervisor beats for its workers, seconds
    timeout_grace: float = 2.0  #: a run that goes on this long after its timeout does not yield: its worker is replaced, seconds
    loop: str = "asyncio"  #: the event loop of async tasks; or uvloop
    health: tuple[str, int] | None = None  #: host and port where the supervisor answers /livez and /readyz
    log_level: str | None = None  #: debug, info, warning, error; None: as the app has set up logging, else info
    log_format: str | None = None  #: text or json; None: as the app has set up logging, else text
    fleet: str = ""  #: the fleet's id
    parent: int = 0  #: the supervisor's pid

    @property
    def rows(self) -> int:
        """The number of rows of a worker's board: the most jobs that may be under way where jobs are very short."""
        return 2 * self.slots
