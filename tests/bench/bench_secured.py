"""RocketMQ's broker and trioha with the same protection, in turns: TLS, or signed requests.

    PYTHONPATH=tests python tests/bench/bench_secured.py --pairs 9

Both makes stand side by side with the same settings, and each run of `trioha bench` goes to one of
them, in turns. A row has the medians of both, and the median of the pairs' ratios, trioha to Java.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.bench_tls import BACKLOG, LOADS, SIZES, Cluster, Cost, row
from bench.peer.nodes import SETTINGS, production_broker
from support.clusters.meeting import BOTH
from support.clusters.pair import Make
from support.clusters.secured import ACCOUNTS, OPERATOR
from support.processes.rig import Processes, running_processes, trioha_broker, trioha_namesrv
from support.stores.certificates import certificates

PROTECTIONS = ("none", "signed requests", "TLS")


def start(processes: Processes, make: Make, protection: str) -> Cluster:
    """A broker of this make and a name server of ours, of which the broker alone is measured."""
    certificate = certificates()
    settings: dict[str, object] = dict(SETTINGS)
    properties: dict[str, str] = {}
    environment: dict[str, str] = {}
    tls: Mapping[str, object] = {}
    if protection == "signed requests":
        settings["aclEnable"] = True
        environment = {
            "TRIOHA_ACCESS_KEY": OPERATOR.access_key,
            "TRIOHA_SECRET_KEY": OPERATOR.secret_key,
        }
        if make == "java":
            accounts = processes.root / f"java-{make}-0" / "conf" / "plain_acl.yml"
        else:
            accounts = processes.root / "plain_acl.yml"
            settings["aclFile"] = accounts
        accounts.parent.mkdir(parents=True, exist_ok=True)
        accounts.write_text(ACCOUNTS)
    elif protection == "TLS":
        tls = certificate.keys("enforcing")
        properties = {
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.server.mode": "enforcing",
            "tls.server.certPath": certificate.cert("node"),
            "tls.server.keyPath": certificate.key("node"),
        }
        environment = {
            "TRIOHA_TLS_ENABLE": "true",
            "TRIOHA_TLS_CLIENT_TRUST_CERT_PATH": certificate.cert("ca"),
        }
    namesrv = trioha_namesrv(processes, name=f"namesrv-{make}", settings=tls).start()
    if make == "java":
        node = production_broker(
            processes, namesrv.address, name=make, settings=settings, properties=properties
        )
    else:
        node = trioha_broker(processes, namesrv.address, name=make, settings={**settings, **tls})
    return Cluster(namesrv.address, node.start().process.pid, environment)


def measure(java: Cluster, ours: Cluster, pairs: int, protection: str) -> None:
    for size in SIZES:
        for cluster in (java, ours):
            fill = ("--topic", f"drain-{size}", "--size", str(size), "--count", str(BACKLOG))
            cluster.run("produce", *fill, "--batch", "32")
        for label, load in LOADS.items():
            topic = f"drain-{size}" if load[0] == "consume" else f"send-{size}"
            words = (*load, "--topic", topic, "--size", str(size))
            for cluster in (java, ours):
                cluster.run(*words)  # a JVM that has compiled nothing yet would be a poor rival
            runs: tuple[list[Cost], list[Cost]] = ([], [])
            for number in range(pairs):
                turns = [(java, runs[0]), (ours, runs[1])]
                for cluster, costs in turns if number % 2 else reversed(turns):
                    costs.append(cluster.run(*words))
            print(row(f"{protection}: {label.format(size=size)}", *runs), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--protection", choices=PROTECTIONS, action="append")
    options = parser.parse_args()
    print("| load | Java | trioha | rate, to Java | messages for a second of CPU, to Java |")
    print("|---|---|---|---|---|")
    for protection in options.protection or PROTECTIONS:
        with (
            tempfile.TemporaryDirectory(prefix="trioha-bench-secured-") as name,
            running_processes(Path(name)) as processes,
        ):
            clusters = {make: start(processes, make, protection) for make in BOTH}
            measure(clusters["java"], clusters["trioha"], options.pairs, protection)


if __name__ == "__main__":
    main()
