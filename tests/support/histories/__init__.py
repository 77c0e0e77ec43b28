"""Clients that note each answer of real processes; the judge that compares answers with logs."""
