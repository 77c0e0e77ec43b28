"""Secrets are taken out wherever a name stands beside a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.redaction import redacted, without_secrets


@pytest.mark.parametrize(
    "text",
    [
        "haSecret=hush",
        "haSecret = hush",
        "ha_secret: hush",
        '{"haSecret": "hush"}',
        '"line {\\"tlsKeyPassword\\": \\"hush\\"}"',
        "accessKey=hush&topic=T",
        "--set haSecret=hush --listen :1",
        "ACCESS_KEY='hush'",
        "admin.token:hush,next",
        "https://me:hush@host/x",
        '{"tls.server.keyPassword": "two hush, words"}',
        'tls.server.keyPassword = "a \\"hush\\" b"',
        '"line {\\"password\\": \\"one} hush\\"}"',
    ],
)
def test_the_value_goes_and_the_name_stays(text: str) -> None:
    assert "hush" not in redacted(text)
    assert redacted(text) != "******"
    assert redacted(redacted(text)) == redacted(text)


def test_what_is_no_secret_stays() -> None:
    for text in ("topic=T", "the slave closed the link", "http://h:9876/metrics", "10.0.0.1:10911"):
        assert redacted(text) == text


def test_settings_of_either_shape_are_hidden_in_depth() -> None:
    told = {
        "settings": [{"key": "haSecret", "value": "hush", "origin": "broker.conf:3"}],
        "broker": {"haSecret": "hush", "haSecretEmpty": "", "listenPort": 1},
        "config": ["aclKey=1", "secretKey=hush"],
        "deep": [[{"x": "password: hush"}]],
    }
    clean = without_secrets(told)
    assert "hush" not in json.dumps(clean)
    assert clean["settings"][0]["origin"] == "broker.conf:3"
    assert clean["broker"] == {"haSecret": "******", "haSecretEmpty": "", "listenPort": 1}


@settings(deadline=None)
@given(
    st.sampled_from(["haSecret", "password", "x.token", "credentials", "accesskey"]),
    st.text("abcXYZ019_-/+.", min_size=6),
    st.sampled_from(["=", ": ", " = ", '": "', "='"]),
    st.text(max_size=20),
)
def test_no_secret_survives_whatever_stands_around_it(
    name: str, secret: str, between: str, around: str
) -> None:
    text = f"{around} {name}{between}Q{secret}Q {around}"
    assert f"Q{secret}Q" not in redacted(text)
