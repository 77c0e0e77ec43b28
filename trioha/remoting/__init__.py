"""Ring 1: remoting as a machine, and the seam between a connection and its handlers."""
