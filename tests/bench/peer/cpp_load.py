"""The stock C++ client (PyPI `rocketmq`, librocketmq inside) as a load generator.

    cpp_load.py NAMESRV

Takes and says what `java/LoadClient.java` does, one JSON object per line, and means the same by it,
but for one thing: it leaves after one run of send, async, drain or e2e.
The library tries a synchronous send again by itself and cannot be told not to. From several threads
it fails a send in a thousand without asking the broker, when its lock on the connection is taken;
such errors say "No route info" whatever it was. The process leaves by `os._exit`, since the
library's threads crash at interpreter exit now and then. It imports nothing of trioha.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq.ffi import (
    MSG_CALLBACK_FUNC,
    SEND_EXCEPTION_CALLBACK,
    SEND_SUCCESS_CALLBACK,
    _CLogLevel,
    _CSendResult,
    dll,
)

STATUS = ("SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
CONSUME_SUCCESS = 0
IDLE_S = 20.0
ANSWER_S = 10.0
LOST_S = 5.0
# A refused send is not repeated at the speed of the processor.
PAUSE_S = 0.001

# The library writes to stdout now and then: our events get a descriptor of their own.
_events = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
os.dup2(2, 1)


def emit(event: str, **fields: Any) -> None:
    _events.write(json.dumps({"event": event, **fields}) + "\n")


class Load:
    """One run: its options, its window and what became of its messages."""

    def __init__(self, namesrv: str, options: dict[str, Any]) -> None:
        self.namesrv = namesrv
        self.options = options
        self.topic = options["topic"].encode()
        self.body = os.urandom(options.get("bytes", 128))
        self.errors: Counter[str] = Counter()
        self.first_error: str | None = None
        self.latencies_ns: list[int] = []
        self.measured_from_ns = 0
        self.measured_to_ns = 0
        self.stopping = False
        self._errors_lock = threading.Lock()

    def open_window(self) -> None:
        self.measured_from_ns = time.monotonic_ns() + int(self.options["warm_up_s"] * 1e9)
        self.measured_to_ns = self.measured_from_ns + int(self.options["seconds"] * 1e9)

    def wait_out_window(self) -> None:
        sleep_until(self.measured_from_ns)
        emit("measuring")
        sleep_until(self.measured_to_ns)
        emit("measured")
        self.stopping = True

    def new_message(self, body: bytes) -> int:
        message: int = dll.CreateMessage(self.topic)
        dll.SetByteMessageBody(message, body, len(body))
        return message

    def take(self, status: int, began_ns: int) -> None:
        now_ns = time.monotonic_ns()
        if status != 0:
            self.count(STATUS[status])
            return
        if self.measured_from_ns <= now_ns <= self.measured_to_ns:
            self.latencies_ns.append(now_ns - began_ns)

    def fail(self, code: int) -> None:
        if self.first_error is None:
            self.first_error = (dll.GetLatestErrorMessage() or b"").decode(errors="replace")
        self.count(f"status {code}")

    def count(self, error: str, times: int = 1) -> None:
        with self._errors_lock:
            self.errors[error] += times

    def start_producer(self) -> int:
        producer: int = dll.CreateProducer(self.options["group"].encode())
        dll.SetProducerNameServerAddress(producer, self.namesrv.encode())
        dll.SetProducerLogLevel(producer, _CLogLevel.WARN)
        dll.SetProducerSendMsgTimeout(producer, 3000)
        check(dll.StartProducer(producer))
        # Threads that ask for a route at the same time get none but for one.
        message = self.new_message(self.body)
        check(dll.SendMessageSync(producer, message, ctypes.byref(_CSendResult())))
        dll.DestroyMessage(message)
        return producer

    def start_consumer(self, on_message: Callable[[int, int], int]) -> tuple[int, Any]:
        """The handle, and the callback that must outlive it."""
        consumer: int = dll.CreatePushConsumer(self.options["group"].encode())
        dll.SetPushConsumerNameServerAddress(consumer, self.namesrv.encode())
        dll.SetPushConsumerLogLevel(consumer, _CLogLevel.WARN)
        check(dll.Subscribe(consumer, self.topic, b"*"))
        callback = MSG_CALLBACK_FUNC(on_message)
        check(dll.RegisterMessageCallback(consumer, callback))
        check(dll.StartPushConsumer(consumer))
        return consumer, callback

    def send_figures(self) -> dict[str, float]:
        count = len(self.latencies_ns)
        seconds = (self.measured_to_ns - self.measured_from_ns) / 1e9
        return {"count": count, "per_s": count / seconds, **latency_figures(self.latencies_ns)}


def send(load: Load) -> dict[str, float]:
    """`threads` senders, one message at a time."""
    producer = load.start_producer()

    def send_one(result: Any) -> int:
        message = load.new_message(load.body)
        status: int = dll.SendMessageSync(producer, message, ctypes.byref(result))
        dll.DestroyMessage(message)
        return status

    def run() -> None:
        result = _CSendResult()
        while not load.stopping:
            began_ns = time.monotonic_ns()
            status = send_one(result)
            if status == 0:
                load.take(result.sendStatus, began_ns)
            else:
                load.fail(status)
                time.sleep(PAUSE_S)

    load.open_window()
    threads = [threading.Thread(target=run) for _ in range(load.options.get("threads", 1))]
    for thread in threads:
        thread.start()
    load.wait_out_window()
    for thread in threads:
        thread.join()
    return load.send_figures()


def send_async(load: Load) -> dict[str, float]:
    """One sender that has at most `in_flight` sends under way."""
    producer = load.start_producer()
    in_flight = load.options.get("in_flight", 64)
    free = threading.Semaphore(in_flight)

    # A callback is not told which send it belongs to, so each has one of its own while under way.
    class Slot:
        def __init__(self) -> None:
            self.began_ns = 0
            self.on_success = SEND_SUCCESS_CALLBACK(self.succeed)
            self.on_exception = SEND_EXCEPTION_CALLBACK(self.fail)

        def succeed(self, result: Any) -> None:
            load.take(result.contents.sendStatus, self.began_ns)
            self.release()

        def fail(self, error: Any) -> None:
            load.fail(error.error)
            self.release()

        def release(self) -> None:
            idle.append(self)
            free.release()

    idle: list[Slot] = []
    idle += [Slot() for _ in range(in_flight)]
    slots = list(idle)

    def run() -> None:
        while not load.stopping:
            free.acquire()
            slot = idle.pop()
            message = load.new_message(load.body)
            slot.began_ns = time.monotonic_ns()
            status = dll.SendMessageAsync(producer, message, slot.on_success, slot.on_exception)
            dll.DestroyMessage(message)
            if status != 0:
                load.fail(status)
                slot.release()
                time.sleep(PAUSE_S)

    load.open_window()
    sender = threading.Thread(target=run)
    sender.start()
    load.wait_out_window()
    sender.join()
    deadline = time.monotonic() + ANSWER_S
    answered = 0
    while answered < in_flight and free.acquire(timeout=max(0.0, deadline - time.monotonic())):
        answered += 1
    if answered < in_flight:
        load.count("never answered", in_flight - answered)
    assert len(slots) == in_flight
    return load.send_figures()


def drain(load: Load) -> dict[str, float]:
    """A push consumer as it comes, from its start to the last of `messages`."""
    expected: int = load.options["messages"]
    arrivals_ns: list[int] = []
    complete = threading.Event()

    def on_message(_consumer: int, _message: int) -> int:
        arrivals_ns.append(time.monotonic_ns())
        if len(arrivals_ns) >= expected:
            complete.set()
        return CONSUME_SUCCESS

    emit("measuring")
    began_ns = time.monotonic_ns()
    consumer, _callback = load.start_consumer(on_message)
    while not complete.wait(1.0):
        last_ns = arrivals_ns[-1] if arrivals_ns else began_ns
        if time.monotonic_ns() - last_ns > IDLE_S * 1e9:
            break
    emit("measured")
    dll.ShutdownPushConsumer(consumer)
    received = len(arrivals_ns)
    if received != expected:
        load.count("missing" if received < expected else "repeated", abs(expected - received))
    figures: dict[str, float] = {"count": received}
    if received >= expected:
        elapsed_ns = arrivals_ns[expected - 1] - arrivals_ns[0]
        figures["per_s"] = (expected - 1) * 1e9 / elapsed_ns
        figures["first_ms"] = (arrivals_ns[0] - began_ns) / 1e6
    return figures


def end_to_end(load: Load) -> dict[str, float]:
    """From the start of a send to the consumer's callback, `rate` times a second."""
    on_their_way: set[int] = set()
    sends_ns: list[int] = []

    def on_message(_consumer: int, message: int) -> int:
        now_ns = time.monotonic_ns()
        began_ns = int(dll.GetMessageBody(message).split()[0])
        if began_ns in on_their_way:
            on_their_way.discard(began_ns)
            load.latencies_ns.append(now_ns - began_ns)
        return CONSUME_SUCCESS

    consumer, _callback = load.start_consumer(on_message)
    producer = load.start_producer()

    def run() -> None:
        period_ns = int(1e9 / load.options["rate"])
        due_ns = time.monotonic_ns()
        result = _CSendResult()
        while not load.stopping:
            sleep_until(due_ns)
            began_ns = time.monotonic_ns()
            message = load.new_message(f"{began_ns} ".encode().ljust(len(load.body), b"."))
            measured = load.measured_from_ns <= began_ns < load.measured_to_ns
            if measured:
                on_their_way.add(began_ns)
            status = dll.SendMessageSync(producer, message, ctypes.byref(result))
            dll.DestroyMessage(message)
            if status != 0:
                on_their_way.discard(began_ns)
                load.fail(status)
            elif measured:
                sends_ns.append(time.monotonic_ns() - began_ns)
            due_ns += period_ns

    load.open_window()
    sender = threading.Thread(target=run)
    sender.start()
    load.wait_out_window()
    sender.join()
    deadline = time.monotonic() + LOST_S
    while on_their_way and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    if on_their_way:
        load.count("lost", len(on_their_way))
    dll.ShutdownPushConsumer(consumer)
    sends = {f"send_{name}": value for name, value in latency_figures(sends_ns).items()}
    return {"count": len(load.latencies_ns), **latency_figures(load.latencies_ns), **sends}


