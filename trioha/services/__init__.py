"""Ring 2: the Trio shells. The only ring that opens sockets and reads clocks."""
