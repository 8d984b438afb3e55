"""Running it: fetching servers, the local stack, the demonstration."""
