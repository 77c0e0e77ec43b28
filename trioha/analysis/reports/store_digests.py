"""Differences between stores, found without sorting whole stores against each other.

Theory of operation. Replication copies the log byte by byte (HAService), so records at one
phy_offset must be equal in every byte. The scan makes a CRC-32 of each record's bytes: its
`digest`. Each store's digests are summed up per block of 1 MiB of phy_offset and topic: their
number, their sum and the sum of their squares modulo a prime. Only these sums meet. Where they
differ, and in the blocks at the ends that a store covers but partly, the digests themselves are
compared, record by record. A CRC-32 sees every change of up to 32 bits in a row; it takes one pair
in four billion of records that differ at random for equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from trioha.analysis.engine import Engine, bucket, literal, literals

BLOCK_BYTES = 1 << 20
DIFFERING_BLOCKS_MAX = 2000
"""Limit of differing blocks; beyond it, everything from the first of them on is compared."""
_RANGES_MAX = 64
_SCANS_MAX = 8
_PRIME = (1 << 31) - 1  # so that a product of two remainders fits 63 bits


@attrs.frozen
class Extent:
    """Range of a store's records within the window."""

    store: str
    begin: int
    end: int
    """Offset behind its last record."""
    messages: int
    first_ms: int
    last_ms: int


@attrs.frozen
class Differences:
    """Differences of two stores, within the range that both cover."""

    count: int
    """Offsets at which only one has a record, or both have different ones."""
    only_a: int
    only_b: int
    first_offset: int
    last_offset: int


def extents(engine: Engine) -> dict[str, Extent]:
    """Return the extent of each store; stores without records in the window are missing."""
    rows = engine.query(
        "SELECT store, MIN(phy_offset_min) AS begin_offset, MAX(phy_offset_max) AS last_offset, "
        "SUM(messages) AS messages, MIN(store_ms_min) AS first_ms, MAX(store_ms_max) AS last_ms "
        "FROM commitlog_stats GROUP BY store",
    )
    if not rows:
        return {}
    # The statistics lack the size of the last record; the bound spares the rest of the scan.
    lowest = min(row["last_offset"] for row in rows)
    ends = {
        row["store"]: row["end_offset"]
        for row in engine.query(
            "SELECT store, MAX(phy_offset + size) AS end_offset FROM commitlog "
            f"WHERE phy_offset >= {lowest} GROUP BY store",
        )
    }
    return {
        row["store"]: Extent(
            row["store"],
            row["begin_offset"],
            ends[row["store"]],
            row["messages"],
            row["first_ms"],
            row["last_ms"],
        )
        for row in rows
    }


def differing_blocks(engine: Engine, found: Sequence[Extent]) -> list[dict[str, Any]]:
    """Blocks that not all stores covering them hold alike: begin and mask of stores, one row per
    variant. Bit i of a mask is `found[i]`. At most `DIFFERING_BLOCKS_MAX` + 1 rows, in order.
    """
    bits = " ".join(
        f"WHEN {literal(each.store)} THEN {1 << place}" for place, each in enumerate(found)
    )
    covering = " + ".join(
        f"CASE WHEN block >= {each.begin} AND block + {BLOCK_BYTES} <= {each.end} "
        f"THEN {1 << place} ELSE 0 END"
        for place, each in enumerate(found)
    )
    square = f"((digest % {_PRIME}) * (digest % {_PRIME}) % {_PRIME})"
    return engine.query(
        f"WITH digests AS (SELECT store, {bucket('phy_offset', BLOCK_BYTES)} AS block, topic, "
        f"COUNT(*) AS messages, SUM(digest) AS sum_0, SUM({square}) AS sum_1 FROM commitlog_full "
        f"GROUP BY store, {bucket('phy_offset', BLOCK_BYTES)}, topic), "
        f"variants AS (SELECT block, topic, SUM(CASE store {bits} ELSE 0 END) AS mask "
        "FROM digests GROUP BY block, topic, messages, sum_0, sum_1), "
        f"masked AS (SELECT block, mask, {covering} AS covering FROM variants) "
        "SELECT DISTINCT block, mask FROM masked "
        "WHERE (mask & covering) <> 0 AND (mask & covering) <> covering "
        f"ORDER BY block, mask LIMIT {DIFFERING_BLOCKS_MAX + 1}",
    )


