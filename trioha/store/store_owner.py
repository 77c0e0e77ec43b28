"""The file `broker-name`: of which broker the messages in a store are.

A store tells nothing of its broker's name. One that is opened under another name, by a slip in a
path, would offer its messages and its consumers' progress as another broker's. So the first broker
that opens a store leaves its name there. Java brokers do not look at the file.
"""

from __future__ import annotations

import errno
from pathlib import Path

from trioha.errors import StoreError
from trioha.store.mapped_file import disk_error

_FILE = "broker-name"


def claim_store(root: Path, broker_name: str, *, adopt: bool = False) -> None:
    """Note that the store is this broker's; with `adopt`, also where it was another's.

    Errors: StoreError if it is another's, with the way on; also if the disk fails.
    """
    path = root / _FILE
    try:
        owner = path.read_text().strip() if path.exists() else ""
        if owner == broker_name:
            return
        if owner and not adopt:
            raise StoreError(
                f"{root} is the store of broker {owner}, not of {broker_name}: choose another "
                f"store or brokerName={owner}; or, if {owner} is to be called {broker_name} from "
                "now on, start once with --adopt"
            )
        root.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{broker_name}\n")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return  # the next start notes it
        raise disk_error(error, f"cannot use {path}") from error
