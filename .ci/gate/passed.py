"""Which parts of a release have passed, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

from gate.running import ROOT


def state_of_checkout() -> str:
    """Return a name for the sources as they are: the commit, and what differs from it."""
    head = _git("rev-parse", "HEAD").strip()
    changed = _git("diff", "HEAD", "--", ".", ":!.ci/timings", ":!docs/testing.md")
    changed += _git("ls-files", "--others", "--exclude-standard")
    if not changed:
        return head
    return f"{head[:16]}-{sha256(changed.encode()).hexdigest()[:16]}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


class PassedParts:
    """The parts that passed for one state of the checkout, as empty files in a folder."""

    def __init__(self, folder: Path, state: str) -> None:
        self._folder = folder / state

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).exists()

    def add(self, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).touch()

    def forget(self, name: str) -> None:
        """Let a part be run again."""
        (self._folder / name).unlink(missing_ok=True)
