"""Settings that a store needs, in its own units."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs

from trioha.config import DELAY_LEVELS, BrokerConfig
from trioha.config.settings import FlushDiskType
from trioha.errors import ConfigError

QUEUE_ENTRY_BYTES: Final = 20
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """``"1s 5s 1m"`` -> milliseconds of level 1, 2, 3.

    Errors: ConfigError when a word is not a number and one of s, m, h, d.
    """
    levels = []
    for word in text.split():
        unit = _UNIT_MS.get(word[-1])
        if unit is None or not word[:-1].isdecimal():
            raise ConfigError(f"messageDelayLevel: {word!r} is not like 10s, 5m, 2h or 1d")
        levels.append(int(word[:-1]) * unit)
    return tuple(levels)


def parse_delete_hours(text: str) -> frozenset[int]:
    """``"04;16"`` -> hours of the day.

    Errors: ConfigError when one is not 0..23.
    """
    hours = set()
    for word in text.split(";"):
        if not word.strip():
            continue
        if not word.strip().isdecimal() or int(word) > 23:
            raise ConfigError(f"deleteWhen: {word!r} is not an hour of the day, 00 to 23")
        hours.add(int(word))
    return frozenset(hours)


def physical_ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@attrs.frozen(kw_only=True)
class StoreConfig:
    """Sizes in bytes, times in milliseconds, ratios 0..1."""

    root: Path
    commitlog_path: Path
    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    """A multiple of 20: whole entries."""
    body_bytes_max: int = 4 << 20
    append_bytes_max: int = 1 << 62
    """Limit on the records of one put. Also bounds the blank of a put that found no room."""
    is_dledger: bool = False
    """The log is a Raft group's: another cure for damage, and no other mode may open the store."""
    check_crc_on_recover: bool = True
    is_synced_for_puts: bool = False
    """Puts wait for the disk, so the log is brought there with every few records."""

    delete_hours: frozenset[int] = frozenset({4})
    reserved_ms: int = 72 * 3_600_000
    disk_max_used_ratio: float = 0.75
    disk_warning_ratio: float = 0.90

    index_enable: bool = True
    index_safe: bool = False
    hash_slot_count: int = 5_000_000
    index_entry_count: int = 20_000_000

    memory_window_bytes: int = 1 << 30
    """Distance behind the end of the log within which a record counts as cached: the 40 % rule."""
    recent_bytes: int = 64 << 20
    """End of the log that counts as in the page cache: it was written last."""
    memory_transfer_bytes_max: int = 262144
    memory_transfer_count_max: int = 32
    disk_transfer_bytes_max: int = 65536
    disk_transfer_count_max: int = 8

    delay_levels_ms: tuple[int, ...] = attrs.field(factory=lambda: parse_delay_levels(DELAY_LEVELS))

    log_chunk_bytes: int = 16 << 20
    """Reserved on disk at a time: about 50 µs of posix_fallocate each."""
    queue_chunk_bytes: int = 64 << 10
    index_chunk_bytes: int = 1 << 20
    index_pending_max: int = 65536
    """Messages whose index entries wait in memory; beyond it the log is read again instead."""

    @classmethod
    def of(cls, config: BrokerConfig) -> StoreConfig:
        root = Path(config.store_path_root_dir).expanduser()
        commitlog = config.store_path_commit_log
        # Rounded up to whole entries, as in Java.
        entries = -(-config.mapped_file_size_consume_queue // QUEUE_ENTRY_BYTES)
        ratio = config.access_message_in_memory_max_ratio / 100
        return cls(
            root=root,
            commitlog_path=Path(commitlog).expanduser() if commitlog else root / "commitlog",
            segment_bytes=config.mapped_file_size_commit_log,
            queue_file_bytes=entries * QUEUE_ENTRY_BYTES,
            body_bytes_max=config.max_message_size,
            check_crc_on_recover=config.check_crc_on_recover,
            is_synced_for_puts=config.flush_disk_type is FlushDiskType.SYNC_FLUSH
            or (config.enable_d_leger_commit_log and not config.d_leger_replicated_in_memory),
            delete_hours=parse_delete_hours(config.delete_when),
            reserved_ms=config.file_reserved_time * 3_600_000,
            disk_max_used_ratio=config.disk_max_used_space_ratio / 100,
            disk_warning_ratio=config.disk_space_warning_level_ratio / 100,
            index_enable=config.message_index_enable,
            index_safe=config.message_index_safe,
            hash_slot_count=config.max_hash_slot_num,
            index_entry_count=config.max_index_num,
            memory_window_bytes=int(physical_ram_bytes() * ratio),
            recent_bytes=min(256 << 20, physical_ram_bytes() // 16),
            memory_transfer_bytes_max=config.max_transfer_bytes_on_message_in_memory,
            memory_transfer_count_max=config.max_transfer_count_on_message_in_memory,
            disk_transfer_bytes_max=config.max_transfer_bytes_on_message_in_disk,
            disk_transfer_count_max=config.max_transfer_count_on_message_in_disk,
            delay_levels_ms=parse_delay_levels(config.message_delay_level),
        )

    @property
    def accept_cure(self) -> str:
        """The command that gives up what is missing, for the end of an error's text."""
        if self.is_dledger:
            return f"run `trioha raft repair {self.root}`"
        return f"to give up what is missing, run `trioha log accept-loss {self.root}`"

    @property
    def consume_queue_path(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        return self.root / "index"

    @property
    def checkpoint_path(self) -> Path:
        return self.root / "checkpoint"

    @property
    def extent_path(self) -> Path:
        return self.root / "extent"

    @property
    def abort_path(self) -> Path:
        return self.root / "abort"

    @property
    def lock_path(self) -> Path:
        return self.root / "lock"
