"""mqadmin of RocketMQ 5.3 in one process: a Java start per command would be most of the time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers.java import (
    INTEROP,
    compiled_classes,
    java_command,
    java_environment,
    require_java,
)
from trioha.security.signature import Credentials

_SOURCE = INTEROP / "java-5.3" / "Mqadmin.java"
_END = "\x04\n"


@contextmanager
def mqadmin_5(home: Path, account: Credentials) -> Iterator[Callable[..., str]]:
    """Yield what runs one command, signed by the account, and returns what it printed."""
    require_java("5.3")
    (home / "conf").mkdir(parents=True)
    keys = f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(keys)
    process = subprocess.Popen(
        java_command(str(_SOURCE), home, [], classes=compiled_classes(), release="5.3"),
        env=java_environment(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    commands, printed = process.stdin, process.stdout
    assert commands is not None
    assert printed is not None

    def run(*arguments: str) -> str:
        commands.write("\t".join(arguments) + "\n")
        commands.flush()
        said = ""
        while not said.endswith(_END):  # a command may end within a line
            line = printed.readline()
            assert line, f"mqadmin ended: {said}"
            said += line
        return said.removesuffix(_END)

    try:
        yield run
    finally:
        process.kill()
        process.communicate()
