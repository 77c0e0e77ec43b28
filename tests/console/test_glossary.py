"""Every column has its words in docs/glossary.md, and `?` shows them."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import trioha_console
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_members, add_topics
from support.screens.screens import LARGE, SMALL, open_console
from trioha_console.arrange import Shape
from trioha_console.screens.failover import FailoverScreen
from trioha_console.screens.help import HelpScreen

from trioha.glossary import column_meaning, column_words, explain


def every_column() -> set[tuple[str, str]]:
    """Table and title of each column that the console has."""
    found = set()
    for module in pkgutil.walk_packages(trioha_console.__path__, "trioha_console."):
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, Shape):
                found |= {(one.name, column.title) for column in one.columns}
    return found


def test_every_column_is_explained_and_no_column_that_there_is_not() -> None:
    words, found = column_words(), every_column()
    assert len(found) > 100
    assert [one for one in sorted(found) if not column_meaning(words, *one)] == []
    titles = {title for _, title in found}
    of_all = {("all", title) for title in titles}
    assert [one for one in words if one not in found | of_all] == []


def test_a_screen_s_own_words_come_before_those_for_all() -> None:
    words = column_words()
    assert "slave lacks" in str(column_meaning(words, "replication", "BEHIND"))
    assert "group has not consumed" in str(column_meaning(words, "groups", "BEHIND"))
    assert column_meaning(words, "groups", "NO SUCH") is None


def test_the_shell_explains_columns_too() -> None:
    assert str(explain("kept for")).startswith("kept for: time for which a broker still keeps")
    told = str(explain("CHOICE"))
    assert told.startswith("CHOICE: new: it would become master")
    assert len(str(explain("QUEUES")).splitlines()) == 2
    assert explain("no such word") is None


def a_cluster() -> RawCluster:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_topics(cluster, master)
    add_members(cluster, master)
    return cluster


@pytest.mark.parametrize(
    ("keys", "table"),
    [
        ("1", "replication"),
        ("2", "brokers"),
        ("3", "topics"),
        ("4", "queues"),
        ("5", "groups"),
        ("6", "messages"),
        ("7", "alerts"),
        (("5", "enter"), "group"),
        (("5", "enter", "tab"), "members"),
        (("1", "enter"), "journal"),
    ],
)
async def test_a_question_mark_explains_the_columns_of_the_screen_in_front(
    keys: str | tuple[str, ...], table: str
) -> None:
    async with open_console(a_cluster(), (200, 120)) as console:
        await console.press(*keys)
        await console.tick()
        if table == "journal":
            await console.press("tab")
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        words = column_words()
        for name, title in every_column():
            if name == table:
                meaning = str(column_meaning(words, table, title))
                (line,) = [
                    one
                    for one in console.text.splitlines()
                    if f"  {title:<17} {meaning[:30]}" in one
                ]
                assert line
        await console.press("question_mark")
        assert not isinstance(console.app.screen, HelpScreen)


async def test_columns_without_room_come_after_those_that_are_shown() -> None:
    async with open_console(a_cluster(), SMALL) as console:
        await console.press("3", "question_mark")
        shown, _, others = console.text.partition("Columns on a wider terminal")
        for title in ("TOPIC", "HELD", "IN/S", "LAST PUT", "LAG", "GROUPS"):
            assert f"│   {title} " in shown, title
        assert "│   ALLOWS " not in shown
        assert others
    async with open_console(a_cluster(), LARGE) as console:
        await console.press("3", "question_mark")
        assert "│   ALLOWS " in console.text
        assert "on a wider terminal" not in console.text


async def test_a_wizard_explains_all_its_tables() -> None:
    async with open_console(a_cluster(), (200, 120)) as console:
        await console.press("F")
        assert isinstance(console.app.screen, FailoverScreen)
        await console.press("question_mark")
        assert "LOG ENDS " in console.text
        assert "how the step ended" in console.text
