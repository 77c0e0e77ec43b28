"""Parts that brokers of both kinds share: files, ports, registration, metrics."""
