"""Elections and repairs as they are told in testdata/*.txt; `just rewrite` tells them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dledger.scripted_group import ScriptedGroup

_TESTDATA = Path(__file__).with_name("testdata")
_RULE = "----"


def _told(text: str) -> str:
    """The transcript as the group tells it now."""
    group = ScriptedGroup()
    blocks = []
    for block in text.strip().split("\n\n"):
        head, rule, _ = block.partition(f"\n{_RULE}")
        if not rule:
            blocks.append(block)  # a comment of its own
            continue
        commands = [line for line in head.splitlines() if not line.startswith("#")]
        blocks.append("\n".join([head, _RULE, *group.run(commands)]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", sorted(_TESTDATA.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript_is_told_as_it_is_written(path: Path) -> None:
    text = path.read_text()
    told = _told(text)
    if os.environ.get("TRIOHA_REWRITE"):
        path.write_text(told)
    assert told == text or os.environ.get("TRIOHA_REWRITE")
