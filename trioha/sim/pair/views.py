"""Protocols: the parts of a node that its roles use, and of the world that a node uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Protocol

from trioha.broker.failover import FailoverProcessor
from trioha.ha.hello import Hello
from trioha.ha.role_machine import RoleMachine
from trioha.sim.disk import LogFile, SavedBytes
from trioha.sim.network import Item, Network
from trioha.sim.pair.checker import Checker
from trioha.sim.pair.namesrv import SimNamesrv
from trioha.sim.pair.records import RecordLog
from trioha.sim.scheduler import Scheduler
from trioha.wire.remoting_command import RemotingCommand


class SimMachine(Protocol):
    """The disk of a node, and its place in the set."""

    host: str
    home_id: int
    file: LogFile
    epochs: SavedBytes
    log: RecordLog
    boot: int

    @property
    def lacks_lost_tail(self) -> bool: ...


class SimWorld(Protocol):
    """The surroundings of a node: network, time, chance, the judge."""

    rng: Random
    scheduler: Scheduler
    network: Network
    checker: Checker
    overrides: set[str]
    namesrv: SimNamesrv

    @property
    def machines(self) -> Mapping[str, SimMachine]: ...
    def logs(self) -> Mapping[str, RecordLog]: ...
    def lost_ends(self) -> Mapping[str, int]: ...
    def ask(
        self,
        source: str,
        target: str,
        request: object,
        hear: Callable[[Item], None],
        patience_ms: int,
    ) -> None: ...


class SimProcess(Protocol):
    """A node, as its roles see it."""

    host: str
    failover: FailoverProcessor

    @property
    def machine(self) -> SimMachine: ...
    @property
    def world(self) -> SimWorld: ...
    @property
    def roles(self) -> RoleMachine: ...
    @property
    def status_name(self) -> str: ...
    @property
    def members(self) -> Mapping[int, str]: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def log(self) -> RecordLog: ...
    @property
    def log_end(self) -> int: ...
    def ask(self, host: str, request: object, hear: Callable[[object], None]) -> None: ...
    def request(self, code: int, fields: Mapping[str, object]) -> RemotingCommand: ...
    def fields_of(self, answer: object) -> Mapping[str, Any] | None: ...
    def awake(self, action: Callable[[], None]) -> Callable[[], None]: ...
    def waking(self, action: Callable[[Item], None]) -> Callable[[Item], None]: ...
    def tell(self, text: str) -> None: ...
    def register_soon(self) -> None: ...
    def show_readers(self) -> None: ...
    def cut(self, phy_offset: int) -> None: ...
    def hello(self) -> Hello: ...