def ranges_to_compare(
    a: Extent, b: Extent, masks: list[dict[str, Any]], bit_a: int, bit_b: int
) -> list[tuple[int, int]]:
    """Ranges of phy_offset in which records of two stores must be looked at."""
    begin, end = max(a.begin, b.begin), min(a.end, b.end)
    inner_begin = -(-begin // BLOCK_BYTES) * BLOCK_BYTES
    inner_end = end // BLOCK_BYTES * BLOCK_BYTES
    if inner_begin >= inner_end:
        return [(begin, end)]
    blocks = sorted(
        {
            row["block"]
            for row in masks
            if bool(row["mask"] & bit_a) != bool(row["mask"] & bit_b)
            and inner_begin <= row["block"] < inner_end
        }
    )
    ranges = [(begin, inner_begin)]
    for block in blocks:
        if ranges[-1][1] == block:
            ranges[-1] = (ranges[-1][0], block + BLOCK_BYTES)
        else:
            ranges.append((block, block + BLOCK_BYTES))
    if blocks and (len(masks) > DIFFERING_BLOCKS_MAX or len(ranges) > _RANGES_MAX):
        ranges = [(begin, inner_begin), (blocks[0], inner_end)]
    elif not blocks and len(masks) > DIFFERING_BLOCKS_MAX:
        ranges = [(begin, inner_begin), (masks[-1]["block"], inner_end)]
    ranges.append((inner_end, end))
    return [(low, high) for low, high in ranges if low < high]


def compare(
    engine: Engine, a: str, b: str, ranges: Sequence[tuple[int, int]]
) -> Differences | None:
    """Count what differs within the ranges; None when nothing does."""
    rows = engine.query(
        "SELECT COUNT(DISTINCT phy_offset) AS found, "
        f"SUM(CASE WHEN store = {literal(a)} THEN 1 ELSE 0 END) AS of_a, "
        f"SUM(CASE WHEN store = {literal(b)} THEN 1 ELSE 0 END) AS of_b, "
        "MIN(phy_offset) AS first_offset, MAX(phy_offset) AS last_offset "
        f"FROM ({_unequal(a, b, ranges)}) AS t",
    )
    row = rows[0]
    if not row["found"]:
        return None
    both = row["of_a"] + row["of_b"] - row["found"]
    return Differences(
        row["found"],
        row["of_a"] - both,
        row["of_b"] - both,
        row["first_offset"],
        row["last_offset"],
    )


def first_unequal(
    engine: Engine, a: str, b: str, ranges: Sequence[tuple[int, int]], limit: int
) -> list[int]:
    """The first offsets at which only one of two stores has a record, or both different ones."""
    rows = engine.query(
        f"SELECT DISTINCT phy_offset FROM ({_unequal(a, b, ranges)}) AS t "
        f"ORDER BY phy_offset LIMIT {limit}",
    )
    return [row["phy_offset"] for row in rows]


def _unequal(a: str, b: str, ranges: Sequence[tuple[int, int]]) -> str:
    stores = literals((a, b))
    if len(ranges) > _SCANS_MAX:
        within = [
            " OR ".join(f"(phy_offset >= {low} AND phy_offset < {high})" for low, high in ranges)
        ]
    else:
        # One scan per range: a source can use bounds to skip what lies outside, but no OR.
        within = [f"phy_offset >= {low} AND phy_offset < {high}" for low, high in ranges]
    rows = " UNION ALL ".join(
        f"SELECT store, phy_offset, digest FROM commitlog_full WHERE store IN {stores} AND ({each})"
        for each in within
    )
    return (
        f"SELECT MIN(store) AS store, phy_offset, digest FROM ({rows}) AS t "
        "GROUP BY phy_offset, digest HAVING COUNT(*) = 1"
    )
