"""Stock clients and Java peers, fetched and built before the tests need them.

`python -m support.peers.fetch` from tests/ says which cannot be had, and fails then. Without it the
first test that needs one pays for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from support.peers.clients import Kind, require_client
from support.peers.java import POMS, compiled_classes, require_java
from support.suite.skips import Unavailable

CLIENTS: tuple[Kind, ...] = ("cpp", "js", "java", "go")


def main() -> int:
    """Return 0 when all are here."""
    wanted: dict[str, Callable[[], object]] = {
        **{f"the {kind} client": partial(require_client, kind) for kind in CLIENTS},
        **{f"Java peers of RocketMQ {name}": partial(require_java, name) for name in POMS},
        "drivers of the Java peers": compiled_classes,
    }
    missing = 0
    for what, require in wanted.items():
        try:
            require()
        except Unavailable as error:
            print(f"cannot be had here: {what}: {error}", flush=True)
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
