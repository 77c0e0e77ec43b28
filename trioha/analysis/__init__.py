"""Read stores and journals offline: tables of rows for Spark, DuckDB and the reports."""
