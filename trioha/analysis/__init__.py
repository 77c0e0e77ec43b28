"""Read stores and journals offline: tables of rows for Spark, SQLite and the reports."""
