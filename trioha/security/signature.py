"""An account's credentials, for clients and nodes that sign what they send."""

from __future__ import annotations

import attrs

from trioha.security.signing_key import ACCESS_KEY, SIGNATURE, SigningKey
from trioha.wire.remoting_command import RemotingCommand


@attrs.frozen
class Credentials:
    """An account's name and secret, for a client that signs."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    _key: SigningKey = attrs.field(init=False, repr=False, eq=False)

    @_key.default
    def _make_key(self) -> SigningKey:
        return SigningKey(self.secret_key)

    @property
    def key(self) -> SigningKey:
        """The secret, ready to sign."""
        return self._key

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request in place; an earlier signature is replaced."""
        fields = request.ext_fields
        fields[ACCESS_KEY] = self.access_key
        fields[SIGNATURE] = self._key.signature_of(request)
