"""The SQL of each table: its columns, its row identity, statements for many rows and for one row."""
