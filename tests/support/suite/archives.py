"""Archives that tests unpack."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar archive. Python before 3.11.4 has no filter against hostile members."""
    with tarfile.open(archive) as members:
        members.extraction_filter = getattr(tarfile, "data_filter", None)
        members.extractall(into)
