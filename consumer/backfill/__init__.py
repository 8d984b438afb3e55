"""Tables that are loaded while their task runs: the side stream that catches up, and its join with main."""
