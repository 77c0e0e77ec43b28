"""Hot keys and tags: which are on most messages, and on what share of their topic's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trioha.analysis.engine import Engine
from trioha.analysis.reports.dialect import each_word
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import say_share
from trioha.analysis.results import Finding, Table

HOT_SHARE = 0.2
HOT_MESSAGES_MIN = 100
"""Below, a key that stands out is chance."""


def hot_table(engine: Engine, column: str, top: int) -> Table:
    """`column` is ``keys``, each of which counts for itself, or ``tags``."""
    # Unique keys are as many as messages, so what stands on one message is summed up before the
    # ranking; and every part is read once, since Spark would scan again for a second reading.
    value_if_repeated = "CASE WHEN messages > 1 THEN value END"
    rows = engine.query(
        "WITH words AS (SELECT store, topic, value, COUNT(*) AS messages FROM "
        f"({_words(engine, column)}) AS w WHERE value <> '' GROUP BY store, topic, value), "
        f"repeated AS (SELECT store, topic, {value_if_repeated} AS value, "
        "SUM(messages) AS messages, COUNT(*) AS kinds FROM words "
        f"GROUP BY store, topic, {value_if_repeated}), "
        "ranked AS (SELECT store, topic, value, messages, "
        "SUM(messages) OVER (PARTITION BY store, topic) AS of_topic, "
        "SUM(kinds) OVER (PARTITION BY store, topic) AS kinds, "
        "ROW_NUMBER() OVER (PARTITION BY store ORDER BY CASE WHEN value IS NULL THEN 1 ELSE 0 END, "
        "messages DESC, topic, value) AS place FROM repeated) "
        "SELECT store, topic, value, messages, of_topic, kinds FROM ranked "
        f"WHERE value IS NOT NULL AND place <= {top} ORDER BY store, place",
    )
    name = column[:-1]
    for row in rows:
        row |= {name: row["value"], "share": row["messages"] / row["of_topic"]}
    return table(
        f"hot_{column}",
        f"The {top} {column} on most messages of each store, if on more than one; "
        f"the share is of the topic's {column}",
        f"store topic {name} messages:integer share:share kinds:integer",
        rows,
    )


def _words(engine: Engine, column: str) -> str:
    """SELECT of store, topic and value, a row for each word of each message."""
    whole = f"SELECT store, topic, {column} AS value FROM commitlog_full"
    if column != "keys":
        return whole
    words = (
        f"SELECT store, topic, word.value AS value FROM commitlog_full{each_word(engine, column)}"
    )
    if engine.name == "spark":
        return words
    # A text that is one word, as most are, need not be cut: that takes longer than to count it.
    has_several = f"CONTAINS({column}, ' ')"
    return f"{whole} WHERE NOT {has_several} UNION ALL {words} WHERE {has_several}"


def hot_findings(tables: Iterable[Table]) -> Iterator[Finding]:
    """Sentences on keys and tags that stand out."""
    for each in tables:
        word = each.columns[2].name
        for store, topic, value, messages, share, kinds in each.rows:
            assert isinstance(messages, int)
            assert isinstance(share, float)
            assert isinstance(kinds, int)
            # With few kinds an even spread is a large share already.
            if messages >= HOT_MESSAGES_MIN and kinds > 1 and share >= max(HOT_SHARE, 3 / kinds):
                yield Finding.warning(
                    f"{store}: {word} {value!r:.60} makes up {say_share(share, 1)} of the "
                    f"{word}s on topic {topic} ({messages:,} messages; {kinds:,} {word}s)."
                )
