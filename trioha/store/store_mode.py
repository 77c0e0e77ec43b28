"""Mode of a store: the log of a master-slave set or of a Raft group. Neither opens the other's.

A master-slave broker that appended to a member's log would write bytes of no term, and one that
followed another's history would cut what the group has committed. A member would vote with bytes
that no group has agreed on. So each leaves its own files beside the log, and looks for the other's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from trioha.errors import StoreError
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.mapped_file_queue import NAME_DIGITS
from trioha.store.store_config import StoreConfig

VOTE_STEM = "raft"
"""Stem of the two slots of a member's vote record (`dledger.vote_record`)."""
BASE_STEM = "raft.base"
"""Stem of the two slots that tell how a group's log began (`broker.raft.base`), on every member."""
EPOCHS_STEM = "epochs"
"""Stem of the two slots of a master-slave node's history (`ha.mastership`)."""


def check_mode(config: StoreConfig) -> None:
    """Is this the store of a node like us, or nobody's yet?

    Errors: StoreError with the way over in it.
    """
    root = config.root
    for path in sorted(root.glob("dledger-*")):
        raise StoreError(
            f"{path} belongs to a Java broker in DLedger mode, whose log has other records; start "
            "from a store of a master-slave broker, or with an empty one"
        )
    if not config.is_dledger:
        for stem in (VOTE_STEM, BASE_STEM):
            if has_slots(root, stem):
                raise StoreError(
                    f"{root} holds the log of a DLEDGER group (there is {stem}.0 or {stem}.1): set "
                    "enableDLegerCommitLog=true; or, to leave the group for good, run "
                    f"`trioha raft convert {root} --back`"
                )
    elif not has_slots(root, BASE_STEM) and (has_slots(root, EPOCHS_STEM) or segment_paths(config)):
        if has_slots(root, VOTE_STEM):
            raise StoreError(
                f"{root / BASE_STEM}.0 and .1 are missing, which say how the group's log in {root} "
                f"began: put one of them back, or run `trioha raft repair {root}`"
            )
        raise StoreError(
            f"{root} holds the log of a master-slave broker: to make it the first member of a "
            f"DLEDGER group, run `trioha raft convert {root}`; other members begin empty"
        )


def has_slots(root: Path, stem: str) -> bool:
    """Is one of the slots of a `TwoSlotFile` there?"""
    return any((root / f"{stem}.{number}").exists() for number in (0, 1))


def segment_paths(config: StoreConfig) -> list[Path]:
    """The files of the log, oldest first."""
    if not config.commitlog_path.is_dir():
        return []
    return sorted(
        path
        for path in config.commitlog_path.iterdir()
        if len(path.name) == NAME_DIGITS and path.name.isdecimal()
    )


def begin_files_at(config: StoreConfig, phy_offset: int, *, keep_extent: bool = False) -> None:
    """Leave an empty log that begins at `phy_offset`, whatever lies there. Durable.

    `keep_extent`: the file `extent` tells of that log already.

    Errors: StoreError.
    """
    commitlog = config.commitlog_path
    try:
        # First of all: a recovery point of what goes would make it look like damage.
        config.checkpoint_path.unlink(missing_ok=True)
        if not keep_extent:
            config.extent_path.unlink(missing_ok=True)
        fsync_directory(config.root)
        for path in segment_paths(config):
            path.unlink()
        shutil.rmtree(config.consume_queue_path, ignore_errors=True)
        shutil.rmtree(config.index_path, ignore_errors=True)
        commitlog.mkdir(parents=True, exist_ok=True)
        # Opening gives it its size.
        (commitlog / f"{phy_offset:0{NAME_DIGITS}d}").touch()
        fsync_directory(commitlog)
    except OSError as error:
        raise disk_error(error, f"cannot empty {commitlog}") from error
