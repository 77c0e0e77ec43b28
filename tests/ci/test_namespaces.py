"""The rig of networks that can be cut, after runs that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.namespaces import Net, open_net

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
KILLED_RUN = """
import os, signal
from support.processes.namespaces import open_net
with open_net(2) as net:
    print(*(name for host in net.hosts for name in (host.name, host.veth)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def there() -> str:
    """Return all namespaces and links of the machine, as `ip` lists them."""
    return "".join(
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout
        for words in (["netns", "list"], ["-o", "link", "show"])
    )


def names_of(net: Net) -> list[str]:
    return [name for host in net.hosts for name in (host.name, host.veth)]


def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    with open_net(1):
        pass  # skips where networks cannot be made
    done = subprocess.run(
        [sys.executable, "-c", KILLED_RUN],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = done.stdout.split()
    assert len(left) == 4
    assert all(name in there() for name in left)
    with open_net(2) as net:
        after = there()
        assert all(name in after for name in names_of(net))
        assert not [name for name in left if name in after and name not in names_of(net)]


def test_two_networks_at_once_have_different_names_and_addresses() -> None:
    with open_net(2) as one, open_net(2) as other:
        assert one.network != other.network
        assert not set(names_of(one)) & set(names_of(other))
        assert all(name in there() for name in names_of(one) + names_of(other))
    assert not [name for name in names_of(one) + names_of(other) if name in there()]
