"""The tables that a task applies: plans, statements, causality keys. It decides per table and talks to no server."""
