"""A broker of either make with access control and the same accounts."""

from __future__ import annotations

from pathlib import Path

from support.clusters.pair import SMALL_FILES, Cluster, Make
from support.processes.admin import request, topic_command, wait_for_route
from support.processes.rig import Processes
from trioha.security.signature import Credentials
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

OPERATOR = Credentials("operator-1", "operator-secret")
OWN = Credentials("client-1", "client-secret")
"""May use `OWN_TOPIC` as `OWN_GROUP`."""
WRONG = Credentials("client-1", "not-the-secret")
OWN_TOPIC, FOREIGN_TOPIC = "own-topic", "foreign-topic"
OWN_GROUP, FOREIGN_GROUP = "own-group", "foreign-group"
ACCOUNTS = f"""\
accounts:
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  admin: true
- accessKey: {OWN.access_key}
  secretKey: {OWN.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {OWN_TOPIC}=PUB|SUB
  groupPerms:
  - {OWN_GROUP}=SUB
"""


def start_secured(processes: Processes, make: Make, *, slave: bool = False) -> Cluster:
    """A name server, a master with `ACCOUNTS`, and both topics; perhaps a slave."""
    settings: dict[str, object] = {**SMALL_FILES, "aclEnable": True}
    if make == "java":
        # Java's broker reads no other place than conf below its home.
        path = processes.root / "java-broker-a-0" / "conf" / "plain_acl.yml"
    else:
        path = processes.root / "plain_acl.yml"
        settings["aclFile"] = path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ACCOUNTS)
    cluster = Cluster(processes, make, settings=settings).start(slave=slave)
    for topic in (OWN_TOPIC, FOREIGN_TOPIC):
        put_topic_signed(cluster.master.address, topic)
        wait_for_route(cluster.namesrv, topic)
    return cluster


def acl_file(cluster: Cluster) -> Path:
    """The file of accounts of a trioha cluster."""
    return Path(str(cluster.settings["aclFile"]))


def signed_request(
    address: str, command: RemotingCommand, by: Credentials | None = OPERATOR
) -> RemotingCommand:
    """Send one request as an account and return the answer."""
    if by is not None:
        by.sign(command)
    return request(address, command)


def put_topic_signed(broker: str, topic: str) -> None:
    answer = signed_request(broker, topic_command(topic))
    assert answer.code == ResponseCode.SUCCESS, f"{topic}: {answer.code} {answer.remark}"
