"""One capture task of a worker: its pipeline, its resumption, its lag; and a relay without tasks."""
