"""Makes a master-slave store the first of a DLEDGER group, and a member's store a plain one again.

No conversion rewrites a byte of the log. On the way in, the tables beside the log (``config/``)
become a snapshot at its end, since in a group everything comes from the log. The bytes before it
belong to one term, newer than every epoch of the set. On the way out, the tables are folded from
the log and written beside it, and an epoch begins that is newer than every term: name servers know
terms as epochs, and route to the node that claims the newest.

The file `raft.base` makes a store a member's. It is written last on the way in and moved away last
on the way out: a crash before that leaves the store as it was.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import attrs

from trioha.broker.core import BrokerCore
from trioha.broker.raft.base import RaftBase, encode_base
from trioha.broker.raft.log import RaftLog
from trioha.broker.raft.metadata import RaftMetadata, RaftReplicas
from trioha.broker.raft.store import base_file, open_raft_log
from trioha.config import BrokerConfig, BrokerRole
from trioha.dledger.membership import Configuration
from trioha.dledger.term_table import TermTable
from trioha.errors import StoreError
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.mastership import Mastership
from trioha.journal import NullSink
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.node.metadata_files import MetadataFiles
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.store.store_mode import BASE_STEM, EPOCHS_STEM, VOTE_STEM, has_slots, segment_paths
from trioha.store.two_slot_file import TwoSlotFile

_DISPATCH_BYTES = 4 << 20
_NOWHERE = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Conversion:
    """The store as it was found, and the result of the conversion."""

    root: Path
    begin_offset: int
    end_offset: int
    """End of the log as it was found."""
    term: int
    """In: term of all bytes of the old log. Out: newest term in the log."""
    epoch: int
    """In: newest epoch of the set. Out: the epoch that begins."""
    is_done: bool
    set_aside: Path | None = None
    """Out: folder to which the group's files were moved."""


async def convert_to_group(config: BrokerConfig, *, dry_run: bool) -> Conversion:
    """Make the store of a stopped master the first of a group.

    Errors: StoreError when it is no master's store, or in use; the store is as it was then.
    """
    config = _with_its_segments(config)
    store_config = StoreConfig.of(config)
    root = store_config.root
    if has_slots(root, BASE_STEM) or has_slots(root, VOTE_STEM):
        raise StoreError(f"{root} belongs to a DLEDGER group already; nothing has to be converted")
    if not segment_paths(store_config):
        raise StoreError(f"{root} holds no log; a new member of a group begins with an empty store")
    clock = Clock()
    mastership = Mastership(0, _never, TwoSlotFile(root / EPOCHS_STEM).payload)
    if mastership.history and not mastership.is_own:
        raise StoreError(
            f"{root} is the store of a slave in epoch {mastership.epoch}: its master may hold "
            "more; convert the master's store, and let this member begin with an empty one"
        )
    term = max(1, mastership.known_epoch)
    store = await run_blocking(
        lambda: FileMessageStore.open(store_config, NullSink(), wall_ms=clock.wall_ms())
    )
    try:
        _dispatch_all(store)
        found = Conversion(
            root=root,
            begin_offset=store.min_phy_offset,
            end_offset=store.max_phy_offset,
            term=term,
            epoch=mastership.known_epoch,
            is_done=not dry_run,
        )
        if dry_run:
            return found
        core, _, raft = _tables(config, store, clock)
        raft.begin_anew()
        core.become(BrokerRole.SYNC_MASTER, 0)
        raft.lead()
        await run_blocking(store.flush)
        end = store.max_phy_offset
    finally:
        store.close()
    terms = TermTable(((term, found.begin_offset),))
    base = RaftBase(from_offset=end, terms=terms)
    base_file(store_config).save(encode_base(base))
    return found


