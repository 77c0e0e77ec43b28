"""A slave's part of the extended handshake: ask, compare, save the bytes to cut, cut, take over.

The steps, each durable before the next: note the master's epoch; save the bytes beyond the common
offset in a folder under ``cut``; cut the log there; take over the master's history. Only then the
slave connects. After a crash between two steps the node is not master, and begins with
the first step again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import trio

from trioha.config import BrokerConfig
from trioha.config.secret_files import ha_keyring
from trioha.errors import RemoteProtocolError, StoreError, TriohaError, Unreachable
from trioha.ha.epochs import EpochHistory
from trioha.ha.events import Term
from trioha.ha.greeting import checksum
from trioha.ha.hello import (
    Hello,
    HelloAnswer,
    LogExtent,
    NeedsResync,
    Proofs,
    agree,
    holds_more,
    meetings,
)
from trioha.ha.mastership import Mastership, Standing
from trioha.journal import EventSink
from trioha.security.node_signer import Sign, unsigned
from trioha.services.ha.greeting import CHALLENGE_FIELD, PROOF_FIELD
from trioha.services.ha.master_address import MasterAddress
from trioha.services.ha.master_link import ShippedLog
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import random_source, run_blocking
from trioha.services.loop.transport import Connect, connect
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.store.accept_loss import forget_loss
from trioha.store.cuts import Cut, save_cut, set_log_aside
from trioha.store.store_config import StoreConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.epoch_numbers import Word
from trioha.wire.remoting_command import ExtValue, RemotingCommand

PATIENCE_S = 5.0  # of the whole conversation; without the time that keeping and cutting take
ADDRESS_PATIENCE_S = 5.0  # name servers tell both addresses of a master in one answer
NONCE_BYTES = 16
CLASSIC_EPOCH_MAX = 1
"""Newest epoch of a set that may still have a master of the classic kind, RocketMQ's own."""


class SlaveLog(ShippedLog, Protocol):
    """A log that can be cut: part of `trioha.store.message_store`."""

    def truncate_log(self, phy_offset: int) -> None: ...
    def empty_log(self, reason: str) -> None: ...
    def flush(self) -> int: ...


