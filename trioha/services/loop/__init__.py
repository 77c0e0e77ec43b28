"""Tools of every task: the clock, alarms, nurseries, byte streams."""
