"""A node's standing in each term of mastership; the one owner of its epoch history.

Theory of operation. A node is MASTER of the newest epoch that it knows, SLAVE of that epoch's
master, or FENCED: it was master, and either another node holds a newer epoch or the members have
not said yet that there is none. Only a MASTER takes writes.

Everything that another node may have been promised is on disk before it is acted on: the history,
the newest epoch heard of, and which record is of our own making (its nonce). So a node that has
been fenced stays so through a crash, and one that has handed over does not come back as master.

On its start a node that never had a trioha slave takes the role of its configuration, as in
RocketMQ. In a set that was never failed over, a node that is configured as slave is a slave. If a
node is configured as master and its newest record is another node's first term, an operator edited
the configuration: the node begins a new term. Every other node goes by its history. If
the newest record is its own it was master, and another node may have been promoted while it was
away: it comes up FENCED and *unconfirmed* until others spoke (`ha.confirmation`). Its members are
the nodes that it ever shook hands with, and the nodes that those knew. A newer term can have begun
on one of them only.

The number alone does not tell two terms apart that two operators began at once. A name server
decides between them (`namesrv.masterships`), so only its word fences a node for an equal number.

Before a term begins, members *promise* it (`ha.quorum`). A promise is durable like everything else:
from then on the node follows, acknowledges and adopts nothing older, also after a restart, whether
or not the promised term ever begins. A master whose slaves promised another node can gather no
acknowledgements any more; as soon as it hears of such a promise it is in *doubt*, as after a
restart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from trioha.errors import LocalProtocolError
from trioha.ha.epochs import NONCE_BYTES, EpochHistory, EpochRecord
from trioha.ha.kept_mastership import KeptMastership, without_unbelievable
from trioha.ha.quorum import missing_promises
from trioha.wire.epoch_numbers import Word, disbelief

FILE_NAME = "epochs"
"""Stem of the two-slot file's name, in the root of a store."""
MEMBERS_MAX = 64
"""Most other nodes of a set: one master has at most as many slaves."""
_UNCONTESTED_EPOCH_MAX = 1
_UNCONFIRMED = "no member has confirmed yet that no newer epoch has begun while this node was away"


class Standing(enum.Enum):
    """The role that a node claims by its own history."""

    MASTER = "MASTER"
    SLAVE = "SLAVE"
    FENCED = "FENCED"
    """Was master, has heard of a newer epoch or handed over, and takes no writes."""


def kept_history(data: bytes) -> EpochHistory:
    """Return the history in a saved file.

    Errors: StoreError.
    """
    return KeptMastership.decode(data).history


