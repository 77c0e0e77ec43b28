"""Reasons why a message was late, came twice, or was never seen, from the files of brokers."""
