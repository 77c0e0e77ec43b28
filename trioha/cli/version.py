"""`trioha version`: what runs here, exactly enough for a bug report."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from trioha import __version__
from trioha.cli.output import output_option, print_json
from trioha.compiled import this_build

_LIBRARIES = ("trio", "attrs", "msgpack", "msgspec", "click", "isal")


@click.command("version")
@output_option
def command(output: str) -> None:
    """Say exactly what runs here: trioha, Python, platform, libraries, protocol.

    \b
    trioha version
    trioha version -o json
    """
    facts = version_facts()
    if output == "json":
        print_json(facts)
        return
    for name, value in facts.items():
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{library} {version}" for library, version in value.items())
        click.echo(f"{name:<15} {shown}")


def version_facts() -> dict[str, object]:
    """Return the versions of trioha and of what it runs on, as plain values."""
    return {
        "trioha": __version__,
        "build": str(this_build()),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "speaks": "RocketMQ 4.9.8",
        "libraries": {name: version for name in _LIBRARIES if (version := library_version(name))},
    }


def library_version(library: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
