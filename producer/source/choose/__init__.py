"""Which member of the set is read: its lag, its judgement, and the choice."""
