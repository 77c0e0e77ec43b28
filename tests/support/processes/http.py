"""Pages of a node's HTTP port."""

from __future__ import annotations

import re
import urllib.request

from support.processes.rig import Node


def http_address(node: Node) -> str:
    """Return the address of the HTTP port, which the node's ready line tells."""
    return node.process.wait_for_line(r" ready .*\bhttp=(\S+)")[1]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())


def metric(node: Node, name: str) -> float:
    """Return the value of a metric that has no labels but the node's."""
    page = get(f"http://{http_address(node)}/metrics").decode()
    (found,) = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
    return float(found)
