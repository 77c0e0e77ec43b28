"""Seeds of campaigns: another one for each commit, the same for every run of that commit."""

from __future__ import annotations

import os
import zlib

from support.suite.sizes import commit


def drawn_seed(what: str) -> int:
    """Return and print the seed of one campaign.

    TEST_SEED decides if it is set; else the commit does, together with the campaign's name, so
    that two campaigns of a run do not draw the same.
    """
    given = os.environ.get("TEST_SEED")
    seed = int(given) if given else zlib.crc32(f"{commit()} {what}".encode())
    print(f"{what}: seed {seed}; the same again with TEST_SEED={seed}")
    return seed
