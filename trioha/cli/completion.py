"""`trioha completion SHELL`: the lines by which a shell completes commands and live names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trioha.cli import cli

VARIABLE = "_TRIOHA_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what lets SHELL complete commands, options, and names of the live cluster.

    \b
    eval "$(trioha completion bash)"                        in ~/.bashrc
    trioha completion zsh > ~/.zfunc/_trioha
    trioha completion fish > ~/.config/fish/completions/trioha.fish

    Topics, groups and brokers are asked for when TAB is pressed, with a patience of 1 s, of the
    cluster that -n, --context or the current context names.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the shells of the choice"
    click.echo(found(cli, {}, "trioha", VARIABLE).source())
