"""Seeds that are run again in every run: `seeds.txt`, one a line.

    KIND vGENERATOR SEED  # what it found

A seed means a history only together with the generator that draws it. When a generator changes, its
kept seeds draw other histories, so each of them is an error until it is replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

_KEPT = Path(__file__).with_name("seeds.txt")
_LINE = re.compile(r"(?P<kind>\w+) v(?P<generator>\d+) (?P<seed>\d+) +# (?P<reason>\S.*)")


class KeptSeedError(Exception):
    """A line of the file that proves nothing. The text says which, and what to do."""


def kept_seeds(kind: str, generator: int) -> list[int]:
    """Return the kept seeds of one kind of simulation, whose generator is `generator` now.

    Errors: KeptSeedError.
    """
    return parse_seeds(_KEPT.read_text(), kind, generator)


def parse_seeds(text: str, kind: str, generator: int) -> list[int]:
    """Return the seeds that a file's text keeps; see `kept_seeds`. Errors: KeptSeedError."""
    found: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise KeptSeedError(
                f"seeds.txt:{number}: {line!r} is not KIND vGENERATOR SEED  # what it found"
            )
        if match["kind"] != kind:
            continue
        seed = int(match["seed"])
        if int(match["generator"]) != generator:
            raise KeptSeedError(
                f"seeds.txt:{number}: {kind} seed {seed} was kept for generator "
                f"{match['generator']}, and the generator is {generator}: the seed draws another "
                f"history now. Put back the fault that it found ({match['reason']}), search for a "
                "seed that fails, and write that one here; or delete the line and say why in the "
                "commit"
            )
        if seed in found:
            raise KeptSeedError(f"seeds.txt:{number}: {kind} seed {seed} is kept twice")
        found.append(seed)
    if not found:
        raise KeptSeedError(f"seeds.txt keeps no seed of kind {kind}")
    return found
