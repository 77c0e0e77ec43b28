"""Pictures of a moment, made without a terminal."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from support.fakes.raw_answers import RawCluster
from trioha_console.later import VIEWS
from trioha_console.screenshots import screenshots


def text_of(path: Path) -> str:
    """Return the text in the picture."""
    words = [element.text or "" for element in ElementTree.parse(path).iter()]
    return "".join(words).replace("\xa0", " ")


def test_every_screen_of_a_moment_is_a_picture_that_tells(tmp_path: Path) -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    cluster.silent[slave] = "did not answer within 3 s"
    cluster.tick()
    paths = screenshots(cluster.raw(), tmp_path, title="prod")
    assert len(paths) == len(VIEWS) - 1  # all but the messages
    assert [path.name[:2] for path in paths[:2]] == ["1-", "2-"]
    pictures = {path.stem[2:]: text_of(path) for path in paths}
    assert "broker-a" in pictures["replication"]
    assert slave in pictures["brokers"]
    assert "broker_silent" in pictures["alerts"]
    for picture in pictures.values():
        assert "prod" in picture