class Mastership:
    """Standing of one node. Each method makes its change durable before it returns.

    `save` brings bytes to disk, `saved` is what it was given last. `boot` names this boot of the
    machine: what was written in it is not lost with the process; b"" where that cannot be told.
    Errors: StoreError for bytes that are no mastership, and whatever `save` raises.
    """

    def __init__(
        self,
        home_id: int,
        save: Callable[[bytes], None],
        saved: bytes | None = None,
        *,
        boot: bytes = b"",
    ) -> None:
        self.home_id = home_id
        """brokerId as configured."""
        self.standing = Standing.SLAVE
        self.unconfirmed = False
        """FENCED only because this node does not know whether a newer term has begun."""
        self.may_have_lost = False
        """The machine went down since the log was whole: acknowledged bytes may be missing."""
        self._boot = boot
        self._waited_for = ""
        self._save = save
        self._kept = KeptMastership()
        if saved is not None:
            self._kept = without_unbelievable(KeptMastership.decode(saved))

    def facts(self, log_end: int) -> dict[str, object]:
        """Plain values for the status and for operators who fail the broker over."""
        return {
            "home_id": self.home_id,
            "standing": self.standing.value,
            "epoch": self.known_epoch,
            "promised_epoch": self.promise_given[0],
            "level_since_start": not self.may_have_lost,
            "log_epoch": self.history.epoch_at(log_end),
            "sync": self.newest.sync if self.newest is not None else None,
            "members": {str(home_id): address for home_id, address in self.members.items()},
        }

    @property
    def history(self) -> EpochHistory:
        return self._kept.history

    @property
    def newest(self) -> EpochRecord | None:
        return self._kept.history.newest

    @property
    def epoch(self) -> int:
        """The newest epoch whose record we have."""
        return self._kept.history.epoch

    @property
    def nonce(self) -> bytes:
        newest = self.newest
        return newest.nonce if newest is not None else b""

    @property
    def known_epoch(self) -> int:
        """Number of the newest epoch that any node or name server told of; at least `epoch`."""
        return max(self._kept.known_epoch, self.epoch)

    @property
    def known_nonce(self) -> bytes:
        """Nonce of the newest epoch that any node or name server told of; b"" if none told it."""
        return self._known_nonce_of(self.known_epoch)

    @property
    def promised(self) -> tuple[int, bytes]:
        """Number and nonce of the newest term promised or known: nothing older is followed."""
        kept = self._kept
        if kept.promised_epoch > self.known_epoch:
            return kept.promised_epoch, kept.promised_nonce
        return self.known_epoch, self.known_nonce

    @property
    def promise_given(self) -> tuple[int, bytes]:
        """Number and nonce of the term promised and not followed yet; (0, b"") for none."""
        return self._kept.promised_epoch, self._kept.promised_nonce

    @property
    def begun(self) -> tuple[int, bytes]:
        """Number and nonce of the newest epoch that is known to have begun: what others are told.

        A term that was only promised may never begin: reported, it would fence the present master.
        """
        if self._kept.known_nonce and self._kept.known_epoch >= self.epoch:
            return self._kept.known_epoch, self._kept.known_nonce
        return self.epoch, self.nonce

    @property
    def fenced_by(self) -> str:
        """Reason why this node takes no writes, as the holder of a newer epoch; "" for none."""
        if self.unconfirmed:
            return self._waited_for or _UNCONFIRMED
        return self._kept.fenced_by

    @property
    def is_own(self) -> bool:
        """Did this node begin the newest term it has a record of?"""
        newest = self.newest
        return newest is not None and newest.nonce == self._kept.own_nonce

    @property
    def members(self) -> Mapping[int, str]:
        """Remoting addresses of the other nodes of the set by home id, as far as we know."""
        return self._kept.members

    @property
    def broker_id(self) -> int:
        """The brokerId to register: ids follow the role and stay unique."""
        if self.standing is Standing.MASTER or self.unconfirmed:
            return 0
        if self.home_id or self.newest is None:
            return self.home_id
        return self.newest.home_id

    def start(
        self,
        *,
        configured_master: bool,
        log_end: int,
        nonce: bytes,
        sync: bool,
        wall_ms: int,
        clean: bool = True,
    ) -> None:
        """Determine the standing at the start; begin a term if the configuration asks for one.

        `clean`: the store was closed in order.
        """
        kept = self._kept
        same_boot = self._boot == kept.boot and bool(self._boot)
        # An orderly stop after a loss of power does not bring the lost bytes back.
        self.may_have_lost = kept.lost or (not clean and bool(kept.history) and not same_boot)
        if self.may_have_lost and not kept.lost:
            self._keep(lost=True)
        if configured_master and not self._has_master() and not self.may_have_lost:
            epoch = self.known_epoch + 1
            self.begin_term(epoch, log_end, nonce=nonce, sync=sync, wall_ms=wall_ms)
        elif not self.is_own or (
            not configured_master and self.known_epoch <= _UNCONTESTED_EPOCH_MAX
        ):
            self.standing = Standing.SLAVE
        elif self._kept.known_epoch > self.epoch or self._kept.fenced_by:
            self.standing = Standing.FENCED
        elif configured_master and self.epoch <= _UNCONTESTED_EPOCH_MAX and not kept.members:
            self.standing = Standing.MASTER
        else:
            self.standing, self.unconfirmed = Standing.FENCED, True
        if self.standing is Standing.MASTER or not self.may_have_lost:
            self.note_whole()

    def note_whole(self) -> None:
        """Note that the log holds all that this node ever acknowledged and that still counts."""
        self.may_have_lost = False
        if self._kept.history and (self._kept.boot != self._boot or self._kept.lost):
            self._keep(boot=self._boot, lost=False)

    def disbelief(self, epoch: int, word: Word) -> str:
        """Return why this node does not believe that a term has this number; "" if it does."""
        # A promise or a number that was heard of proves nothing: measured from those, any number
        # could be reached in steps. A node that an operator told of a term asks that term's master.
        recorded = self.known_epoch if word is Word.ASKED else self.epoch
        if 0 <= epoch <= self.promised[0]:
            return ""
        return disbelief(epoch, recorded, word)

    def is_deserted(self, promise: tuple[int, bytes]) -> bool:
        """Return whether a member's promise keeps it from following this node as master."""
        epoch, nonce = promise
        return epoch > self.epoch or (epoch == self.epoch and nonce not in (b"", self.nonce))

    def begin_term(
        self, epoch: int, log_end: int, *, nonce: bytes, sync: bool, wall_ms: int
    ) -> EpochRecord:
        """Become MASTER of a new epoch, whose log begins at `log_end`.

        Errors: LocalProtocolError when the epoch is not newer than all that is known, or too far
        beyond it.
        """
        if len(nonce) != NONCE_BYTES:
            raise LocalProtocolError(f"a nonce of {len(nonce)} bytes, not {NONCE_BYTES}")
        kept = self._kept
        known_epoch, known_nonce = self.promised
        if epoch < known_epoch or (epoch == known_epoch and known_nonce not in (b"", nonce)):
            raise LocalProtocolError(f"epoch {epoch} is not newer than {known_epoch}")
        self._check_believed(epoch)
        record = EpochRecord(epoch, log_end, self.home_id, nonce, sync, wall_ms)
        history = kept.history.begin(record, log_end)
        self._keep(
            history=history,
            known_epoch=epoch,
            known_nonce=nonce,
            promised_epoch=0,
            promised_nonce=b"",
            own_nonce=nonce,
            fenced_by="",
            boot=self._boot,
            lost=False,
        )
        self.standing, self.unconfirmed, self.may_have_lost = Standing.MASTER, False, False
        return record

    def has_begun(self, nonce: bytes) -> bool:
        """Return whether this node itself began the term with this nonce."""
        return any(
            record.nonce == nonce and record.home_id == self.home_id for record in self.history
        )

    def promise(self, epoch: int, nonce: bytes) -> None:
        """Follow and acknowledge nothing older than this term from now on; repeatable.

        Errors: LocalProtocolError when the term is not newer than all that is known or promised, or
        too far beyond it, and on a master, which has to hand over first.
        """
        if (epoch, nonce) == self.promised:
            return
        if self.standing is Standing.MASTER:
            raise LocalProtocolError(f"this node is master of epoch {self.epoch}")
        if epoch <= self.promised[0]:
            raise LocalProtocolError(
                f"epoch {epoch} is not newer than {self.promised[0]}, promised or begun before"
            )
        self._check_believed(epoch)
        self._keep(promised_epoch=epoch, promised_nonce=nonce)

    def follows_term(self, epoch: int, nonce: bytes) -> bool:
        """Return whether no promise and no newer term keeps this node from following that one."""
        promised_epoch, promised_nonce = self.promised
        if epoch != promised_epoch:
            return epoch > promised_epoch
        return self._kept.promised_epoch != epoch or nonce == promised_nonce

    def adopt(self, history: EpochHistory) -> None:
        """Take over the history of the master.

        Errors: LocalProtocolError when we know of a newer epoch.
        """
        newest = history.newest
        if not self.follows_term(history.epoch, newest.nonce if newest is not None else b""):
            raise LocalProtocolError(
                f"a history up to epoch {history.epoch}, while epoch {self.promised[0]} is known "
                "or promised"
            )
        if history != self._kept.history or self._kept.fenced_by:
            own_nonce = self._kept.own_nonce
            if newest is not None and newest not in self._kept.history.records:
                # Another node began it. It may have our nonce all the same: a forged
                # operator's ticket can promote two nodes. Then no term is ours any more.
                own_nonce = b"" if newest.nonce == own_nonce else own_nonce
            self._keep(
                history=history,
                own_nonce=own_nonce,
                known_epoch=history.epoch,
                known_nonce=newest.nonce if newest is not None else b"",
                promised_epoch=0,
                promised_nonce=b"",
                fenced_by="",
                boot=self._kept.boot if self.may_have_lost else self._boot,
            )
        self.standing, self.unconfirmed = Standing.SLAVE, False

    def hear(
        self,
        epoch: int,
        nonce: bytes,
        holder: str,
        *,
        decided: bool = False,
        word: Word = Word.ASKED,
    ) -> bool:
        """Note that `holder` holds `epoch`; return True if this has just fenced this node.

        `decided`: a name server or an operator has decided between two holders of one number. A
        number that is not believed changes nothing, nor does one without a nonce; `word` is how it
        came here.
        """
        newer = epoch > self.epoch or (decided and epoch == self.epoch and nonce != self.nonce)
        # The node that begins a term draws its nonce. A number without one is no term: this node
        # could not tell its master of it, and would stop following that master, which stays master.
        if not newer or not nonce or epoch < self.known_epoch or self.disbelief(epoch, word):
            return False
        fences = self.standing is Standing.MASTER or self.unconfirmed
        words = f"{holder} holds epoch {epoch}"
        if fences:
            # First of all: whatever the disk does, nothing is written from here on.
            self.standing, self.unconfirmed = Standing.FENCED, False
        if (self._kept.known_epoch, self._kept.known_nonce) != (epoch, nonce) or fences:
            fenced_by = words if self.standing is Standing.FENCED else self._kept.fenced_by
            self._keep(known_epoch=epoch, known_nonce=nonce, fenced_by=fenced_by)
        if decided and self._kept.promised_epoch == epoch:
            self._keep(promised_epoch=0, promised_nonce=b"")
        return fences

    def fence(self, reason: str) -> None:
        """Take no more writes."""
        self.standing, self.unconfirmed = Standing.FENCED, False
        self._keep(fenced_by=reason)

    def hand_over(self, epoch: int, nonce: bytes, reason: str) -> None:
        """Promise a term to the node that becomes master, and take no more writes.

        Errors: LocalProtocolError when the term is not newer than all that is known or promised, or
        too far beyond it.
        """
        if epoch <= self.promised[0]:
            raise LocalProtocolError(f"epoch {epoch} is not newer than {self.promised[0]}")
        self._check_believed(epoch)
        self.standing, self.unconfirmed = Standing.FENCED, False
        self._keep(promised_epoch=epoch, promised_nonce=nonce, fenced_by=reason)

    def doubt(self, reason: str) -> bool:
        """Another node may have begun a term; return True if this node was master until now.

        It takes no more writes until the members have said whether one did (`ha.confirmation`).
        """
        if self.standing is not Standing.MASTER:
            return False
        self.standing, self.unconfirmed, self._waited_for = Standing.FENCED, True, reason
        return True

    def confirm(self) -> bool:
        """Note that no member holds a newer epoch; return True if this node is MASTER again."""
        if not self.unconfirmed:
            return False
        self.note_whole()
        self.standing, self.unconfirmed = Standing.MASTER, False
        return True

    def wait_for(self, words: str) -> None:
        """Keep, for readers, the reason why the members have not confirmed this node yet."""
        self._waited_for = words

    def resume(self, void: bytes) -> bool:
        """Take back what was handed over under the nonce `void`, which can never begin any more.

        True if that makes this node MASTER of its epoch again. Not if a newer term has begun.
        If another term was promised meanwhile, the node is unconfirmed.
        """
        kept = self._kept
        if self.standing is not Standing.FENCED or self.unconfirmed or not self.is_own:
            return False
        if kept.known_nonce not in (b"", self.nonce):
            return False
        if kept.promised_epoch > self.epoch and kept.promised_nonce != void:
            self._keep(fenced_by="")
            self.unconfirmed, self._waited_for = True, ""
            return False
        self._keep(
            known_epoch=self.epoch,
            known_nonce=self.nonce,
            promised_epoch=0,
            promised_nonce=b"",
            fenced_by="",
        )
        self.standing = Standing.MASTER
        return True

    def become_slave(self) -> None:
        """Be a slave from now on; the epochs that this node knows stay known."""
        self.standing, self.unconfirmed = Standing.SLAVE, False

    def lacks_promises(self, promised: Collection[int], written_off: Collection[int] = ()) -> str:
        """Return why a term of this node may not begin yet; "" if it may.

        `promised` are the home ids of the other members that have promised it, `written_off` those
        that an operator gave up by force.
        """
        members = {self.home_id, *self.members}
        absent = missing_promises(members, {self.home_id, *promised}, written_off)
        if not absent:
            return ""
        names = " and ".join(f"{one} ({self.members.get(one, '')})" for one in absent)
        return (
            f"{names} have not promised this epoch, and only one member may be missing: messages "
            "that two of them acknowledged could be lost; bring one back, or use --force"
        )

    def meet_members(self, members: Mapping[int, str]) -> bool:
        """Remember other nodes of the set. True if one of them is new, or has moved.

        A full table takes only those nodes more that were master of a term in our history.
        """
        recorded = {record.home_id for record in self.history}
        merged = dict(self._kept.members)
        for home_id, address in members.items():
            if home_id == self.home_id:
                continue
            if home_id not in merged and len(merged) >= MEMBERS_MAX:
                others = [one for one in merged if one not in recorded]
                if home_id not in recorded or not others:
                    continue
                del merged[others[-1]]
            merged[home_id] = address
        if merged == self._kept.members:
            return False
        self._keep(members=merged)
        return True

    def learn_members(self, members: Mapping[int, str]) -> None:
        """Remember nodes that an operator found; what this node knows of its members stands."""
        known = set(self._kept.members.values())
        self.meet_members(
            {
                home_id: address
                for home_id, address in members.items()
                if home_id not in self._kept.members and address not in known
            }
        )

    def _has_master(self) -> bool:
        """Return whether the set has a master by the history, this node or another.

        False at the very beginning, and when the first term is another node's but the configuration
        now names this node: an operator without other means fails a set over in that way.
        """
        if self.known_epoch > _UNCONTESTED_EPOCH_MAX:
            return True
        return self.is_own

    def _check_believed(self, epoch: int) -> None:
        if doubt := self.disbelief(epoch, Word.ORDERED):
            raise LocalProtocolError(doubt)

    def _known_nonce_of(self, epoch: int) -> bytes:
        if epoch == self._kept.known_epoch:
            return self._kept.known_nonce
        return self.nonce if epoch == self.epoch else b""

    def _keep(self, **changes: Any) -> None:
        kept = attrs.evolve(self._kept, **changes)
        self._save(kept.encode())
        self._kept = kept
