"""The words of one account. Not compiled: attrs makes the class."""

from __future__ import annotations

from collections.abc import Sequence

import attrs


@attrs.frozen
class AccountText:
    """One account as its file or a request words it."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    white_remote_address: str = ""
    admin: bool = False
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: Sequence[str] = ()
    group_perms: Sequence[str] = ()
