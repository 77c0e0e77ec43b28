"""`trioha check`: one line, performance data and Nagios' exit codes, against real nodes too."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.clusters.pair import Cluster
from support.fakes.raw_answers import RawCluster
from support.processes.rig import Processes
from support.processes.status import Outcome, run_trioha, wait_in_sync, wait_until

from trioha.cli import check, cli
from trioha.cli.check_line import CRITICAL, OK, UNKNOWN, WARNING

QUICK_HEARTBEATS = {
    "haSendHeartbeatInterval": 200,
    "haHousekeepingInterval": 3000,
    "haReconnectInterval": 100,
}


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RawCluster:
    """Return the cluster that answers a check that is run in this process."""
    cluster = RawCluster()
    cluster.add_set("broker-a")

    async def look(*_: object) -> dict[str, object]:
        return cluster.raw()

    monkeypatch.setattr(check, "_look", look)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TRIOHA_CONFIG", "TRIOHA_CONTEXT", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return cluster


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["check", *arguments])
    return result.exit_code, result.output.rstrip("\n")


def test_all_well_is_one_line_with_performance_data(raw: RawCluster) -> None:
    code, text = run("ha")
    assert code == OK
    assert "\n" not in text
    words, data = text.split(" | ")
    assert words == "TRIOHA HA OK - 1 sets, 1 of 1 slaves in sync, largest gap 0 B"
    assert "'broker-a 1 at 10.0.1.2:10911 gap_bytes'=0B;67108864;268435456;0" in data
    assert "'broker-a 1 at 10.0.1.2:10911 heartbeat_age'=6%;50;90;0" in data
    for area in ("broker", "namesrv", "disk", "group"):
        assert run(area)[0] == OK


def test_thresholds_of_the_command_line_and_of_the_file(
    raw: RawCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("disk", "-w", "40%")[0] == WARNING
    assert run("disk", "-w", "30%", "-c", "40%")[0] == CRITICAL
    assert run("disk", "-c", "40%")[0] == CRITICAL  # the default warning gives way
    assert run("disk", "-w", "never", "-c", "never")[0] == OK
    assert run("ha", "-c", "gap_seconds=0")[0] == OK
    raw.link("10.0.1.1:10911").update(gap_s=0.5)
    raw.tick()
    assert run("ha", "-c", "gap_seconds=0")[0] == CRITICAL
    file = tmp_path / "config.toml"
    file.write_text("[alerts.disk_ratio]\nwarn = '40%'\n[contexts.lab]\nnamesrv = 'h:1'\n")
    monkeypatch.setenv("TRIOHA_CONFIG", str(file))
    assert run("disk")[0] == WARNING
    file.write_text("[contexts.lab]\nnamesrv = 'h:1'\n[contexts.lab.alerts]\ndisk_ratio.warn = 0.4")
    assert run("disk")[0] == OK
    assert run("disk", "--context", "lab")[0] == WARNING


def test_the_worst_is_told_first_and_all_of_it_on_one_line(raw: RawCluster) -> None:
    for number in range(8):
        raw.add_set(f"broker-{number}")
    for status in raw.statuses.values():
        status["disk_ratio"] = 0.8
    raw.statuses["10.0.3.1:10911"]["disk_ratio"] = 0.95
    raw.tick()
    code, text = run("disk")
    assert code == CRITICAL
    assert text.startswith("TRIOHA DISK CRITICAL - broker-1 0 at 10.0.3.1:10911: disk 95% full; ")
    assert "; and 13 more | " in text


def test_a_node_cannot_break_the_line(raw: RawCluster) -> None:
    slave = raw.statuses["10.0.1.2:10911"]["slave"]
    raw.statuses["10.0.1.1:10911"]["connections"] = []
    slave.update(state="CONNECTING", last_error="evil | 'x'=1\nTRIOHA HA OK")
    raw.tick()
    _, text = run("ha")
    assert text.count("|") == 1
    assert "\n" not in text


def test_json_has_every_reading_with_its_thresholds(raw: RawCluster) -> None:
    raw.statuses["10.0.1.1:10911"]["disk_ratio"] = 0.8
    raw.tick()
    code, text = run("disk", "-o", "json")
    told = json.loads(text)
    assert (code, told["code"], told["status"]) == (WARNING, WARNING, "WARNING")
    assert told["readings"][0] == {
        "rule": "disk_ratio", "subject": "broker-a 0 at 10.0.1.1:10911", "value": 0.8,
        "unit": "ratio", "warn": 0.75, "crit": 0.85, "level": "WARNING",
    }  # fmt: skip


def test_groups_by_name_and_groups_that_are_not_there(raw: RawCluster) -> None:
    raw.say("10.0.1.1:10911", "progress", {
        "orders": {"T": [[0, 500, 100, raw.wall_ms]]}, "billing": {"T": [[0, 9, 9, raw.wall_ms]]},
    })  # fmt: skip
    assert run("group", "-w", "100")[0] == WARNING
    assert run("group", "billing", "-w", "100")[0] == OK
    assert run("group", "orders", "-w", "100", "-c", "400")[0] == CRITICAL
    code, text = run("group", "nobody")
    assert (code, "no broker that answers knows group nobody" in text) == (UNKNOWN, True)


def test_missing_slaves_and_other_brokers(raw: RawCluster) -> None:
    assert run("ha", "--slaves", "1")[0] == OK
    assert run("ha", "--slaves", "2")[0] == CRITICAL
    raw.add_set("broker-b", 0)
    raw.tick()
    assert run("ha", "--slaves", "1")[0] == CRITICAL
    assert run("ha", "--slaves", "1", "--broker", "broker-a")[0] == OK
    code, text = run("ha", "--broker", "broker-c")
    assert (code, "no broker broker-c is registered" in text) == (UNKNOWN, True)


def test_what_is_not_known_is_unknown_unless_it_is_bad_anyway(raw: RawCluster) -> None:
    raw.silent["10.0.1.2:10911"] = "did not answer within 3 s"
    raw.tick()
    assert run("ha")[0] == UNKNOWN
    assert run("broker")[0] == CRITICAL
    raw.link("10.0.1.1:10911")["in_sync"] = False
    raw.tick()
    assert run("ha")[0] == CRITICAL
    raw.silent[raw.namesrvs[0]] = "refused"
    raw.members.clear()
    raw.tick()
    assert run("ha")[0] == UNKNOWN
    assert run("namesrv")[0] == CRITICAL


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ha", "-x"), "No such option"),
        (("nix",), "No such command"),
        (("ha", "-w", "gap_byte=1"), "no rule gap_byte in check ha; did you mean gap_bytes?"),
        (("ha", "-w", "gap_bytes=1 parsec"), "is no threshold of bytes"),
        (("disk", "-w", "gap_bytes=1"), "no rule gap_bytes in check disk"),
        (("disk", "-w", "90%", "-c", "80%"), "-w 0.9 is above -c 0.8"),
        (("disk", "--context", "lab"), "no context lab"),
        (("ha", "-n", "nowhere"), "nowhere"),
        ((), "Look once"),
    ],
)
def test_a_wrong_command_line_is_unknown_and_told_on_stdout(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TRIOHA_CONFIG", raising=False)
    result = CliRunner().invoke(cli, ["check", *arguments])
    assert (result.exit_code, says in result.stdout) == (UNKNOWN, True), result.output
    assert not isinstance(result.exception, (TypeError, AssertionError))


def test_help_teaches_and_is_no_alarm() -> None:
    result = CliRunner().invoke(cli, ["check", "--help"])
    assert result.exit_code == 0
    assert "cron:" in result.output
    assert "define command" in result.output


def test_real_nodes_one_stopped_and_one_killed(processes: Processes) -> None:
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True, settings=QUICK_HEARTBEATS)
    wait_in_sync(cluster.master)

    def look(area: str) -> Outcome:
        return run_trioha("check", area, "-n", cluster.namesrv, "--timeout", "1")

    for area in ("ha", "broker", "namesrv", "disk", "group"):
        told = look(area)
        assert (told.code, told.err) == (OK, ""), told.out
    slave = cluster.slave.process
    slave.signal(signal.SIGSTOP)
    assert look("broker").code == CRITICAL
    wait_until("critical", lambda: look("ha").code == CRITICAL)
    slave.signal(signal.SIGCONT)
    wait_until("well again", lambda: look("ha").code == OK)
    cluster.master.kill()
    told = look("ha")
    assert (told.code, "no member that answers is master" in told.out) == (CRITICAL, True)
    cluster.slave.kill()
    assert cluster.namesrv_node is not None
    cluster.namesrv_node.kill()
    told = look("ha")
    assert (told.code, "no name server answers" in told.out) == (UNKNOWN, True)
