"""The flags that describe a node, shared by `run` and `config show`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from trioha.cli.decorators import all_of
from trioha.config import BrokerConfig, BrokerRole, NamesrvConfig
from trioha.config.files import FileEntry
from trioha.config.sources import Loaded, load_broker, load_namesrv, set_entry
from trioha.wire.address import split_address

F = TypeVar("F", bound=Callable[..., Any])


def _address(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    if value is None:
        return None
    try:
        return split_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def address_option(flag: str, help_text: str) -> Callable[[F], F]:
    """An option that takes HOST:PORT and gives a pair."""
    return click.option(flag, metavar="HOST:PORT", callback=_address, help=help_text)


common_options = all_of(
    address_option("--listen", "Address for clients; port 0 picks a free one."),
    click.option(
        "--insecure", is_flag=True, help="Listen beyond this machine without a cluster secret."
    ),
    click.option(
        "-c",
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="TOML if it ends in .toml, else a RocketMQ broker.conf.",
    ),
    click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Any setting; `trioha config keys` lists them.",
    ),
)
"""--listen, --insecure, --config and --set."""


broker_options = all_of(
    common_options,
    click.option("--name", help="Replica set: master and slaves share it."),
    click.option("--id", "broker_id", type=int, help="0 is the master, 1.. are slaves."),
    click.option("--role", type=click.Choice([role.name for role in BrokerRole])),
    address_option("--ha-listen", "Address for slaves, on the host of --listen."),
    click.option("-n", "--namesrv", metavar="HOST:PORT;…", help="Name servers, `;` between them."),
    click.option("--store", metavar="DIR", help="Directory of the store."),
    click.option("--adopt", is_flag=True, help="Open the store of a broker that had another name."),
)
"""All of a broker's flags."""


def broker_from(
    *,
    listen: tuple[str, int] | None = None,
    ha_listen: tuple[str, int] | None = None,
    name: str | None = None,
    broker_id: int | None = None,
    role: str | None = None,
    namesrv: str | None = None,
    store: str | None = None,
    file: Path | None = None,
    settings: Sequence[str] = (),
    insecure: bool = False,
    adopt: bool = False,
) -> Loaded[BrokerConfig]:
    """The configuration that a broker's flags, the environment and a file make.

    Errors: ConfigError.
    """
    flags = [
        *_listen_entries(listen),
        *_entries("--name", brokerName=name),
        *_entries("--id", brokerId=broker_id),
        *_entries("--role", brokerRole=role),
        *_entries("--namesrv", namesrvAddr=namesrv),
        *_entries("--store", storePathRootDir=store),
        *_entries("--insecure", insecure=insecure or None),
        *_entries("--adopt", adoptStore=adopt or None),
    ]
    if ha_listen is not None:
        flags += _entries("--ha-listen", haListenPort=ha_listen[1])
    loaded = load_broker(file, os.environ, [*flags, *map(set_entry, settings)])
    bound = loaded.config.bind_address
    if ha_listen is not None and ha_listen[0] != bound:
        raise click.UsageError(
            f"--ha-listen {ha_listen[0]} must be the host of --listen ({bound}):"
            " a broker binds one address"
        )
    return loaded


def namesrv_from(
    *,
    listen: tuple[str, int] | None = None,
    file: Path | None = None,
    settings: Sequence[str] = (),
    insecure: bool = False,
) -> Loaded[NamesrvConfig]:
    """Do the same as `broker_from`, for a name server."""
    flags = [*_listen_entries(listen), *_entries("--insecure", insecure=insecure or None)]
    return load_namesrv(file, os.environ, [*flags, *map(set_entry, settings)])


def _listen_entries(listen: tuple[str, int] | None) -> list[FileEntry]:
    if listen is None:
        return []
    host, port = listen
    return [*_entries("--listen", bindAddress=host), *_entries("--listen", listenPort=port)]


def _entries(flag: str, **values: object) -> list[FileEntry]:
    return [FileEntry(key, str(value), flag) for key, value in values.items() if value is not None]
