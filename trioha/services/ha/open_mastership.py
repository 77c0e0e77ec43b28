"""A node's mastership, read from the file `epochs` in its store, and the role that follows."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import StoreError
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.mastership import FILE_NAME, Mastership, Standing
from trioha.journal import EventSink
from trioha.services.loop.host import random_source
from trioha.store.store_config import StoreConfig
from trioha.store.two_slot_file import TwoSlotFile

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def open_mastership(
    config: BrokerConfig,
    log_end: int,
    events: EventSink,
    wall_ms: int,
    *,
    clean: bool,
    is_whole: bool = True,
) -> Mastership:
    """Read this node's mastership; its log up to `log_end` is on disk. Blocks for fsyncs.

    `clean`: the store was closed in order. `is_whole`: an operator has accepted no loss of its log
    since it was last filled.
    Errors: StoreError when the file cannot be read or written, and when the log ends before our own
    term began: files of it are missing.
    """
    file = TwoSlotFile(Path(os.path.expanduser(config.store_path_root_dir)) / FILE_NAME)
    mastership = Mastership(
        config.broker_id, file.save, file.payload, boot=_boot() if is_whole else b""
    )
    newest = mastership.newest
    if is_whole and newest is not None and mastership.is_own and newest.start_offset > log_end:
        store = StoreConfig.of(config)
        raise StoreError(
            f"{store.commitlog_path} ends at {log_end}, but by {store.root / FILE_NAME}.0 and .1 "
            f"this node became master at offset {newest.start_offset}: mount its disk or put its "
            f"files back; or, {store.accept_cure}"
        )
    known = mastership.epoch
    mastership.start(
        configured_master=config.broker_role is not BrokerRole.SLAVE,
        log_end=log_end,
        nonce=random_source().randbytes(NONCE_BYTES),
        sync=config.broker_role is BrokerRole.SYNC_MASTER,
        wall_ms=wall_ms,
        clean=clean and is_whole,
    )
    if mastership.epoch > known:
        events.event(
            "epoch_began",
            epoch=mastership.epoch,
            start_offset=log_end,
            sync=config.broker_role is BrokerRole.SYNC_MASTER,
        )
    if mastership.standing is Standing.FENCED and not mastership.unconfirmed:
        events.event("fenced", epoch=mastership.known_epoch, reason=mastership.fenced_by)
    return mastership


def is_of_a_set(root: Path) -> bool:
    """Return whether the store tells of other nodes that may hold its log.

    Errors: StoreError when its file cannot be read.
    """
    saved = TwoSlotFile(root / FILE_NAME).payload
    mastership = Mastership(0, _never, saved)
    return bool(mastership.members) or (mastership.newest is not None and not mastership.is_own)


def _never(data: bytes) -> None:
    raise AssertionError("only read")


def _boot() -> bytes:
    """Return the boot id of this machine, the same in its containers; b"" if unknown."""
    try:
        return _BOOT_ID.read_bytes().strip()
    except OSError:
        return b""


def config_of_role(config: BrokerConfig, mastership: Mastership) -> BrokerConfig:
    """Return the configuration with the role and the brokerId that the node has by its history."""
    role = config.broker_role
    if mastership.standing is not Standing.MASTER:
        role = BrokerRole.SLAVE
    elif role is BrokerRole.SLAVE:
        newest = mastership.newest
        sync = newest is not None and newest.sync
        role = BrokerRole.SYNC_MASTER if sync else BrokerRole.ASYNC_MASTER
    return attrs.evolve(config, broker_role=role, broker_id=mastership.broker_id)
