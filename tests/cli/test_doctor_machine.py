"""`trioha doctor` on machines that make a broker wait."""

from __future__ import annotations

import os
from pathlib import Path

from trioha.cli.doctor_machine import Verdict, machine_checks

_CLOCK = "sys/devices/system/clocksource/clocksource0"


def _machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _verdicts(root: Path) -> dict[str, tuple[Verdict, str]]:
    return {check.name: (check.verdict, check.says) for check in machine_checks(root, root)}


def _device(root: Path) -> str:
    number = root.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_a_quiet_machine_is_well(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        **{
            "proc/stat": "cpu  1000 0 500 9000 0 0 0 10 0 0\ncpu0 1 2 3\n",
            "proc/self/cgroup": "0::/system.slice/trioha.service\n",
            "sys/fs/cgroup/system.slice/trioha.service/cpu.stat": "usage_usec 5\n"
            "nr_periods 1000\nnr_throttled 2\n",
            f"{_CLOCK}/current_clocksource": "tsc\n",
            f"{_CLOCK}/available_clocksource": "tsc hpet acpi_pm\n",
            f"sys/class/bdi/{_device(tmp_path)}/read_ahead_kb": "128\n",
        },
    )
    assert {name: verdict for name, (verdict, _) in _verdicts(root).items()} == dict.fromkeys(
        ("steal time", "processor quota", "clock source", "read-ahead"), "ok"
    )


def test_what_makes_a_broker_wait_is_named_with_its_cure(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        **{
            "proc/stat": "cpu  900 0 0 9000 50 0 0 100 0 0\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.stat": "nr_periods 1000\nnr_throttled 250\n",
            f"{_CLOCK}/current_clocksource": "hpet\n",
            f"{_CLOCK}/available_clocksource": "hpet tsc\n",
            f"sys/class/bdi/{_device(tmp_path)}/read_ahead_kb": "8192\n",
        },
    )
    found = {check.name: check for check in machine_checks(root, root)}
    assert {check.verdict for check in found.values()} == {"warn"}
    assert "10.0%" in found["steal time"].says
    assert "25%" in found["processor quota"].says
    assert "CPUQuota" in found["processor quota"].cure
    assert "hpet" in found["clock source"].says
    assert "echo tsc > " in found["clock source"].cure
    assert "8192 KiB" in found["read-ahead"].says
    assert found["read-ahead"].cure.startswith("echo 128 > /sys/class/bdi/")


def test_a_partition_reads_ahead_as_its_disk_does(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/nvme0n1"
    (disk / "nvme0n1p2").mkdir(parents=True)
    (disk / "queue").mkdir()
    (disk / "queue/read_ahead_kb").write_text("4096\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / _device(tmp_path)).symlink_to(disk / "nvme0n1p2")
    (check,) = machine_checks(tmp_path, tmp_path)
    assert check.verdict == "warn"
    assert check.cure == "echo 128 > /sys/devices/nvme0n1/queue/read_ahead_kb as root"


def test_a_machine_that_tells_nothing_is_not_judged(tmp_path: Path) -> None:
    assert _verdicts(tmp_path) == {}
    _machine(tmp_path, **{"proc/stat": "cpu  x\n", "proc/self/cgroup": "", _CLOCK: ""})
    assert _verdicts(tmp_path) == {}
