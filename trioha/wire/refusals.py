"""The two codes that most requests are refused with."""

from __future__ import annotations

from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode


def system_error(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)


def no_permission(remark: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, remark)
