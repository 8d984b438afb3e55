"""Which worker runs which task: a pure function, and the scheduler that writes its result."""
