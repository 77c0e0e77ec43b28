"""Peers that may follow a master."""

from __future__ import annotations

import pytest

from trioha.errors import ConfigError
from trioha.ha import auth
from trioha.ha.auth import AccessPolicy, Admission

NONCE = bytes(range(28))


def test_without_settings_everybody_follows_the_classic_way() -> None:
    assert AccessPolicy.of("", "").admission("203.0.113.9:4000") is Admission.CLASSIC


def test_with_a_secret_strangers_are_challenged_and_named_networks_are_not() -> None:
    policy = AccessPolicy.of("s3cret", "10.1.0.0/16; 192.168.7.9")
    assert policy.admission("10.1.44.2:4000") is Admission.CLASSIC
    assert policy.admission("192.168.7.9:4000") is Admission.CLASSIC
    assert policy.admission("192.168.7.10:4000") is Admission.CHALLENGE
    assert policy.admission("[::1]:4000") is Admission.CHALLENGE


def test_with_networks_only_strangers_are_refused() -> None:
    policy = AccessPolicy.of("", "10.0.0.0/8,fd00::/8")
    assert policy.admission("10.9.9.9:1") is Admission.CLASSIC
    assert policy.admission("[fd00::7%eth0]:1") is Admission.CLASSIC
    assert policy.admission("[::ffff:10.9.9.9]:1") is Admission.CLASSIC
    assert policy.admission("11.9.9.9:1") is Admission.REFUSED
    assert policy.admission("memory:0") is Admission.REFUSED


def test_a_network_that_is_none_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"haAllowedPeers: '10\.0\.0\.0/40'"):
        AccessPolicy.of("", "10.0.0.0/40")


def test_only_the_right_secret_answers_a_challenge() -> None:
    message = auth.challenge(NONCE)
    assert len(message) == auth.CHALLENGE_BYTES
    good = auth.answer("s3cret", message)
    assert len(good) == auth.ANSWER_BYTES
    assert auth.is_answer("s3cret", message, good)
    assert not auth.is_answer("other", message, good)
    assert not auth.is_answer("s3cret", auth.challenge(bytes(28)), good)


def test_the_answer_is_what_the_documentation_says() -> None:
    """HMAC-SHA256(secret, nonce + b"trioha-ha-slave"): other implementations rely on it."""
    assert auth.answer("s3cret", auth.challenge(NONCE)).hex() == (
        "a4f9bbd06a2766167d4ea84268e2c16033408588d340389bf41a55c0321379eb"
    )
