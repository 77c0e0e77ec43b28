"""`trioha help WORD`: a command's help, or what a word means; and the manual pages."""

from __future__ import annotations

from pathlib import Path

import click

from trioha.cli import COMMANDS, cli
from trioha.errors import TriohaError
from trioha.glossary import explain, glossary
from trioha.words import what_there_is


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND… | WORD…]")
@click.option(
    "--man",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the manual pages of all commands into DIR.",
)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], directory: Path | None) -> None:
    """Explain a command, or a word that a screen or a table uses.

    \b
    trioha help topic create
    trioha help lag
    trioha help --man ~/.local/share/man/man1       then: man trioha-topic-create

    Exit codes: 1 no such command or word.
    """
    if directory is not None:
        from trioha.cli.manual import manual_pages

        directory.mkdir(parents=True, exist_ok=True)
        pages = manual_pages(cli)
        for name, text in pages.items():
            (directory / f"{name}.1").write_text(text)
        click.echo(f"{len(pages)} pages in {directory}; `man -l {directory}/trioha.1` shows one")
        return
    root = click.Context(cli, info_name="trioha")
    if not words:
        click.echo(cli.get_help(root))
        return
    found = _help_of(root, words) or explain(" ".join(words))
    if found is None:
        known = [*COMMANDS, *glossary()]
        wanted = " ".join(words)
        cure = what_there_is(wanted, known, otherwise="; `trioha --help` lists the commands")
        raise TriohaError(f"neither a command nor a word of the glossary: {wanted}{cure}")
    click.echo(found)


def _help_of(ctx: click.Context, words: tuple[str, ...]) -> str | None:
    found: click.Command = cli
    for word in words:
        if not isinstance(found, click.Group):
            return None
        inner = found.get_command(ctx, word)
        if inner is None:
            return None
        found, ctx = inner, click.Context(inner, info_name=word, parent=ctx)
    return found.get_help(ctx)
