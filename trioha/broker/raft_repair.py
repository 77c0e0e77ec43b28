"""What to do with a member whose store is damaged: keep its files, give up its vote.

A log that is damaged before its durable end has forgotten what this member acknowledged, and a vote
record that cannot be read may have forgotten a promise. Neither may be guessed at. So all of it
goes into a folder ``repair-<wall_ms>``, and what is left is an empty store whose vote record is
*impaired*: it is filled from the leader, and never votes under that id again. To be a voter anew
the member needs an id that has promised nothing: with `forget` the vote record goes as well, which
leaves the empty store that whoever joins a group begins with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgpack

from trioha.broker.raft_base import RaftBase, decode_base, encode_base
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
    """What a member's store looks like from outside."""

    root: Path
    group: str
    """"" where the vote record does not tell."""
    member_id: str
    is_impaired: bool
    damage: tuple[str, ...]
    """A sentence each; none for a store that is sound."""
    log_bytes: int


def examine(config: StoreConfig, progress: Progress | None = None) -> Findings:
    """Read a stopped member's store; may take as long as reading its log takes.

    Errors: StoreError when it is no member's store.
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
    """Set the log and all that was made of it aside, and mark the vote record, or set that aside
    as well; returns the folder.

    Errors: StoreError; what was not moved yet is where it was, and doing it again goes on.
    """
    root = config.root
    lock = StoreLock(config.lock_path)
    try:
        aside = root / f"repair-{wall_ms}"
        impaired = None if forget else _impaired_record(root)
        aside.mkdir()
        # First of all: whatever happens now, it does not vote any more.
        if impaired is None:
            _move(root, aside, VOTE_STEM)
        else:
            TwoSlotFile(root / VOTE_STEM).save(impaired)
        for path in (
            *(config.checkpoint_path, config.extent_path, config.abort_path),
            *(config.consume_queue_path, config.index_path, config.commitlog_path),
        ):
            if path.exists():
                path.rename(aside / path.name)
        _move(root, aside, BASE_STEM)
        # Still a member's store, with nothing in it.
        TwoSlotFile(root / BASE_STEM).save(encode_base(RaftBase()))
        for directory in (aside, root):
            fsync_directory(directory)
    except OSError as error:
        raise disk_error(error, f"cannot set the log in {root} aside") from error
    finally:
        lock.release()
    return aside


def _before_records(report: VerifyReport) -> list[DamagedStretch]:
    """Without what no record follows: room for more, or a tail that was torn and is cut."""
    damage, end = list(report.damage), report.end_offset
    while damage and damage[-1].end_offset == end:
        end = damage.pop().begin_offset
    return damage


def _owner(root: Path, damage: list[str]) -> tuple[str, str, bool]:
    """Group, member, and whether it votes no more, of a vote record whose owner is not known."""
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
    """The vote record with its vote given up; None where there is none that can be read."""
    try:
        payload = TwoSlotFile(root / VOTE_STEM).payload
    except StoreError:
        return None
    fields = None if payload is None else _fields(payload)
    if fields is None:
        return None
    term, voted_for = (fields[4][0], fields[4][1]) if fields[4] else (0, "")
    # Nothing of the log is left, so nothing of it is known to be committed.
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