async def convert_to_plain(config: BrokerConfig, *, dry_run: bool) -> Conversion:
    """Make the store of a stopped member a master's again.

    Errors: StoreError when it is no member's store, or in use; the store is as it was then.
    """
    config = _with_its_segments(config)
    store_config = StoreConfig.of(config)
    root = store_config.root
    if not has_slots(root, BASE_STEM):
        raise StoreError(f"{root} belongs to no DLEDGER group; nothing has to be converted")
    clock = Clock()
    wall_ms = clock.wall_ms()
    async with _open_member(store_config, clock) as ledger:
        store = ledger.store
        found_log = ledger.recover(Configuration(()))
        _dispatch_all(store)
        term = found_log.terms.last_term
        mastership = Mastership(0, _never, TwoSlotFile(root / EPOCHS_STEM).payload)
        epoch = max(term, mastership.known_epoch) + 1
        aside = root / f"raft-left-{wall_ms}"
        found = Conversion(
            root=root,
            begin_offset=store.min_phy_offset,
            end_offset=store.max_phy_offset,
            term=term,
            epoch=epoch,
            is_done=not dry_run,
            set_aside=aside,
        )
        if dry_run:
            return found
        core, files, raft = _tables(config, store, clock)
        raft.on_commit(store.max_phy_offset)
        for table in (core.topics, core.groups, core.offsets, core.schedule):
            table.dirty = True
        await files.persist.save_all()
        await run_blocking(store.flush)
    _leave_group(root, aside, found.end_offset, epoch, wall_ms)
    return found


def _tables(
    config: BrokerConfig, store: FileMessageStore, clock: Clock
) -> tuple[BrokerCore, MetadataFiles, RaftMetadata]:
    """A broker's tables without a broker, as their files say; `raft` knows what the log says."""
    replicas = RaftReplicas()
    # No port is opened: the address goes into records that no client reads by it.
    host = config.broker_ip1 or _NOWHERE
    core = BrokerCore(
        attrs.evolve(config, broker_role=BrokerRole.SLAVE, broker_ip1=host),
        store,
        replicas,
        NullSink(),
        Random(0),
        clock.instant(),
        lambda _: {},
        write_metadata=lambda position, body: files.keep(position, body),
        on_metadata_body=lambda position, body: raft.append(position, body),
        delete_queues=lambda topic: raft.delete_queues(topic),
    )
    files = MetadataFiles(config, core, NullSink(), lambda _: None, {})
    files.load()
    raft = RaftMetadata(
        config, core.metadata, replicas, store, wall_ms=clock.wall_ms, on_failed=_fail
    )
    return core, files, raft


def _leave_group(root: Path, aside: Path, end: int, epoch: int, wall_ms: int) -> None:
    """Write a new history of mastership, and move the group's files away, `raft.base` last."""
    try:
        aside.mkdir()
        for stem in (EPOCHS_STEM, VOTE_STEM):
            _move(root, aside, stem)
        history = TwoSlotFile(root / EPOCHS_STEM)
        Mastership(0, history.save).begin_term(
            epoch, end, nonce=os.urandom(NONCE_BYTES), sync=False, wall_ms=wall_ms
        )
        _move(root, aside, BASE_STEM)
        fsync_directory(aside)
        fsync_directory(root)
    except OSError as error:
        raise disk_error(error, f"cannot set the group's files in {root} aside") from error


def _move(root: Path, aside: Path, stem: str) -> None:
    for number in (0, 1):
        path = root / f"{stem}.{number}"
        if path.exists():
            path.rename(aside / path.name)


@asynccontextmanager
async def _open_member(config: StoreConfig, clock: Clock) -> AsyncIterator[RaftLog]:
    ledger = await run_blocking(lambda: open_raft_log(config, NullSink(), wall_ms=clock.wall_ms()))
    try:
        yield ledger
    finally:
        ledger.store.close()


def _dispatch_all(store: FileMessageStore) -> None:
    while store.dispatch(_DISPATCH_BYTES):
        pass


def _with_its_segments(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with the size that the log's segments have."""
    sizes = [path.stat().st_size for path in segment_paths(StoreConfig.of(config))]
    return attrs.evolve(config, mapped_file_size_commit_log=max(sizes)) if any(sizes) else config


def _never(_: bytes) -> None:
    raise AssertionError("this history is only read")


def _fail(reason: str) -> None:
    raise StoreError(f"the tables do not fit into the log: {reason}; make room on that disk")
