"""The reasons for which TLS fails, in words that name the cure."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

TLS_HANDSHAKE, TLS_ALERT = 0x16, 0x15
"""First bytes of a TLS record; no frame of ours is so long that it begins with one of them."""

SPEAKS_NO_TLS = (
    "it may not speak TLS (tls.server.mode=disabled); name a certificate there "
    "(tls.server.certPath), or do not ask for TLS here"
)
NEEDS_TLS: Final = (
    "it accepts TLS only (tls.server.mode=enforcing); set tls = true in the context or "
    "TRIOHA_TLS_ENABLE=true, for a node tls.enable=true"
)
_FOREIGN_CA = (
    "an authority that is not trusted here signed its certificate; trust its CA (tls_ca of the "
    "context, tls.client.trustCertPath or tls.server.trustCertPath of a node)"
)
_SET_THE_CLOCK = "replace the certificate, or correct the clock of this machine"

_VERIFY_CODES: Mapping[int, str] = {
    9: f"its certificate is not valid yet; {_SET_THE_CLOCK}",
    10: f"its certificate has expired; {_SET_THE_CLOCK}",
    18: _FOREIGN_CA,
    19: _FOREIGN_CA,
    20: _FOREIGN_CA,
    21: _FOREIGN_CA,
    26: (
        "its certificate is not for this end of a connection, as an operator's is not for a node; "
        "`trioha security issue HOST` makes one for a node"
    ),
}
"""Reasons by OpenSSL's X509_V_ERR_ numbers."""

_WRONG_NAME_CODES = (62, 63, 64)  # host name, e-mail and IP address mismatch

_OUR_CERTIFICATE = "it rejected the certificate of this side"
_CHANGED = "bytes were changed on the way"
_REASONS: Mapping[str, str] = {
    "WRONG_VERSION_NUMBER": SPEAKS_NO_TLS,
    "RECORD_LAYER_FAILURE": SPEAKS_NO_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "it showed no certificate, and tls.server.need.client.auth=require asks for one; "
        "give it a certificate and a key"
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "it requires a certificate of this side; set tls_cert and tls_key of the context, "
        "for a node tls.client.certPath and tls.client.keyPath"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": f"{_OUR_CERTIFICATE}: it does not trust the CA that signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_OUR_CERTIFICATE}: it has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{_OUR_CERTIFICATE}: it does not trust it",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": f"{_OUR_CERTIFICATE}: it is not for this end",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_OUR_CERTIFICATE}: it finds it broken or misnamed",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no common version of TLS; TLS 1.2 is the oldest",
    "UNSUPPORTED_PROTOCOL": "no common version of TLS; TLS 1.2 is the oldest",
    "NO_SHARED_CIPHER": "no common cipher",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "it rejected the handshake: no common cipher, or it requires a certificate of this side"
    ),
    "SSLV3_ALERT_BAD_RECORD_MAC": _CHANGED,
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": _CHANGED,
}
"""Reasons by OpenSSL's name of the error."""


_NO_RECORD = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's names for bytes that are no TLS record. OpenSSL 3.6 also gives the second of them to a
record whose bytes were changed."""


def tls_reason(error: ssl.SSLError, *, is_shaken: bool = False) -> str:
    """Return why TLS failed, about the peer as "it", with the cure where there is one.

    `is_shaken`: the handshake is over, so the peer does speak TLS.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME_CODES:
            message = error.verify_message.rstrip(".")
            return (
                f"its certificate is for another host: {message}; name this host in the "
                "certificate, or ask it by a name that the certificate has"
            )
        known = _VERIFY_CODES.get(error.verify_code)
        return known or f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    if is_shaken and reason in _NO_RECORD:
        return _CHANGED
    return _REASONS.get(reason, reason.replace("_", " ").lower())
