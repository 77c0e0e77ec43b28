"""The state of the sources, and which parts of a release have passed for it: a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

from gate.running import ROOT, CommandFailed

_OURS = (":!.ci/timings", ":!docs/testing.md")
"""Files that a run may write: `just timings` and `just coverage` do."""


def commit() -> str:
    """Return the commit that is checked out. Errors: CommandFailed with a cure."""
    return _git("rev-parse", "HEAD").strip()


def differences() -> str:
    """Return how the sources differ from the commit: a diff, and a digest of each untracked file.

    Files that a run may write do not count. Errors: CommandFailed with a cure.
    """
    changed = _git("diff", commit(), "--", ".", *_OURS)
    names = _git("ls-files", "-z", "--others", "--exclude-standard", "--", ".", *_OURS)
    for name in filter(None, names.split("\0")):
        path = ROOT / name
        if path.is_symlink():
            content = str(path.readlink()).encode()
        else:
            content = path.read_bytes() if path.is_file() else b""
        changed += f"untracked: {name} {sha256(content).hexdigest()}\n"
    return changed


def state_of_checkout() -> str:
    """Return a name for the sources as they are: what git has staged, and what differs from it.

    A commit of files that a run may write changes no state. Errors: CommandFailed with a cure.
    """
    changed = differences()
    staged = _git("ls-files", "--stage", "--", ".", *_OURS)
    return sha256(f"{staged}{changed}".encode(errors="surrogateescape")).hexdigest()[:24]


def _git(*arguments: str) -> str:
    """Errors: CommandFailed: without git no seed is drawn, and no changed file is seen."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, check=True, errors="surrogateescape"
        )
    except FileNotFoundError:
        raise CommandFailed("git is not installed: install it") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.partition("\n")[0]
        cure = (
            f"git config --global --add safe.directory {ROOT}"
            if "dubious ownership" in said
            else "run in a clone of the repository, not in an archive of its files"
        )
        raise CommandFailed(f"git {arguments[0]} failed: {said}; cure: {cure}") from None
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
