"""Simulated clusters: answers, statuses, messages and reports made by hand, for the client,
the console, `trioha watch` and the pages.
"""
