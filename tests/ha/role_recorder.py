"""A role machine whose effects are written down instead of carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import attrs

from trioha.ha import role_effects as effects
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.mastership import Mastership
from trioha.ha.promotion import Promotion
from trioha.ha.role_effects import Effect
from trioha.ha.role_machine import RoleMachine


class Disk:
    """The disk of a machine; it outlives a process."""

    def __init__(self) -> None:
        self.payload: bytes | None = None

    def save(self, payload: bytes) -> None:
        self.payload = payload


class RecordedRole(RoleMachine):
    """The node `home_id` of a set, its log at `log_end`; `told` is its transcript."""

    def __init__(
        self, home_id: int, disk: Disk | None = None, *, log_end: int = 0, now_ms: int = 0
    ) -> None:
        self.disk = disk or Disk()
        self.told: list[str] = []
        self.prepares = True
        """A promotion's work on the disk succeeds at once."""
        self._log_end = log_end
        self._now_ms = now_ms
        self._follows = ""
        self._nonces = (number.to_bytes(8, "big") for number in count(0xA000))
        mastership = Mastership(home_id, self.disk.save, self.disk.payload, boot=b"boot")
        super().__init__(
            "broker-a",
            f"node-{home_id}",
            mastership,
            lambda: next(self._nonces),
            configured_sync=True,
        )
        mastership.start(
            configured_master=home_id == 0,
            log_end=log_end,
            nonce=next(self._nonces),
            sync=True,
            wall_ms=0,
        )
        self.started()

    @property
    def log_end(self) -> int:
        return self._log_end

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @property
    def wall_ms(self) -> int:
        return 0

    @property
    def follows(self) -> str:
        return self._follows

    def carry_out(self, effect: Effect) -> None:
        self.told.append(f"  {_text(effect)}")
        match effect:
            case effects.FollowMaster(address):
                self._follows = address
            case effects.ForgetMaster():
                self._follows = ""
            case effects.BeginTerm():
                if self.prepares:
                    self.begin()

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Write an event into the transcript, and the state behind its effects."""
        self.told.append(f"{self._now_ms} {words}")
        before = self.state
        yield
        after = self.state
        self.told.append(
            f"  = {after.value}" if before is after else f"  = {before.value} -> {after.value}"
        )

    def elapse(self, ms: int) -> None:
        self._now_ms += ms
        with self.step(f"{ms} ms later"):
            self.on_time(self._now_ms)

    def follow_history_of(self, master: RecordedRole) -> None:
        """The handshake with this master has taken over its history."""
        with self.step(f"adopts the history of {master.address}"):
            self.mastership.adopt(master.mastership.history)
            self.adopted()

    def effects_of(self) -> list[str]:
        """Take the names of the effects told since the last call."""
        told, self.told = self.told, []
        return [line.split()[0].split("(")[0] for line in told if line.startswith("  ")]


def promotion(epoch: int, *, log_offset: int = 100, planned: bool = False) -> Promotion:
    return Promotion(
        epoch=epoch,
        nonce=ticket(epoch),
        sync=True,
        log_offset=log_offset,
        operator="anna@ops",
        planned=planned,
    )


def ticket(epoch: int) -> bytes:
    return bytes([0xEE] * 7 + [epoch])


def history(*terms: tuple[int, int]) -> EpochHistory:
    """Terms as number and home id, each with the nonce of its ticket."""
    return EpochHistory(
        tuple(EpochRecord(epoch, 0, home_id, ticket(epoch), True) for epoch, home_id in terms)
    )


def _text(effect: Effect) -> str:
    def shown(value: object) -> str:
        if isinstance(value, EpochRecord):
            return f"epoch {value.epoch} of {value.home_id} from {value.start_offset}"
        return value.hex() if isinstance(value, bytes) else str(value)

    fields = attrs.asdict(effect, recurse=False).items()
    words = ", ".join(f"{key}={shown(value)}" for key, value in fields)
    return f"{type(effect).__name__} {words}".rstrip()
