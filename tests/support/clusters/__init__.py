"""Clusters of real processes that a test starts in one line, of trioha, of Java, or of both."""
