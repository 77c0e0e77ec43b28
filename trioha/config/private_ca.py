"""A private certificate authority: makes what the nodes and operators of one cluster show.

Keys are on the curve P-256: a handshake costs a tenth of what it costs with RSA, and every peer of
RocketMQ knows it. A CA signs no other CA. A node's certificate serves both ends of a connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
CERTIFICATE_DAYS = 825
"""More is not accepted by some clients; docs/security.md tells how a certificate is replaced."""
_CLOCKS_DIFFER = timedelta(hours=1)


@attrs.frozen
class Pem:
    """A certificate and its private key, both PEM; the key as PKCS #8, which Java wants."""

    certificate: bytes
    key: bytes = attrs.field(repr=False)


@attrs.frozen
class PrivateCa:
    """A CA that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = attrs.field(repr=False)

    @classmethod
    def make(cls, name: str, now: datetime, days: int = CA_DAYS) -> PrivateCa:
        """Return a new CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, name, key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage(sign_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, pem: Pem) -> PrivateCa:
        """Return the CA of these files. Errors: ValueError."""
        key = load_pem_private_key(pem.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the CA is not on an elliptic curve")
        return cls(x509.load_pem_x509_certificate(pem.certificate), key)

    @property
    def pem(self) -> Pem:
        return Pem(self.certificate.public_bytes(Encoding.PEM), _pem_of(self.key, ""))

    def issue(
        self,
        name: str,
        hosts: Iterable[str],
        now: datetime,
        days: int = CERTIFICATE_DAYS,
        password: str = "",
    ) -> Pem:
        """Return a certificate for these host names and addresses, and its key.

        Without any it is an operator's: no node accepts it as that of a node.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        builder = _builder(name, str(issuer), key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(sign_certificates=False), True)
        names = [_general_name(host) for host in hosts]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(authority, False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return Pem(certificate.public_bytes(Encoding.PEM), _pem_of(key, password))


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + timedelta(days=days)) - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
