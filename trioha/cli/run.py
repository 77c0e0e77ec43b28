"""`trioha run namesrv|broker|cluster`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from trioha.cli.node_options import (
    address_option,
    broker_from,
    broker_options,
    common_options,
    namesrv_from,
)
from trioha.cli.node_process import process_options, process_options_from, run_node
from trioha.config.exposure import check_exposure
from trioha.config.secret_files import cluster_keyring
from trioha.layouts import SETS_MAX
from trioha.ready_line import broker_facts, namesrv_facts


@click.group("run")
def command() -> None:
    """Start a name server, a broker, or a whole cluster.

    A node prints one line on stdout when it serves and everything else on stderr. SIGTERM or
    SIGINT stops it in order, a second one at once.
    """


@command.command("namesrv")
@common_options
@process_options
def namesrv(**flags: Any) -> None:
    """Start a name server.

    \b
    trioha run namesrv --listen 127.0.0.1:9876
    trioha run namesrv --set clusterSecretFile=/etc/trioha/cluster.secret
    trioha run namesrv --listen 127.0.0.1:0 --set kvConfigPath=/tmp/kv.json
    """
    from trioha.services.namesrv.server import serve_namesrv

    options = process_options_from(flags)
    loaded = namesrv_from(**flags)
    config = loaded.config
    check_exposure(config, cluster_keyring(config))
    run_node(
        serve_namesrv,
        loaded,
        lambda addresses: namesrv_facts(addresses.listen, addresses.admin_http),
        node="namesrv",
        journal_directory=Path(
            config.journal_path or Path(config.kv_config_path).parent / "journal"
        ),
        journal_required=bool(config.journal_path),
        options=options,
    )


@command.command("broker")
@broker_options
@process_options
def broker(**flags: Any) -> None:
    """Start a broker: a master or a slave, by flags alone or from a file.

    \b
    trioha run broker --listen 127.0.0.1:10911 --namesrv 127.0.0.1:9876 --store /var/lib/trioha/a
    trioha run broker --name broker-a --id 0 --role SYNC_MASTER --listen 127.0.0.1:10911 \\
        --ha-listen 127.0.0.1:10912 --namesrv 127.0.0.1:9876 --store /var/lib/trioha/a
    trioha run broker --name broker-a --id 1 --role SLAVE --listen 127.0.0.1:11911 \\
        --namesrv 127.0.0.1:9876 --store /var/lib/trioha/a-slave
    trioha run broker --config broker.conf --set flushDiskType=SYNC_FLUSH

    \b
    One of three that elect their master (DLEDGER mode; n1 and n2 alike, docs/raft.md):
    trioha run broker --name broker-a --listen 10.0.0.1:10911 --namesrv 10.0.0.9:9876 \\
        --set clusterSecretFile=/etc/trioha/cluster.secret --store /var/lib/trioha/a \\
        --set enableDLegerCommitLog=true --set dLegerSelfId=n0 \\
        --set "dLegerPeers=n0-10.0.0.1:10911;n1-10.0.0.2:10911;n2-10.0.0.3:10911"
    """
    from trioha.services.broker import serve_broker

    options = process_options_from(flags)
    loaded = broker_from(**flags)
    config = loaded.config
    check_exposure(config, cluster_keyring(config))
    own_id = config.d_leger_self_id if config.enable_d_leger_commit_log else config.broker_id
    run_node(
        serve_broker,
        loaded,
        lambda addresses: broker_facts(
            config,
            listen=addresses.listen,
            ha_listen=addresses.ha_listen,
            vip_listen=addresses.vip_listen,
            admin_http=addresses.admin_http,
        ),
        node=f"{config.broker_name}:{own_id}",
        journal_directory=Path(config.store_path_root_dir) / "journal",
        journal_required=True,
        options=options,
    )


@command.command("cluster")
@click.argument(
    "layout", type=click.Choice(["2m-2s-async", "2m-2s-sync", "2m-noslave", "3n-dledger"])
)
@address_option("--listen", "Address of the name server.  [default: 127.0.0.1:9876]")
@click.option(
    "--broker-port",
    type=click.IntRange(0, 65000),
    default=10911,
    show_default=True,
    help="Port of the first broker, the others 10 apart; 0 picks free ones.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("trioha-cluster"),
    show_default=True,
    help="Where the stores go.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of every broker."
)
@click.option(
    "--sets",
    type=click.IntRange(1, SETS_MAX),
    help="Sets of master and slaves, or groups: one for each core.  [default: the layout's]",
)
@click.option(
    "--pin/--no-pin",
    "pins",
    default=None,
    help="Keep each broker on one core.  [default: with --sets]",
)
def cluster(
    layout: str,
    listen: tuple[str, int] | None,
    broker_port: int,
    directory: Path,
    settings: Sequence[str],
    sets: int | None,
    pins: bool | None,
) -> None:
    """Start one of RocketMQ's stock layouts on this host, a process per node.

    \b
    2m-2s-async  two ASYNC_MASTERs, a slave each
    2m-2s-sync   two SYNC_MASTERs, a slave each
    2m-noslave   two ASYNC_MASTERs alone
    3n-dledger   one DLEDGER group of three, which elects its master itself

    \b
    trioha run cluster 2m-2s-sync --dir /tmp/cluster
    trioha run cluster 2m-noslave --listen 127.0.0.1:0 --broker-port 0
    trioha run cluster 3n-dledger --dir /tmp/group
    trioha run cluster 2m-noslave --sets 8

    A process has one core's worth of work. With `--sets` a machine serves as many sets under one
    cluster name as it has cores, and clients spread their messages over them. A slave is pinned to
    another core than its master.

    A node that dies is reported and not restarted. Exit code 1 if one did.
    """
    from trioha.cli.run_layout import run_cluster

    host, port = listen or ("127.0.0.1", 9876)
    deaths = trio.run(
        partial(
            run_cluster,
            layout,
            host=host,
            namesrv_port=port,
            broker_port=broker_port,
            directory=directory,
            settings=settings,
            sets=sets or 0,
            pins=sets is not None if pins is None else pins,
        )
    )
    if deaths:
        raise click.ClickException(f"{deaths} node(s) died while the cluster ran")