def latency_figures(latencies_ns: list[int]) -> dict[str, float]:
    if not latencies_ns:
        return {}
    ordered = sorted(latencies_ns)

    def percentile_ms(part: float) -> float:
        return ordered[math.ceil(part * len(ordered)) - 1] / 1e6

    return {
        "avg_ms": sum(ordered) / len(ordered) / 1e6,
        "p50_ms": percentile_ms(0.50),
        "p90_ms": percentile_ms(0.90),
        "p99_ms": percentile_ms(0.99),
        "p999_ms": percentile_ms(0.999),
        "max_ms": ordered[-1] / 1e6,
    }


def sleep_until(due_ns: int) -> None:
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def check(status: int) -> None:
    if status != 0:
        reason = dll.GetLatestErrorMessage() or b""
        raise OSError(f"librocketmq: status {status} {reason.decode(errors='replace')}")


def main() -> None:
    runs = {"send": send, "async": send_async, "drain": drain, "e2e": end_to_end}
    command = json.loads(sys.stdin.readline())
    load = Load(sys.argv[1], command["options"])
    try:
        figures = runs[command["mode"]](load)
        emit("result", figures=figures, errors=load.errors, first_error=load.first_error)
        status = 0
    except BaseException:
        emit("broken", error=traceback.format_exc())
        status = 1
    _events.flush()
    os._exit(status)


main()
