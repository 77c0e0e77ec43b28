"""A simulated node's mastership: its terms on disk, and the judge that hears of them."""

from __future__ import annotations

from trioha.ha.epochs import NONCE_BYTES, EpochRecord
from trioha.ha.mastership import Mastership, kept_history
from trioha.sim.pair.views import SimProcess


def open_mastership(node: SimProcess) -> Mastership:
    """Read it from disk; `start_mastership` begins a term if the node is to have one."""
    machine = node.machine
    boot = machine.boot.to_bytes(4, "big")
    return Mastership(machine.home_id, _JudgedTerms(node).save, machine.epochs.payload, boot=boot)


def start_mastership(node: SimProcess, mastership: Mastership) -> None:
    mastership.start(
        configured_master=node.machine.home_id == 0,
        log_end=node.log_end,
        nonce=node.world.rng.randbytes(NONCE_BYTES),
        sync=True,
        wall_ms=node.now_ms,
        clean=False,  # every process here ends in a crash
    )


class _JudgedTerms:
    """The file of one node's terms.

    The judge hears of a term that is on disk, also if the process ended right then.
    """

    def __init__(self, node: SimProcess) -> None:
        self._node = node
        newest = self._newest()
        self._told_nonce = newest.nonce if newest is not None else b""
        """Nonce of the newest term that the judge knows of."""

    def save(self, payload: bytes) -> None:
        try:
            self._node.machine.epochs.save(payload)
        finally:
            self._tell_judge()

    def _newest(self) -> EpochRecord | None:
        saved = self._node.machine.epochs.payload
        return kept_history(saved).newest if saved is not None else None

    def _tell_judge(self) -> None:
        node, newest = self._node, self._newest()
        if newest is None or newest.home_id != node.machine.home_id:
            return
        if newest.nonce == self._told_nonce:
            return
        self._told_nonce = newest.nonce
        forced = newest.nonce.hex() in node.world.overrides
        promotion = node.roles.promotion
        written_off = promotion.written_off if promotion is not None else ()
        node.world.checker.term_begun(
            node.host,
            newest,
            node.world.logs(),
            forced=forced,
            written_off=frozenset(node.members[home_id] for home_id in written_off),
            gives_up=forced or node.machine.lacks_lost_tail,
        )
