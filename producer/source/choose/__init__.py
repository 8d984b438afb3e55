"""Which member of the set is read: what each member answers, its lag, and the choice."""
