"""KV configuration of a name server: namespaces of keys and values (KVConfigManager.java)."""

from __future__ import annotations

from typing import Self

from trioha.errors import CommandError, RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.codes import ResponseCode
from trioha.wire.json_fields import object_of, text
from trioha.wire.remoting_command import Buffer

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Namespace of topic -> ``broker:queues;broker:queues``: in routes if order is enabled."""

ENTRIES_MAX = 10_000
"""Limit over all namespaces; each change writes the whole file."""
VALUE_LENGTH_MAX = 65_536
KEY_LENGTH_MAX = 255
"""Limit of a namespace's or a key's length in characters."""


class KvConfig:
    """Table of namespaces. Every change raises `version`, which tells the shell what is saved."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self.version = 0

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def list(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of one namespace; None if no value was ever put there."""
        table = self._namespaces.get(namespace)
        return None if table is None else dict(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Errors: CommandError if it is too long or the table is full."""
        if not (0 < len(namespace) <= KEY_LENGTH_MAX and 0 < len(key) <= KEY_LENGTH_MAX):
            raise _refusal(f"namespace and key have 1 to {KEY_LENGTH_MAX} characters")
        if len(value) > VALUE_LENGTH_MAX:
            raise _refusal(f"a value has at most {VALUE_LENGTH_MAX} characters")
        table = self._namespaces.get(namespace, {})
        if key not in table:
            if self._count >= self._entries_max:
                raise _refusal(f"there are {self._entries_max} entries already")
            self._count += 1
        table[key] = value
        self._namespaces[namespace] = table
        self.version += 1

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return False if there was none. Empty namespaces stay, as in RocketMQ."""
        if self._namespaces.get(namespace, {}).pop(key, None) is None:
            return False
        self._count -= 1
        self.version += 1
        return True

    def encode(self) -> bytes:
        """Return the text of kvConfig.json."""
        return fastjson.dumps({"configTable": self._namespaces})

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read kvConfig.json, RocketMQ's or ours.

        Errors: RemoteProtocolError if it is another kind of file.
        """
        table = object_of(object_of(fastjson.loads(data), "KV file").get("configTable"), "KV table")
        config = cls()
        for namespace in table:
            values = object_of(table[namespace], namespace)
            config._namespaces[namespace] = {}
            for key in values:
                try:
                    config.put(namespace, key, text(values, key))
                except CommandError as error:
                    raise RemoteProtocolError(error.remark) from None
        config.version = 0
        return config


def _refusal(reason: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, f"KV configuration: {reason}")
