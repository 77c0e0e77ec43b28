"""What clients sent to real processes and were told, and the judges that compare it with logs."""
