from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire.message_id import (
    UniqueIdGenerator,
    decode_message_id,
    offset_message_id,
    pack_host,
    unpack_host,
)

OFFSETS = st.integers(0, 2**63 - 1)
PORTS = st.integers(0, 65535)


def test_the_id_of_a_record_is_its_host_and_offset_in_hex() -> None:
    host = pack_host("127.0.0.1", 10911)
    assert offset_message_id(host, 1234) == "7F00000100002A9F00000000000004D2"


@given(st.ip_addresses().filter(lambda ip: getattr(ip, "ipv4_mapped", None) is None), PORTS)
def test_hosts_survive_the_round_trip(address: object, port: int) -> None:
    assert unpack_host(pack_host(str(address), port)) == (str(address), port)


@given(st.ip_addresses().filter(lambda ip: getattr(ip, "ipv4_mapped", None) is None), OFFSETS)
def test_ids_survive_the_round_trip(address: object, offset: int) -> None:
    text = offset_message_id(pack_host(str(address), 10911), offset)
    assert decode_message_id(text) == (str(address), 10911, offset)
    assert decode_message_id(text.lower()) == (str(address), 10911, offset)


def test_an_ipv4_peer_of_a_dual_stack_socket_is_stored_as_ipv4() -> None:
    assert pack_host("::ffff:1.2.3.4", 5) == pack_host("1.2.3.4", 5)


def test_a_zone_is_no_part_of_the_address() -> None:
    assert pack_host("fe80::1%eth0", 5) == pack_host("fe80::1", 5)


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(ValueError, match="localhost"):
        pack_host("localhost", 5)


@given(st.text(max_size=60) | st.binary(max_size=40).map(bytes.hex))
@example("7F00000100002A9F00000000000004D2")
@example("00" * 28)
def test_any_other_text_is_refused_as_an_id(text: str) -> None:
    try:
        decode_message_id(text)
    except RemoteProtocolError:
        return
    assert len(bytes.fromhex(text)) in (16, 28)


class Wall:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> int:
        return int(self.now.timestamp() * 1000)


def test_unique_ids_carry_address_pid_seed_time_and_count() -> None:
    wall = Wall(datetime(2024, 2, 1, 0, 0, 1))
    generate = UniqueIdGenerator("10.0.0.1", 0x1234, 0xCAFEBABE, wall)
    assert generate() == "0A000001" + "1234" + "CAFEBABE" + "000003E8" + "0000"
    assert generate() == "0A000001" + "1234" + "CAFEBABE" + "000003E8" + "0001"


def test_the_time_in_unique_ids_begins_anew_each_month() -> None:
    wall = Wall(datetime(2024, 12, 31, 23, 59))
    generate = UniqueIdGenerator("10.0.0.1", 1, 1, wall)
    december = generate()
    wall.now = datetime(2025, 1, 1, 0, 0, 2)
    assert int(december[20:28], 16) == (31 * 24 * 60 - 1) * 60_000
    assert int(generate()[20:28], 16) == 2000


def test_unique_ids_of_an_ipv6_host_are_longer() -> None:
    assert len(UniqueIdGenerator("::1", 1, 1, Wall(datetime(2024, 2, 1)))()) == 56


def test_a_counter_that_ran_over_starts_again() -> None:
    generate = UniqueIdGenerator("10.0.0.1", 1, 1, Wall(datetime(2024, 2, 1)))
    serials = {generate()[-4:] for _ in range(65536)}
    assert len(serials) == 65536
    assert generate()[-4:] == "0000"
