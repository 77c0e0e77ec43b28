from __future__ import annotations

import pytest

from trioha.services.loop.transport import connect


@pytest.mark.parametrize("host", ["é" * 250, "\ud800"])
async def test_a_name_that_no_host_can_have_is_an_address_that_nobody_has(host: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        await connect(host, 1)
