"""Manual pages of all commands, made of the text of their --help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from trioha import __version__


def manual_pages(root: click.Command) -> dict[str, str]:
    """Return the pages by name: ``trioha``, ``trioha-topic``, ``trioha-topic-create``, …"""
    context = click.Context(root, info_name="trioha")
    return {name: _page(name, one, ctx) for name, one, ctx in _commands("trioha", root, context)}


def _commands(
    name: str, command: click.Command, ctx: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield name, command, ctx
    if isinstance(command, click.Group):
        for verb in command.list_commands(ctx):
            inner = command.get_command(ctx, verb)
            assert inner is not None, f"{name} lists {verb} and has it not"
            child = click.Context(inner, info_name=verb, parent=ctx)
            yield from _commands(f"{name}-{verb}", inner, child)


def _page(name: str, command: click.Command, ctx: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [
        f'.TH "{name.upper()}" "1" "" "trioha {__version__}"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(ctx.command_path)}",
        _plain(usage),
        ".SH DESCRIPTION",
        *_description(command.help or ""),
    ]
    options = [
        record for param in command.get_params(ctx) if (record := param.get_help_record(ctx))
    ]
    if options:
        lines.append(".SH OPTIONS")
        for flags, text in options:
            lines += [".TP", f".B {_plain(flags)}", _plain(text)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for verb in command.list_commands(ctx):
            inner = command.get_command(ctx, verb)
            assert inner is not None, f"{name} lists {verb} and has it not"
            lines += [".TP", f".B {_plain(name)}\\-{_plain(verb)}(1)"]
            lines.append(_plain(inner.get_short_help_str(200)))
    return "\n".join(lines) + "\n"


def _description(text: str) -> Iterator[str]:
    """Yield a help text's paragraphs; those behind a form feed mark keep their lines."""
    for paragraph in text.split("\n\n"):
        yield ".PP"
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            yield ".nf"
            yield from (_plain(line) for line in lines[1:])
            yield ".fi"
        else:
            yield from (_plain(line.strip()) for line in lines)


def _plain(text: str) -> str:
    """Return text that roff takes as it is."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("\f", "")
    return f"\\&{safe}" if safe[:1] in (".", "'") else safe
