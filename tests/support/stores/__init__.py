"""Stores on disk, made fast and without a broker: small ones to test the store, plain logs,
journals, and big ones to analyse, each with what must be read out of it.
"""
