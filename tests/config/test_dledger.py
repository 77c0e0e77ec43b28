"""The keys of DLEDGER mode: RocketMQ's names, and what each mistake is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioha.config.dledger import RaftPeer, broker_id_of, parse_peers, preferred_ids
from trioha.config.sources import load_broker, set_entry
from trioha.errors import ConfigError

PEERS = "n0-127.0.0.1:20911;n1-127.0.0.1:20921;n2-127.0.0.1:20931"
MEMBER = (
    "enableDLegerCommitLog=true",
    f"dLegerPeers={PEERS}",
    "dLegerSelfId=n1",
    "listenPort=20921",
    "bindAddress=127.0.0.1",
)


def load(*changes: str, without: str = "") -> str:
    """Return the error that refuses a member's configuration; "" if it loads."""
    settings = [one for one in MEMBER if not without or not one.startswith(without)]
    try:
        load_broker(flags=[set_entry(one) for one in (*settings, *changes)])
    except ConfigError as error:
        return str(error)
    return ""


def test_rocketmqs_example_of_a_member_loads(tmp_path: Path) -> None:
    file = tmp_path / "broker-n1.conf"
    file.write_text(
        "brokerClusterName = RaftCluster\n"
        "brokerName=RaftNode00\n"
        "listenPort=20921\n"
        "enableDLegerCommitLog=true\n"
        "dLegerGroup=RaftNode00\n"
        f"dLegerPeers={PEERS}\n"
        "## must be unique\n"
        "dLegerSelfId=n1\n"
        "preferredLeaderId=n0\n"
        "sendMessageThreadPoolNums=16\n"
    )
    config = load_broker(file).config
    assert config.enable_d_leger_commit_log
    assert (config.d_leger_group, config.d_leger_self_id) == ("RaftNode00", "n1")
    assert preferred_ids(config) == ("n0",)
    assert [peer.address for peer in parse_peers(config.d_leger_peers)] == [
        "127.0.0.1:20911",
        "127.0.0.1:20921",
        "127.0.0.1:20931",
    ]


def test_a_group_of_one_is_a_group() -> None:
    assert load("dLegerPeers=n1-127.0.0.1:20921") == ""


def test_a_peer_list_may_have_blanks_and_a_host_name() -> None:
    assert parse_peers(" n0-broker-0.mq:10911 ; n10-[::1]:10911;") == (
        RaftPeer("n0", "broker-0.mq", 10911),
        RaftPeer("n10", "[::1]", 10911),
    )


def test_a_follower_registers_under_its_number_and_one() -> None:
    assert [broker_id_of(member) for member in ("n0", "n1", "n12")] == [1, 2, 13]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("dLegerPeers=", "a DLEDGER group needs its members"),
        ("dLegerPeers=n0-127.0.0.1", '"n0-127.0.0.1" is no member; write them like n0-'),
        ("dLegerPeers=n0-127.0.0.1:70000", "is no member"),
        ("dLegerPeers=127.0.0.1:20911", "is no member"),
        ("dLegerPeers=a-127.0.0.1:20911", '"a" in "a-127.0.0.1:20911" is no id'),
        ("dLegerPeers=n0-h:1;n0-h:2", "n0 stands there twice"),
        ("dLegerPeers=n0-h:1;n1-h:1", "n0 and n1 have one address"),
        ("dLegerSelfId=", '"" is no id; they are n0, n1, n2'),
        ("dLegerSelfId=broker-a", '"broker-a" is no id'),
        ("dLegerSelfId=n01", '"n01" is no id'),
        ("dLegerSelfId=n0", "n0 has port 20911 there and listenPort 20921 here"),
        ("listenPort=10911", "n1 has port 20921 there and listenPort 10911 here"),
        ("listenPort=0", "0 is no port for a group"),
        ("dLegerGroup=a b", "dLegerGroup: 1 to 127 characters"),
        ("preferredLeaderId=n0;x", 'preferredLeaderId: "x" is no id'),
        ("dLegerHeartbeatInterval=600", "600 ms is too rare"),
        ("dLegerElectionTimeoutMax=1000", "must be more than dLegerElectionTimeoutMin 1000"),
        ("brokerId=1", "needs brokerId 0"),
        ("dLegerSelfID=n1", "did you mean dLegerSelfId?"),
    ],
)
def test_each_mistake_is_named_with_its_place_and_cure(change: str, complaint: str) -> None:
    refused = load(change)
    assert refused.startswith("--set: ")
    assert complaint in refused


def test_a_slave_cannot_be_a_member() -> None:
    refused = load("brokerId=1", "brokerRole=SLAVE")
    assert "brokerId: a member of a DLEDGER group gets its role by election" in refused


def test_who_joins_later_does_not_stand_in_the_peer_list() -> None:
    assert load("dLegerSelfId=n3", "listenPort=20941") == ""
    assert load("dLegerSelfId=n3") == "", "in the place of one that was removed"


def test_the_line_of_a_wrong_peer_list_is_told(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        '[dledger]\nenableDLegerCommitLog = true\ndLegerSelfId = "n0"\ndLegerPeers = "n0"\n'
    )
    with pytest.raises(ConfigError, match=r"broker\.toml:4: dLegerPeers: \"n0\" is no member"):
        load_broker(file)


def test_keys_of_a_mode_that_is_off_are_noted_and_harmless() -> None:
    loaded = load_broker(flags=[set_entry("dLegerPeers=whatever"), set_entry("dLegerSelfId=n0")])
    assert loaded.notes == (
        "--set: dLegerPeers has no meaning without enableDLegerCommitLog=true",
        "--set: dLegerSelfId has no meaning without enableDLegerCommitLog=true",
    )
