"""Windows of checked records, and how each of their rows is to be applied."""
