"""Repair of a member whose store is damaged: set its files aside and give up its vote.

Theory of operation. A log that is damaged before its durable end lacks bytes that this member
acknowledged. A vote record that cannot be read may hold a vote. Neither may be guessed (Raft thesis
3.8). So the repair moves all files into a folder ``repair-<wall_ms>`` and leaves an empty store
whose vote record is *impaired*: the leader fills it, and it never votes under that id again. A
member that shall vote again needs a new id. With `forget` the repair moves the vote record too,
which leaves an empty store like that of any new member.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgpack

from trioha.broker.raft.base import RaftBase, decode_base, encode_base
from trioha.errors import StoreError
from trioha.store.inspect import DamagedStretch, Progress, VerifyReport, verify_store
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.store_config import StoreConfig
from trioha.store.store_lock import StoreLock
from trioha.store.store_mode import BASE_STEM, VOTE_STEM, has_slots, segment_paths
from trioha.store.two_slot_file import TwoSlotFile

_DAMAGE_TOLD_MAX = 20


@attrs.frozen(kw_only=True)
class Findings:
    """Result of the examination of a stopped member's store."""

    root: Path
    group: str
    """Name of the group; "" if the vote record does not tell."""
    member_id: str
    is_impaired: bool
    damage: tuple[str, ...]
    """One sentence for each fault; empty for a sound store."""
    log_bytes: int


def examine(config: StoreConfig, progress: Progress | None = None) -> Findings:
    """Examine a stopped member's store; reads its whole log.

    Errors: StoreError if it is no member's store.
    """
    root = config.root
    if not has_slots(root, VOTE_STEM) and not has_slots(root, BASE_STEM):
        raise StoreError(f"{root} belongs to no DLEDGER group; nothing has to be repaired")
    damage: list[str] = []
    group, member_id, is_impaired = _owner(root, damage)
    try:
        base = TwoSlotFile(root / BASE_STEM).payload
        if base is not None:
            decode_base(base)
    except StoreError as error:
        damage.append(str(error))
    segments = segment_paths(config)
    if segments:
        report = verify_store(root, config.commitlog_path, progress=progress)
        damage += [
            f"offsets {one.begin_offset} to {one.end_offset} of the log: {one.reason}"
            for one in _before_records(report)[:_DAMAGE_TOLD_MAX]
        ]
    return Findings(
        root=root,
        group=group,
        member_id=member_id,
        is_impaired=is_impaired,
        damage=tuple(damage),
        log_bytes=sum(path.stat().st_size for path in segments),
    )


def give_up_vote(config: StoreConfig, wall_ms: int, *, forget: bool) -> Path:
    """Move the log and all files derived from it into a folder, and return that folder.

    The vote record is marked as impaired, or moved too with `forget`.
    Errors: StoreError; files that were not moved yet stay, and a second call moves the rest.
    """
    root = config.root
    lock = StoreLock(config.lock_path)
    try:
        aside = root / f"repair-{wall_ms}"
        impaired = None if forget else _impaired_record(root)
        aside.mkdir()
        # First: after a crash in one of the next steps the member does not vote any more.
        if impaired is None:
            _move(root, aside, VOTE_STEM)
        else:
            TwoSlotFile(root / VOTE_STEM).save(impaired)
        for path in (
            config.checkpoint_path,
            config.extent_path,
            config.abort_path,
            config.consume_queue_path,
            config.index_path,
            config.commitlog_path,
        ):
            if path.exists():
                path.rename(aside / path.name)
        _move(root, aside, BASE_STEM)
        # The file marks the empty store as a member's.
        TwoSlotFile(root / BASE_STEM).save(encode_base(RaftBase()))
        for directory in (aside, root):
            fsync_directory(directory)
    except OSError as error:
        raise disk_error(error, f"cannot set the log in {root} aside") from error
    finally:
        lock.release()
    return aside


def _before_records(report: VerifyReport) -> list[DamagedStretch]:
    """Return the damage that records follow; the rest is free room, or a torn end that is cut."""
    damage, end = list(report.damage), report.end_offset
    while damage and damage[-1].end_offset == end:
        end = damage.pop().begin_offset
    return damage


def _owner(root: Path, damage: list[str]) -> tuple[str, str, bool]:
    """Return group, member and whether it is impaired, from a vote record of any owner."""
    try:
        payload = TwoSlotFile(root / VOTE_STEM).payload
    except StoreError as error:
        damage.append(str(error))
        return "", "", False
    if payload is None:
        return "", "", False
    fields = _fields(payload)
    if fields is None:
        damage.append("the vote record `raft` cannot be read by this version")
        return "", "", False
    promise = fields[4]
    return str(fields[2]), str(fields[3]), bool(promise and promise[2])


def _impaired_record(root: Path) -> bytes | None:
    """Return the vote record marked as impaired; None if none can be read."""
    try:
        payload = TwoSlotFile(root / VOTE_STEM).payload
    except StoreError:
        return None
    fields = None if payload is None else _fields(payload)
    if fields is None:
        return None
    term, voted_for = (fields[4][0], fields[4][1]) if fields[4] else (0, "")
    # The log is gone, so the commit begins at 0.
    fields[4] = [term, voted_for, True, 0]
    packed: bytes = msgpack.packb(fields)
    return packed


def _fields(payload: bytes) -> list[Any] | None:
    try:
        fields: Any = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException):
        return None
    if type(fields) is not list or len(fields) != 6:
        return None
    promise = fields[4]
    if promise is not None and (type(promise) is not list or len(promise) != 4):
        return None
    return fields


def _move(root: Path, aside: Path, stem: str) -> None:
    for number in (0, 1):
        path = root / f"{stem}.{number}"
        if path.exists():
            path.rename(aside / path.name)
