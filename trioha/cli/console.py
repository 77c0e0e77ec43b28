"""`trioha console`: watch a cluster, in a terminal."""

from __future__ import annotations

import click

from trioha.cli.client_options import namesrv_option
from trioha.errors import TriohaError
from trioha.wire.address import parse_namesrvs


@click.command("console")
@namesrv_option
@click.option(
    "--write",
    is_flag=True,
    help="Allow what changes the cluster. Every such step still asks for a name to be typed.",
)
def command(namesrv: str, write: bool) -> None:
    """Watch a cluster: replication links, brokers, topics, groups, messages.

    \b
    trioha console -n 127.0.0.1:9876
    trioha console -n '10.0.0.1:9876;10.0.0.2:9876' --write
    """
    try:
        from trioha_console.app import ConsoleApp
        from trioha_console.source import LiveSource
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("textual", "rich")):
            raise
        raise TriohaError("the console needs Textual; pip install 'trioha[console]'") from None
    ConsoleApp(LiveSource(parse_namesrvs(namesrv)), armed=write).run()
