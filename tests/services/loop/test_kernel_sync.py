"""fsync by the kernel: on real files, and where it cannot be."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.suite.skips import skip_unless

from trioha.services.loop import kernel_sync
from trioha.services.loop.kernel_sync import KernelSync, open_kernel_sync

PATIENCE_S = 60.0


@pytest.fixture
def kernel() -> Iterator[KernelSync]:
    kernel = open_kernel_sync()
    skip_unless(kernel is not None, "this kernel or sandbox has no asynchronous fsync")
    assert kernel is not None
    yield kernel
    kernel.close()


def result_of(kernel: KernelSync) -> int | None:
    poll = select.poll()
    poll.register(kernel.fileno(), select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000), "the kernel never told of the end"
    return kernel.take_result()


def test_a_file_is_synced_and_the_descriptor_tells(tmp_path: Path, kernel: KernelSync) -> None:
    with open(tmp_path / "log", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"message")
            assert kernel.start(file.fileno())
            assert result_of(kernel) == 0
            assert kernel.take_result() is None


def test_the_file_may_be_closed_while_it_is_synced(tmp_path: Path, kernel: KernelSync) -> None:
    file = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.write(file, bytes(1 << 20))
    assert kernel.start(file)
    os.close(file)
    assert result_of(kernel) == 0


def test_what_cannot_be_synced_is_refused(kernel: KernelSync) -> None:
    read_end, write_end = os.pipe()
    assert not kernel.start(write_end)
    os.close(read_end)
    os.close(write_end)
    assert not kernel.start(write_end)
    assert kernel.take_result() is None


def test_it_may_be_closed_while_a_file_is_synced(tmp_path: Path) -> None:
    kernel = open_kernel_sync()
    skip_unless(kernel is not None, "this kernel or sandbox has no asynchronous fsync")
    assert kernel is not None
    with open(tmp_path / "log", "wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        assert kernel.start(file.fileno())
        kernel.close()
    with pytest.raises(OSError, match="Bad file"):
        kernel.take_result()


def test_the_error_of_an_fsync_is_its_number(tmp_path: Path, kernel: KernelSync) -> None:
    with open(tmp_path / "log", "wb", buffering=0) as file:
        assert kernel.start(file.fileno())
        poll = select.poll()
        poll.register(kernel.fileno(), select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000)
    real = kernel._call

    def failing_disk(*arguments: object) -> object:
        returned = real(*arguments)
        kernel._event.result = -errno.EIO
        return returned

    kernel._call = failing_disk  # type: ignore[assignment]
    assert kernel.take_result() == errno.EIO
    kernel._call = real


def test_a_kernel_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kernel_sync._CALLS, platform.machine(), (1 << 20,) * 4)
    assert open_kernel_sync() is None
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert open_kernel_sync() is None


def test_the_requests_are_the_kernels() -> None:
    assert ctypes.sizeof(kernel_sync._Request) == 64
    assert ctypes.sizeof(kernel_sync._Event) == 32
    places = {name: getattr(kernel_sync._Request, name).offset for name in ("opcode", "eventfd")}
    assert places == {"opcode": 16, "eventfd": 60}
