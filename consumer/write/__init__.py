"""Target transactions: rows, DDL statements, conflicts, and the lanes that execute them."""
