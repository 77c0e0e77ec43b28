"""Keeps a broker registered with every name server in its list (BrokerOuterAPI.java).

Each name server has a task, a connection and deadlines of its own, so that a dead one delays
nothing. The connection stays open: a name server takes its end for the broker's death. Every
period, and first on each connection, the whole topic table goes out; a topic that is created or
changed in between goes out at once, alone, as the name server merges registrations.

A slave learns its master from the answers alone. After both have restarted it may register first:
with RocketMQ's period it would then follow no master for half a minute, and a SYNC_MASTER would
report that to every producer. It asks again every two seconds until a name server names the master.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import trio

from trioha.checksum import crc32
from trioha.config import BrokerConfig
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.mastership import Mastership, Standing
from trioha.journal import EventSink
from trioha.security.node_signer import Sign, unsigned
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.loop.transport import (
    Connect,
    Transport,
    connect,
    format_address,
    parse_address,
)
from trioha.services.remoting.client import RemotingClient, open_remoting_client
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import RegisterBrokerBody

PERIOD_MIN_S, PERIOD_MAX_S = 10.0, 60.0  # BrokerController clamps registerNameServerPeriod to this
_RETRY_S = 1.0  # after a failure, doubling up to the period
_MASTERLESS_S = 2.0  # who knows no master asks again: name servers tell nothing unasked
_FIRST_ROUND_S = 1.0  # readiness does not wait longer for a name server that does not answer
_LAST_WORDS_S = 1.0  # closing the connection would do: unregistering is only the politer way
_SLACK_S = 0.5  # between a name server's noting a claim and our hearing of it
_TIMEOUTS_MAX = 2  # unanswered requests in a row until the connection counts as dead
_LARGE_TABLE = 10_000  # topics: 40 ms to encode, and maybe more than a frame holds unpacked

Topics = Callable[[], tuple[DataVersion, Mapping[str, TopicConfig]]]


@attrs.frozen
class Refutation:
    """A name server's answer that another node is master."""

    namesrv: str
    epoch: int
    nonce: bytes
    address: str
    ha_address: str


@attrs.frozen
class BrokerIdentity:
    """The part of a registration that describes the broker itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    permission: int = 6
    epoch: int = 0
    """Epoch of a master's claim; 0 for a broker without epochs."""
    epoch_nonce: str = ""
    in_doubt: bool = False
    """This master came back and does not know whether its epoch is the newest."""

    @classmethod
    def of(cls, config: BrokerConfig, mastership: Mastership | None = None) -> BrokerIdentity:
        """Return the identity by a configuration that names real addresses and ports."""
        ip2 = config.broker_ip2 or config.broker_ip1
        identity = cls(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            format_address(config.broker_ip1, config.listen_port),
            format_address(ip2, config.ha_listen_port),
            config.broker_permission,
        )
        if mastership is None:
            return identity
        return attrs.evolve(
            identity,
            epoch=mastership.epoch,
            epoch_nonce=mastership.nonce.hex(),
            in_doubt=mastership.standing is not Standing.MASTER,
        )

    def ext_fields(self) -> dict[str, ExtValue]:
        return {
            "brokerAddr": self.address,
            "brokerId": self.broker_id,
            "brokerName": self.broker_name,
            "clusterName": self.cluster,
        }


