from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.stores.small import open_store

from trioha.errors import StoreLocked
from trioha.store.message_store import StoreConfig
from trioha.store.store_lock import StoreLock

OTHER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("locked", flush=True)
else:
    print("free", flush=True)
    sys.stdin.read()
"""


def other_process(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def answer(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_finds_byte_0_locked(store_path: Path) -> None:
    lock = StoreLock(store_path / "lock")
    with other_process(store_path / "lock") as process:
        assert answer(process) == b"locked"
    lock.release()
    with other_process(store_path / "lock") as process:
        assert answer(process) == b"free"
        process.kill()


def test_a_store_that_another_process_holds_is_refused(
    store_path: Path, config: StoreConfig
) -> None:
    (store_path / "lock").write_text("lock")
    with other_process(store_path / "lock") as process:
        assert answer(process) == b"free"
        with pytest.raises(StoreLocked, match=r"in use by another process.*storePathRootDir"):
            open_store(config)
        assert sorted(path.name for path in store_path.iterdir()) == ["lock"]
        process.kill()
    open_store(config).close()


def test_one_process_opens_a_store_once(config: StoreConfig) -> None:
    store = open_store(config)
    with pytest.raises(StoreLocked):
        open_store(config)
    store.close()
    store.close()
    open_store(config).close()
