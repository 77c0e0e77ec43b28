"""Table of the `:` commands; the palette and the help show the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from trioha.errors import TriohaError


@attrs.frozen
class Command:
    """A command: name, aliases, arguments, help and action, which gets the rest of the line."""

    name: str
    aliases: tuple[str, ...]
    takes: str
    help: str
    action: str
    """The program's ``command_<action>`` method."""

    @property
    def usage(self) -> str:
        return f":{self.name} {self.takes}".rstrip()


COMMANDS: Sequence[Command] = (
    Command("replication", ("ha", "links"), "[FILTER]", "Replication links.", "view"),
    Command("brokers", ("cluster", "nodes"), "[FILTER]", "Brokers and name servers.", "view"),
    Command("topics", (), "[FILTER]", "Topics.", "view"),
    Command("queues", (), "[FILTER]", "Queues.", "view"),
    Command("groups", ("consumers",), "[FILTER]", "Consumer groups.", "view"),
    Command("messages", ("browse",), "[QUERY]", "Messages: `:messages orders since 10m`.", "view"),
    Command("alerts", (), "[FILTER]", "Alerts.", "view"),
    Command("clusters", ("contexts",), "[FILTER]", "Clusters of all contexts.", "view"),
    Command("goto", ("node",), "BROKER[ ID]|ADDRESS", "Open a node.", "goto"),
    Command("group", (), "NAME", "Open a consumer group.", "group"),
    Command(
        "failover",
        ("switch", "transfer"),
        "BROKER [ID]",
        "Fail over; a group hands over.",
        "failover",
    ),
    Command("create-topic", (), "NAME [QUEUES] [rw]", "Create a topic.", "operate"),
    Command("alter-topic", (), "NAME queues N|perm r|order yes", "Change a topic.", "operate"),
    Command("delete-topic", (), "NAME", "Delete a topic.", "operate"),
    Command("create-group", (), "NAME [retry N]", "Create a group.", "operate"),
    Command("alter-group", (), "NAME retry N|consume no", "Change a group.", "operate"),
    Command("delete-group", (), "NAME", "Delete a group, its progress, its DLQ.", "operate"),
    Command("reset-offsets", (), "GROUP TOPIC 1h ago|latest", "Move a group's offsets.", "operate"),
    Command("dlq", (), "GROUP", "Browse a group's dead letters.", "dlq"),
    Command("resend", (), "GROUP [ID]", "Resend dead letters, or one.", "operate"),
    Command("purge", (), "GROUP", "Delete a group's dead letters.", "operate"),
    Command("set", (), "BROKER KEY VALUE", "Change a broker's setting.", "operate"),
    Command("drain", (), "BROKER [ID]", "Empty a broker before it is stopped.", "operate"),
    Command("undrain", (), "BROKER", "Let producers use it again.", "operate"),
    Command("filter", (), "[WORDS]", "Show rows with these words; !word without.", "filter"),
    Command("sort", (), "COLUMN [down]", "Sort the table.", "sort"),
    Command("export", ("save",), "csv|json [FILE]", "Write the table to a file.", "export"),
    Command("screenshot", ("shot",), "[FILE]", "Write the screen as SVG.", "screenshot"),
    Command("theme", (), "[NAME]", "Change the colours.", "theme"),
    Command("context", ("ctx",), "[NAME]", "Watch another cluster.", "context"),
    Command("jump", (), "TIME|+10s|-1m", "Of a recording: go there.", "jump"),
    Command("pause", (), "", "Stop drawing, or go on.", "pause"),
    Command("help", ("h",), "", "Keys and commands.", "help"),
    Command("quit", ("q", "q!", "exit"), "", "Leave.", "quit"),
)


def find_command(line: str) -> tuple[Command, str]:
    """The command of a line, and what follows it. An unambiguous beginning will do.

    Errors: TriohaError with the nearest words.
    """
    word, _, rest = line.strip().removeprefix(":").partition(" ")
    for command in COMMANDS:
        if word in (command.name, *command.aliases):
            return command, rest.strip()
    begun = [one for one in COMMANDS if word and one.name.startswith(word)]
    if len(begun) == 1:
        return begun[0], rest.strip()
    if begun:
        raise TriohaError(f":{word} could be {', '.join(f':{one.name}' for one in begun)}")
    raise TriohaError(f"there is no command :{word}; ? lists them")


def completions(line: str, names_of: Callable[[str, str], Iterable[str]]) -> list[str]:
    """Return the lines that `line` may become: a command's name, then what it takes.

    `names_of` has the names that a command takes, or after a first name the second ones.
    """
    word, blank, rest = line.lstrip().partition(" ")
    if not blank:
        return [f"{one.name} " if one.takes else one.name for one in COMMANDS if _begins(one, word)]
    try:
        command, _ = find_command(word)
    except TriohaError:
        return []
    before, _, last = rest.rpartition(" ")
    if " " in before:
        return []
    folded = last.casefold()
    lead = f"{command.name} {before} " if before else f"{command.name} "
    return [
        f"{lead}{name}"
        for name in names_of(command.name, before)
        if name.casefold().startswith(folded)
    ]


def _begins(command: Command, word: str) -> bool:
    return command.name.startswith(word.casefold())
