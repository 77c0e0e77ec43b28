"""Timer messages: delivery at any second up to `timerMaxDelaySec`, and their recall.

The layout in the log is that of RocketMQ 5 (`trioha.wire.timers`). `window` decides, without a
store, which messages are next. `service` delivers them, `progress` keeps how far it has come, and
`recall` answers request 370.
"""
