"""The loads against a peer on loopback that answers from a few lines."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.fakes.client_messages import record
from support.stores.records import split_batch

from trioha.bench.drain import DrainLoad
from trioha.bench.end_to_end import EndToEndLoad, EndToEndOptions, TimerReport
from trioha.bench.produce import ProduceLoad, ProduceOptions
from trioha.client.message import MessageQueue
from trioha.errors import CommandError, Unreachable
from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode, ResponseCode, SerializeType, SysFlag
from trioha.wire.message_id import offset_message_id, pack_host
from trioha.wire.properties import decode_properties, encode_properties
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

QUEUE = MessageQueue("T", "a", 0)
ACCOUNT = Credentials("account-1", "secret-1")
Answer = Callable[[RemotingCommand], RemotingCommand | None]


@contextmanager
def peer(answer: Answer) -> Iterator[str]:
    """A server whose connections are answered frame by frame until they close."""
    threads: list[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as stream:
            while prelude := stream.read(4):
                (size,) = struct.unpack(">I", prelude)
                response = answer(decode_frame(prelude + stream.read(size)))
                if response is not None:
                    sock.sendall(encode(response))

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(sock,), daemon=True))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield "{}:{}".format(*listener.getsockname())
        # Closing does not wake an accept; shutting down does.
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(5)
    for thread in threads:
        thread.join(5)


def acknowledge(command: RemotingCommand) -> RemotingCommand:
    return command.response(ext_fields={"msgId": "X", "queueId": "0", "queueOffset": "0"})


def pulled(command: RemotingCommand, records: list[bytes], end: int) -> RemotingCommand:
    offset = command.ext_int("queueOffset")
    return command.response(
        ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND,
        ext_fields={"nextBeginOffset": offset + len(records), "minOffset": 0, "maxOffset": end},
        body=b"".join(records),
    )


@pytest.mark.parametrize(("connections", "batch"), [(1, 1), (3, 1), (1, 4)])
def test_a_closed_loop_measures_the_messages_it_was_asked_for(connections: int, batch: int) -> None:
    options = ProduceOptions(
        concurrency=8, connections=connections, batch=batch, count=200, warm_up_s=0.0
    )
    with peer(acknowledge) as address:
        report = ProduceLoad([(QUEUE, address)], options).run()
    assert 200 <= report.messages < 200 + 8 * batch
    assert report.send_latency.count * batch == report.messages
    assert (report.unanswered, report.refusals) == (0, {})


def test_an_open_loop_keeps_its_schedule() -> None:
    options = ProduceOptions(concurrency=16, rate=2000, count=100, warm_up_s=0.0)
    with peer(acknowledge) as address:
        report = ProduceLoad([(QUEUE, address)], options).run()
    assert 100 <= report.messages < 116
    # 99 intervals of half a millisecond lie between the first and the last.
    assert report.seconds >= 0.049


def test_a_schedule_that_the_broker_cannot_keep_waits_for_its_answers() -> None:
    options = ProduceOptions(concurrency=2, rate=10_000_000, count=200, warm_up_s=0.0)
    with peer(acknowledge) as address:
        report = ProduceLoad([(QUEUE, address)], options).run()
    assert 200 <= report.messages < 202


def test_refusals_are_reported_by_code() -> None:
    options = ProduceOptions(concurrency=2, count=10, warm_up_s=0.0)
    with peer(lambda command: command.response(ResponseCode.SYSTEM_BUSY, "no")) as address:
        report = ProduceLoad([(QUEUE, address)], options).run()
    assert report.refusals[ResponseCode.SYSTEM_BUSY] >= 10


def test_a_broker_that_goes_away_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        load = ProduceLoad(
            [(QUEUE, "{}:{}".format(*listener.getsockname()))], ProduceOptions(count=1)
        )
        sock, _ = listener.accept()
        sock.close()
        with pytest.raises(Unreachable):
            load.run()


def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
    with pytest.raises(Unreachable):
        ProduceLoad([(QUEUE, address)], ProduceOptions())


def test_a_drain_reads_every_queue_to_its_end() -> None:
    end = 100

    def answer(command: RemotingCommand) -> RemotingCommand:
        begin = command.ext_int("queueOffset")
        offsets = range(begin, min(begin + command.ext_int("maxMsgNums"), end))
        return pulled(command, [record(b"12345", queue_offset=n) for n in offsets], end)

    with peer(answer) as address:
        targets = [(MessageQueue("T", "a", number), address) for number in range(3)]
        report = DrainLoad(targets, begin_offsets=[0, 50, 90]).run()
    assert report.messages == 100 + 50 + 10
    assert report.body_mb_per_s > 0


def test_a_refused_pull_ends_a_drain() -> None:
    refuse: Answer = lambda command: command.response(ResponseCode.NO_PERMISSION, "no")  # noqa: E731
    with peer(refuse) as address, pytest.raises(CommandError):
        DrainLoad([(QUEUE, address)]).run()


def test_a_filtered_drain_counts_what_the_broker_looked_at() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        assert command.ext_fields["expressionType"] == "SQL92"
        assert command.ext_fields["subscription"] == "n < 1"
        begin = command.ext_int("queueOffset")
        # Ten offsets a pull: the first ones bring a message, the others nothing.
        records = [record(b"12345", queue_offset=begin)] if begin < 20 else []
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
        return command.response(
            code,
            ext_fields={"nextBeginOffset": begin + 10, "minOffset": 0, "maxOffset": 50},
            body=b"".join(records),
        )

    with peer(answer) as address:
        report = DrainLoad([(QUEUE, address)], sql="n < 1").run()
    assert report.messages == 2
    assert report.looked_at_per_s == pytest.approx(report.messages_per_s * 25, rel=0.01)


@pytest.mark.parametrize("account", [None, ACCOUNT])
@pytest.mark.parametrize("form", list(SerializeType))
def test_each_acknowledged_half_message_is_committed(
    account: Credentials | None, form: SerializeType
) -> None:
    halves: list[tuple[str, str]] = []
    commits: list[tuple[str, str]] = []

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        assert account is None or account.key.has_signed(command)
        if command.code == RequestCode.END_TRANSACTION:
            assert command.is_oneway
            assert command.ext_fields["commitOrRollback"] == "8"
            assert command.ext_fields["producerGroup"] == "trioha_bench"
            where = command.ext_str("tranStateTableOffset"), command.ext_str("commitLogOffset")
            commits.append(where)
            return None
        properties = decode_properties(command.ext_str("i"))
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "trioha_bench")
        assert command.ext_int("f") & SysFlag.TRANSACTION_PREPARED
        number = len(halves)
        halves.append((str(number), str(number * 300)))
        msg_id = offset_message_id(pack_host("127.0.0.1", 10911), number * 300)
        return command.response(
            ext_fields={"msgId": msg_id, "queueId": "0", "queueOffset": str(number)}
        )

    options = ProduceOptions(
        concurrency=4,
        count=50,
        warm_up_s=0.0,
        transactional=True,
        serialize_type=form,
        credentials=account,
    )
    with peer(answer) as address:
        report = ProduceLoad([(QUEUE, address)], options).run()
    assert (report.unanswered, report.refusals) == (0, {})
    assert commits == halves
    assert len(halves) >= report.messages >= 50


def test_numbered_messages_have_each_number_as_often() -> None:
    numbers: Counter[str] = Counter()

    def answer(command: RemotingCommand) -> RemotingCommand:
        for element in split_batch(command.body_bytes()):
            numbers[decode_properties(bytes(element.properties))["n"]] += 1
        return acknowledge(command)

    options = ProduceOptions(concurrency=4, batch=25, count=100, warm_up_s=0.0, is_numbered=True)
    with peer(answer) as address:
        ProduceLoad([(QUEUE, address)], options).run()
    assert len(numbers) == 100


def test_timer_messages_are_due_later() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        assert decode_properties(command.ext_str("i"))["TIMER_DELAY_SEC"] == "60"
        return acknowledge(command)

    options = ProduceOptions(concurrency=1, count=3, warm_up_s=0.0, delay_s=60)
    with peer(answer) as address:
        assert ProduceLoad([(QUEUE, address)], options).run().messages == 3


def test_a_drain_with_an_account_signs_every_pull() -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        assert ACCOUNT.key.has_signed(command)
        return pulled(command, [record(b"body", queue_offset=0)], 1)

    with peer(answer) as address:
        report = DrainLoad([(QUEUE, address)], credentials=ACCOUNT).run()
    assert report.messages == 1


def keeping(bodies: list[bytes], account: Credentials | None, properties: bytes = b"") -> Answer:
    """A broker of one queue that gives what was sent to it, with these properties."""
    lock = threading.Condition()

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        assert account is None or account.key.has_signed(command)
        with lock:
            if command.code == RequestCode.PULL_MESSAGE:
                begin = command.ext_int("queueOffset")
                lock.wait_for(lambda: len(bodies) > begin, 1.0)
                found = [
                    record(body, properties, queue_offset=number)
                    for number, body in enumerate(bodies[begin : begin + 32], begin)
                ]
                return pulled(command, found, len(bodies))
            bodies.append(command.body_bytes())
            lock.notify_all()
            return acknowledge(command)

    return answer


@pytest.mark.parametrize("account", [None, ACCOUNT])
def test_end_to_end_counts_from_the_due_time_in_the_body(account: Credentials | None) -> None:
    options = EndToEndOptions(rate=1000, seconds=0.1, warm_up_s=0.02, size=64, credentials=account)
    with peer(keeping([], account)) as address:
        report = EndToEndLoad([QUEUE], [0], address, options).run()
    assert report.received == report.sent > 0
    assert 0 < report.end_to_end_latency.p50_ms < 1000
    assert not isinstance(report, TimerReport)


def test_timer_messages_are_late_by_the_brokers_notes() -> None:
    notes = {"TIMER_ENQUEUE_MS": "5000", "TIMER_DEQUEUE_MS": "5013"}
    options = EndToEndOptions(rate=1000, seconds=0.1, warm_up_s=0.02, size=64, delay_ms=10)
    with peer(keeping([], None, encode_properties(notes))) as address:
        report = EndToEndLoad([QUEUE], [0], address, options).run()
    assert isinstance(report, TimerReport)
    assert report.delivery_lateness.count == report.received == report.sent > 0
    assert report.delivery_lateness.max_ms == 3
