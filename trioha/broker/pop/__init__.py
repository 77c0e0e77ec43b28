"""POP consumption of RocketMQ 5: the broker hands messages out, and each is acknowledged alone.

`in_flight`, `order` and `live_records` decide, without a store, what is delivered again and when.
`records` makes and reads the revive log, `service` carries the decisions out, `hold` parks requests
that found nothing, and `requests`, `acks` and `assignment` answer the request codes.
"""