class Handshake:
    """The handshake before each link of a slave.

    `on_cut` is called after the log was cut, in the same pass; `on_adopted` when the history is
    the master's; `on_fenced` when the answer told a node in doubt of a newer term.
    """

    def __init__(
        self,
        mastership: Mastership,
        store: SlaveLog,
        config: BrokerConfig,
        address: str,
        master_address: MasterAddress,
        events: EventSink,
        clock: Clock,
        *,
        on_cut: Callable[[Cut], None],
        on_adopted: Callable[[], None] = lambda: None,
        on_fenced: Callable[[str], None] = lambda reason: None,
        connect_to: Connect = connect,
        sign: Sign = unsigned,
    ) -> None:
        self._mastership = mastership
        self._store = store
        self._config = config
        self._root = Path(os.path.expanduser(config.store_path_root_dir))
        self._address = address
        self._master_address = master_address
        self._events = events
        self._clock = clock
        self._sign = sign
        self._on_cut = on_cut
        self._on_adopted = on_adopted
        self._on_fenced = on_fenced
        self._connect_to = connect_to
        self._keyring = ha_keyring(config)
        self._proofs = Proofs(self._keyring)
        self.suspended = ""
        """Reason why this node follows no master for now; then it cuts and takes over nothing."""
        self.whole_at: int | None = None
        """End of the master's log when this node, which may have lost bytes, first met it; None
        once this node's log has come so far."""
        self.master_log: LogExtent | None = None
        """Extent and history of the log of the master that answered last."""
        self.needs_resync = ""
        """Reason why an operator has to decide, as of the last attempt; "" for none."""

    @property
    def home_id(self) -> int:
        return self._mastership.home_id

    async def shake(self) -> Term | None:
        """Make our log one that the master's continues; None for a master of the classic kind.

        Errors: RemoteProtocolError when the master may not be followed, NeedsResync among them;
        Unreachable when it does not answer; StoreError, DiskFull.
        """
        needs_resync = ""
        try:
            return await self._agree()
        except NeedsResync as error:
            needs_resync = str(error)
            raise
        finally:
            # Not before the attempt ends: the status shows the last attempt until then.
            self.needs_resync = needs_resync

    async def _agree(self) -> Term | None:
        address = await self._remoting_address()
        if not address:
            self._check_classic("a master whose address for clients is not known")
            return None
        agreed = await self._talk(address)
        if agreed is None:
            self._check_classic(f"the master at {address}")
            return None
        answer, common_offset = agreed
        await self._follow(answer, common_offset)
        return answer.term

    async def _remoting_address(self) -> str:
        """Return the address to ask; "" when no node is known."""
        if self._config.namesrv_addr and not self._master_address.value:
            with trio.move_on_after(ADDRESS_PATIENCE_S):
                await self._master_address.wait_known()
        return self._master_address.value

    def may_follow(self, term: Term | None) -> bool:
        """Return whether a master of this term may be followed; None for a classic master."""
        if term is None:
            return self._mastership.promised[0] <= CLASSIC_EPOCH_MAX
        return self._mastership.follows_term(term.epoch, term.nonce)

    def _check_classic(self, who: str) -> None:
        known = self._mastership.promised[0]
        if known > CLASSIC_EPOCH_MAX:
            raise RemoteProtocolError(
                f"{who} knows no epochs, or not our haSecret, and this set has been failed over: "
                f"epoch {known} has begun; nothing tells whether that log continues ours"
            )

    async def _talk(self, address: str) -> tuple[HelloAnswer, int] | None:
        """Return the master's answer and the common offset; None if it knows no such request."""
        with trio.move_on_after(PATIENCE_S):
            try:
                transport = await self._connect_to(*parse_address(address))
            except OSError as error:
                raise Unreachable(f"{address}: {error.strerror or error}") from error
            async with open_remoting_client(
                *parse_address(address), self._clock, transport=transport, sign=self._sign
            ) as client:
                return await self._converse(client)
        raise Unreachable(f"{address}: no answer to our hello in {PATIENCE_S:g} s")

    async def _converse(self, client: RemotingClient) -> tuple[HelloAnswer, int] | None:
        ours = self._hello()
        answer = await self._ask(client, ours)
        if answer is None:
            return None
        if answer.broker_name == ours.broker_name:
            mastership = self._mastership
            if mastership.hear(answer.known_epoch, answer.known_nonce, answer.address):
                self._on_fenced(mastership.fenced_by)
            self.master_log = answer.log
        found = meetings(ours, answer)
        ours = attrs.evolve(ours, spans=tuple(one.span for one in found))
        if found:
            again = await self._ask(client, ours)
            if again is None or again.log.history != answer.log.history:
                raise RemoteProtocolError(f"{answer.address} has changed its role meanwhile")
            answer = again
        checksums = [checksum(self._store, span) for span in ours.spans]
        return answer, agree(found, ours, answer, checksums)

    async def ask_member(
        self, address: str, *, ha_address: str = "", wants: Term | None = None
    ) -> HelloAnswer | None:
        """Ask another node of the set about itself; None if it does not answer.

        The hello tells it our epoch, which deposes a master of an older one.
        `ha_address` announces this node as the master; `wants` is a term that the other is asked to
        promise.
        """
        try:
            transport = await self._connect_to(*parse_address(address))
        except (OSError, TriohaError):
            return None
        async with open_remoting_client(
            *parse_address(address), self._clock, transport=transport, sign=self._sign
        ) as client:
            if ha_address and self._mastership.standing is not Standing.MASTER:
                return None  # deposed while it connected
            hello = attrs.evolve(
                self._hello(),
                ha_address=ha_address,
                wants_epoch=wants.epoch if wants is not None else 0,
                wants_nonce=wants.nonce if wants is not None else b"",
            )
            try:
                return await self._ask(client, hello)
            except TriohaError:
                return None

    def _hello(self) -> Hello:
        return Hello.of(self._config.broker_name, self._address, self._mastership, self._store)

    async def _ask(self, client: RemotingClient, hello: Hello) -> HelloAnswer | None:
        """Send one hello, with a proof if the master asks for it; return the answer."""
        hello = attrs.evolve(hello, nonce=random_source().randbytes(NONCE_BYTES))
        body = hello.encode()
        fields: dict[str, ExtValue] = {}
        response = await client.request(RemotingCommand(RequestCode.HA_HELLO, fields, body))
        if (challenge := response.ext_str(CHALLENGE_FIELD, "")) and self._keyring:
            try:
                given = bytes.fromhex(challenge)
            except ValueError:
                raise RemoteProtocolError(
                    f"{client.link.peer} answers our hello with what is no challenge"
                ) from None
            proof = self._proofs.of_slave(given, body)
            fields = {CHALLENGE_FIELD: challenge, PROOF_FIELD: proof.hex()}
            response = await client.request(RemotingCommand(RequestCode.HA_HELLO, fields, body))
            if response.code == ResponseCode.NO_PERMISSION:
                raise RemoteProtocolError(
                    f"{client.link.peer} does not take our proof of the shared secret; set "
                    "haSecret to the master's"
                )
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise RemoteProtocolError(
                f"{client.link.peer} refuses our hello with code {response.code}: "
                f"{response.remark or ''}"
            )
        data = response.body_bytes()
        if self._keyring and not response.ext_str(PROOF_FIELD, ""):
            # The node has no secret yet, or is a stranger: its answer must not cause a cut.
            return None
        if self._keyring and not self._is_from_master(response, hello.nonce, data):
            raise RemoteProtocolError(
                f"{client.link.peer} cannot prove that it knows our haSecret; give it the same one"
            )
        answer = HelloAnswer.decode(data)
        if answer.broker_name == hello.broker_name:
            for epoch in (answer.known_epoch, answer.promised_epoch, answer.log.history.epoch):
                if doubt := self._mastership.disbelief(epoch, Word.ASKED):
                    raise RemoteProtocolError(f"{client.link.peer} answers our hello: {doubt}")
        return answer

    def _is_from_master(self, response: RemotingCommand, nonce: bytes, data: bytes) -> bool:
        try:
            proof = bytes.fromhex(response.ext_str(PROOF_FIELD, ""))
        except ValueError:
            return False
        return self._proofs.is_of_master(nonce, data, proof)

    async def _follow(self, answer: HelloAnswer, common_offset: int) -> None:
        store, mastership = self._store, self._mastership
        end = store.max_phy_offset
        if common_offset < end:
            cut = await run_blocking(
                partial(
                    save_cut,
                    self._root,
                    store.read_log,
                    common_offset,
                    end,
                    segment_bytes=self._config.mapped_file_size_commit_log,
                    wall_ms=self._clock.wall_ms(),
                    about={
                        "broker_name": self._config.broker_name,
                        "reason": f"{answer.address} is master since epoch {answer.term.epoch}",
                        "our_epochs": _epochs(mastership.history),
                        "master_epochs": _epochs(answer.log.history),
                    },
                )
            )
            # Nothing from here to the end awaits.
            self._check_still_wanted(answer)
            if store.max_phy_offset != end:
                raise StoreError(f"the log grew beyond {end} while it was to be cut; trying again")
            store.truncate_log(common_offset)
            self._events.event(
                "log_cut",
                from_offset=common_offset,
                to_offset=end,
                epoch=answer.term.epoch,
                kept=str(cut.path),
            )
            self._on_cut(cut)
        self._check_still_wanted(answer)
        mastership.adopt(answer.log.history)
        mastership.meet_members({**answer.members, answer.home_id: answer.address})
        self._on_adopted()
        if mastership.may_have_lost:
            self.whole_at = answer.log.end
            self.on_appended()

    def on_appended(self) -> None:
        """Note that our log has grown."""
        if self.whole_at is not None and self._store.max_phy_offset >= self.whole_at:
            self.whole_at = None
            self._mastership.note_whole()
            forget_loss(self._root)

    def holds_more(self) -> bool:
        """Is our log the one to keep, as far as the master's last answer tells?"""
        return self.master_log is not None and holds_more(self._hello().log, self.master_log)

    async def start_anew(self) -> None:
        """Set our whole log aside as a cut and go on with an empty one; no link may be up.

        Errors: StoreError, also where it cannot be set aside.
        """
        store, config = self._store, self._config
        begin, end = store.min_phy_offset, store.max_phy_offset
        if begin == end:
            return
        path = StoreConfig.of(config).commitlog_path
        about = {
            "broker_name": config.broker_name,
            "reason": "trioha ha resync",
            "our_epochs": _epochs(self._mastership.history),
        }
        wall_ms = self._clock.wall_ms()
        await run_blocking(store.flush)
        cut = await run_blocking(
            partial(set_log_aside, self._root, path, begin, end, wall_ms, about)
        )
        if self.suspended or store.max_phy_offset != end:
            raise Unreachable(self.suspended or "the log grew while it was set aside")
        store.empty_log("set aside by `trioha ha resync`")
        self._events.event(
            "log_cut",
            from_offset=begin,
            to_offset=end,
            epoch=self._mastership.known_epoch,
            kept=str(cut.path),
        )
        self._on_cut(cut)

    def _check_still_wanted(self, answer: HelloAnswer) -> None:
        if self.suspended:
            raise Unreachable(self.suspended)
        if not self.may_follow(answer.term):
            raise RemoteProtocolError(
                f"{answer.address} is master of epoch {answer.term.epoch}, but meanwhile epoch "
                f"{self._mastership.promised[0]} has begun or was promised to another node"
            )


def _epochs(history: EpochHistory) -> list[dict[str, object]]:
    return [attrs.asdict(record) | {"nonce": record.nonce.hex()} for record in history]
