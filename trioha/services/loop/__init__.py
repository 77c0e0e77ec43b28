"""What every task needs: the clock, alarms, nurseries, byte streams."""
