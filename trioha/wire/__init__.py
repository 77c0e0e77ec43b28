"""Ring 0: bytes to frozen values and back. No state beyond a buffer, no I/O, no clock."""
