"""SQL92 filters beside RocketMQ's: its filter module judges expressions, its client subscribes."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from support.fakes.sql_filters import drawn_expression, drawn_properties
from support.peers.java import compiled_classes, java_command, java_environment, require_java
from support.suite.drawn_seed import drawn_seed

from trioha.broker.sql.java_values import SqlEvaluationError
from trioha.broker.sql.parser import parse_sql_filter
from trioha.broker.sql.tokens import SqlFilterError, TrailingTextError

PAIRS = 6000
JUDGE_S = 120


def java_verdicts(home: Path, questions: list[tuple[str, dict[str, str]]]) -> list[str]:
    """What RocketMQ's filter module says, one word each; see FilterJudge.java."""
    require_java()
    lines = [json.dumps({"expression": text, "properties": props}) for text, props in questions]
    done = subprocess.run(
        java_command("FilterJudge", home, [], classes=compiled_classes()),
        env=java_environment(home),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=JUDGE_S,
        check=True,
    )
    return done.stdout.split()


def our_verdict(text: str, properties: dict[str, str]) -> str:
    try:
        found = parse_sql_filter(text).evaluate(properties)
    except TrailingTextError:
        return "trailing"
    except SqlFilterError:
        return "invalid"
    except SqlEvaluationError:
        return "exception"
    return {None: "null", True: "true", False: "false"}[found]


def test_every_drawn_expression_means_the_same_to_rocketmq(tmp_path: Path) -> None:
    rng = random.Random(drawn_seed("sql filters"))
    questions = [(drawn_expression(rng), drawn_properties(rng)) for _ in range(PAIRS)]
    theirs = java_verdicts(tmp_path, questions)
    ours = [our_verdict(*question) for question in questions]
    differences = [
        f"{text!r} {properties} java {their} ours {our}"
        for (text, properties), their, our in zip(questions, theirs, ours, strict=True)
        # What follows a complete expression does not matter to RocketMQ: it accepts the text.
        if our != their and not (our == "trailing" and their != "invalid")
    ]
    assert differences == []
    # The draw is worth something: each verdict is frequent.
    for verdict in ("invalid", "null", "true", "false", "exception", "trailing"):
        assert ours.count(verdict) > PAIRS // 100, verdict
