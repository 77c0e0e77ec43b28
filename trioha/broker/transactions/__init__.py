"""Transactional messages: half messages, their ends, and the checks of those that stay open.

The layout in the log is RocketMQ's (TransactionalMessageBridge, TransactionalMessageServiceImpl of
4.9.7): `records` makes and reads it. `pending` decides, without a store, what becomes of a half
message. `service` carries that out, and `end` answers request 37.
"""
