"""Spark's ways into stores and journals. Needs the extra `spark`."""