class NamesrvRegistration:
    """All name servers of one broker.

    `on_master` is called with masterAddr and haServerAddr when the first name server in the list
    that knows a master for us names another one than before; `on_refuted` when one of
    them refuses our claim to be it. With a secret, only an answer with its proof tells anything of
    claims (`trioha.remoting.node_proofs`).

    Errors: TriohaError when the list holds what is no address.
    """

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        topics: Topics,
        clock: Clock,
        events: EventSink,
        *,
        on_master: Callable[[str, str], None] | None = None,
        on_refuted: Callable[[Refutation], None] | None = None,
        connect: Connect = connect,
        sign: Sign = unsigned,
        keyring: Keyring | None = None,
    ) -> None:
        self.identity = identity
        self.keyring = keyring
        """Proves registrations to name servers that ask for it."""
        self.on_refuted = on_refuted
        self.clock = clock
        self.events = events
        self.connect = connect
        self.sign = sign
        self.period_s = min(
            max(config.register_name_server_period / 1000, PERIOD_MIN_S), PERIOD_MAX_S
        )
        self.timeout_s = config.register_broker_timeout_mills / 1000
        self.stopping = trio.Event()
        self._topics = topics
        self._on_master = on_master
        self._master: tuple[str, str] | None = None
        self._named: tuple[str, str] | None = None
        """The master that was named last; not forgotten, as `_master` is."""
        self._encoded: tuple[tuple[DataVersion, int], bytes, bool] | None = None
        self._links = [
            _NamesrvLink(address, self) for address in namesrv_addresses(config.namesrv_addr)
        ]
        self._last_words = trio.CancelScope(shield=True)

    @property
    def registered(self) -> list[str]:
        """The name servers that have us in their routes, as far as we know."""
        return [link.address for link in self._links if link.registered]

    def remembers_claim_before(self, moment_s: float) -> bool:
        """Return whether a name server knew our claim to be master before that Trio time."""
        return any(
            link.registered and link.claimed_s is not None and link.claimed_s < moment_s - _SLACK_S
            for link in self._links
        )

    def forget_claims(self) -> None:
        """Forget which name servers know our claim: only their answers from now on count."""
        for link in self._links:
            link.claimed_s = None

    def register_as(self, identity: BrokerIdentity) -> None:
        """Tell every name server at once what this node has become."""
        self.identity = identity
        self.topics_changed()
        for link in self._links:
            link.connect_now()

    def topics_changed(self, topic: TopicConfig | None = None) -> None:
        """Register at once: one topic was created or changed, or, with None, anything else."""
        for link in self._links:
            link.topics_changed(topic)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay registered until cancelled.

        It has started when every name server was tried once, or after a second.
        Cancellation: unregisters first, which takes a second at most.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_links, name="namesrv_registration.links")
            try:
                with trio.move_on_after(_FIRST_ROUND_S):
                    for link in self._links:
                        await link.attempted.wait()
                task_status.started()
                await trio.sleep_forever()
            finally:
                self.stopping.set()
                self._last_words.deadline = trio.current_time() + _LAST_WORDS_S
                for link in self._links:
                    link.stop()

    async def _serve_links(self) -> None:
        with self._last_words:
            async with trio.open_nursery() as nursery:
                for link in self._links:
                    nursery.start_soon(link.run, name=f"namesrv_registration[{link.address}]")

    async def registration(self, only: Mapping[str, TopicConfig] | None) -> RemotingCommand:
        """A REGISTER_BROKER with the topics given, or with all of them."""
        version, topics = self._topics()
        if only is not None:
            body, compressed = self._body(version, only).encode(), False
        else:
            body, compressed = await self._whole_table(version, topics)
        ext_fields = self.identity.ext_fields()
        ext_fields["haServerAddr"] = self.identity.ha_address
        if self.identity.epoch and self.identity.broker_id == 0:
            ext_fields["epoch"] = self.identity.epoch
            ext_fields["epochNonce"] = self.identity.epoch_nonce
            if self.identity.in_doubt:
                ext_fields["epochInDoubt"] = True
        ext_fields["compressed"] = compressed
        ext_fields["bodyCrc32"] = crc32(body) & 0x7FFFFFFF
        return RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields, body)

    def master_learned(self) -> None:
        """Call `on_master` if the name servers name another master than before."""
        master = next((link.master for link in self._links if link.master is not None), None)
        if master is not None and master != self._master:
            self._master = self._named = master
            if self._on_master is not None:
                self._on_master(*master)

    def forget_master(self) -> None:
        """Forget the master that was named, so the next answer counts as news."""
        self._master = None
        for link in self._links:
            link.master = None

    def master_told(self) -> None:
        """Note that a node of the set has named its master.

        A name server that names the same master as before tells no news then, even if it has just
        been asked again.

        A new master may register later than its slaves, or not reach the name server at all.
        """
        self._master = self._named

    def ask_for_master(self) -> None:
        """Register at once: the master that was named cannot be followed; whichever is named
        next is news."""
        self.forget_master()
        self.topics_changed()

    def _body(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> RegisterBrokerBody:
        permission = self.identity.permission
        if permission & 6 != 6:
            topics = {
                name: attrs.evolve(topic, perm=topic.perm & permission)
                for name, topic in topics.items()
            }
        return RegisterBrokerBody(version, topics)

    async def _whole_table(
        self, version: DataVersion, topics: Mapping[str, TopicConfig]
    ) -> tuple[bytes, bool]:
        key = (version, self.identity.permission)
        if self._encoded is not None and self._encoded[0] == key:
            return self._encoded[1:]
        compressed = len(topics) >= _LARGE_TABLE
        table = self._body(version, dict(topics))
        if compressed:
            body = await run_blocking(lambda: table.encode(compressed=True))
        else:
            body = table.encode()
        self._encoded = (key, body, compressed)
        return body, compressed


class _NamesrvLink:
    """One name server: connects, registers, and does it again."""

    def __init__(self, address: str, owner: NamesrvRegistration) -> None:
        self.address = address
        self.registered = False
        self.attempted = trio.Event()
        self.master: tuple[str, str] | None = None
        self.claimed_s: float | None = None
        """Trio time since which the name server knows our claim to be master; None if not."""
        self._host, self._port = parse_address(address)
        self._owner = owner
        self._changed_topics: dict[str, TopicConfig] = {}
        self._whole_wanted = True
        self._whole_due_s = 0.0
        self._retry_s = _RETRY_S
        self._failure = ""
        self._wake = trio.Event()
        self._unconnected = trio.CancelScope()
        self._pause = trio.CancelScope()

    def topics_changed(self, topic: TopicConfig | None) -> None:
        if topic is None or len(self._changed_topics) >= _LARGE_TABLE:
            self._whole_wanted = True
        else:
            self._changed_topics[topic.topic_name] = topic
        self._wake.set()

    def connect_now(self) -> None:
        """End the pause before the next attempt: what this node has become cannot wait for it."""
        self._retry_s = _RETRY_S
        self._pause.cancel()

    def stop(self) -> None:
        self._unconnected.cancel()
        self._pause.cancel()
        self._wake.set()

    async def run(self) -> None:
        stopping = self._owner.stopping
        while not stopping.is_set():
            transport = None
            with trio.CancelScope() as self._unconnected:
                transport = await self._connect()
            if transport is not None:
                await self._serve(transport)
                if self.registered:
                    self._lost("connection closed")
            if not stopping.is_set():
                with trio.CancelScope() as self._pause:
                    await trio.sleep(self._next_retry_s())

    def _next_retry_s(self) -> float:
        """Return the pause after a failure in seconds; it grows until an attempt succeeds."""
        retry_s = self._retry_s
        self._retry_s = min(retry_s * 2, self._owner.period_s)
        return retry_s

    async def _connect(self) -> Transport | None:
        with trio.move_on_after(self._owner.timeout_s):
            try:
                return await self._owner.connect(self._host, self._port)
            except OSError as error:
                self._lost(error.strerror or str(error))
                return None
        self._lost(f"no connection within {self._owner.timeout_s:g} s")
        return None

    async def _serve(self, transport: Transport) -> None:
        """Stay registered over one connection until it ends or we are to stop."""
        owner = self._owner
        self._whole_wanted = True
        timeouts = 0
        async with open_remoting_client(
            self._host,
            self._port,
            owner.clock,
            on_closed=lambda: self._wake.set(),
            transport=transport,
            sign=owner.sign,
            keyring=owner.keyring,
        ) as client:
            while not client.closed:
                self._wake = trio.Event()
                if owner.stopping.is_set():
                    await self._unregister(client)
                    return
                try:
                    registered = await self._register(client)
                    timeouts = 0
                except trio.TooSlowError:
                    self._lost(f"no answer within {owner.timeout_s:g} s")
                    registered = False
                    timeouts += 1
                    if timeouts == _TIMEOUTS_MAX:
                        return
                if registered:
                    wait_until_s = self._whole_due_s
                else:
                    self._whole_wanted = True
                    wait_until_s = trio.current_time() + self._next_retry_s()
                with trio.move_on_at(wait_until_s):
                    await self._wake.wait()

    async def _register(self, client: RemotingClient) -> bool:
        owner = self._owner
        changed, self._changed_topics = self._changed_topics, {}
        now_s = trio.current_time()
        whole = self._whole_wanted or now_s >= self._whole_due_s or not changed
        self._whole_wanted = False
        command = await owner.registration(None if whole else changed)
        try:
            with trio.fail_after(owner.timeout_s):
                response, is_believed = await client.ask(command)
        except Unreachable as error:
            self._lost(str(error))
            return False
        try:
            if response.code == ResponseCode.FENCED_MASTER_EPOCH:
                self._refuted(response, is_believed=is_believed)
                return False
            if response.code != ResponseCode.SUCCESS:
                self._lost(f"refused with code {response.code}: {response.remark}")
                return False
            self._held(response, is_believed=is_believed)
        except RemoteProtocolError as error:
            self._lost(f"an answer that cannot be understood: {error}")
            return False
        if whole:
            identity = owner.identity
            # A master that was fenced keeps its id until it follows another.
            masterless = (identity.broker_id != 0 or identity.in_doubt) and self.master is None
            self._whole_due_s = now_s + (_MASTERLESS_S if masterless else owner.period_s)
        return True

    async def _unregister(self, client: RemotingClient) -> None:
        fields = self._owner.identity.ext_fields()
        try:
            await client.request(RemotingCommand(RequestCode.UNREGISTER_BROKER, fields))
        except Unreachable:
            return
        self.registered = False
        self._owner.events.event("namesrv_unregistered", namesrv=self.address)

    def _held(self, response: RemotingCommand, *, is_believed: bool) -> None:
        self.attempted.set()
        # A master that has come back goes on as master by this answer.
        held_ms = response.ext_int("epochHeldMs", -1) if is_believed else -1
        self.claimed_s = trio.current_time() - held_ms / 1000 if held_ms >= 0 else None
        self._retry_s = _RETRY_S
        self._failure = ""
        if not self.registered:
            self.registered = True
            self._owner.events.event("namesrv_registered", namesrv=self.address)
        master_addr = response.ext_str("masterAddr", "")
        ha_server_addr = response.ext_str("haServerAddr", "")
        self.master = (master_addr, ha_server_addr) if ha_server_addr else None
        self._owner.master_learned()

    def _refuted(self, response: RemotingCommand, *, is_believed: bool) -> None:
        """Handle the rejection of a claim to be master, which names the node that is master.

        An answer that is not believed fences nobody.
        """
        if not is_believed:
            self._lost(
                f"refused with code {response.code}, without proof of the cluster's secret, so it "
                "changes nothing here: give the name server the secret of this broker "
                f"(clusterSecretFile): {response.remark}"
            )
            return
        found = Refutation(
            self.address,
            response.ext_int("epoch", 0),
            _nonce(response.ext_str("epochNonce", "")),
            response.ext_str("masterAddr", ""),
            response.ext_str("haServerAddr", ""),
        )
        held = (found.address, found.ha_address) if found.ha_address else None
        self._lost(f"refused with code {response.code}: {response.remark}", held)
        if self._owner.on_refuted is not None:
            self._owner.on_refuted(found)

    def _lost(self, reason: str, master: tuple[str, str] | None = None) -> None:
        """Note that the name server does not list us; one journal line for each new reason."""
        self.attempted.set()
        self.registered = False
        self.master = master
        self._owner.master_learned()
        if reason != self._failure and not self._owner.stopping.is_set():
            self._failure = reason
            self._owner.events.event("namesrv_failed", namesrv=self.address, reason=reason)


def _nonce(text: str) -> bytes:
    try:
        nonce = bytes.fromhex(text)
    except ValueError:
        return b""
    return nonce if len(nonce) == NONCE_BYTES else b""


def namesrv_addresses(text: str) -> list[str]:
    """The addresses of ``host:port;host:port``, each once."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return list(dict.fromkeys(part for part in parts if part))
