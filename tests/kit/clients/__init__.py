"""Clients of other projects that read published topics: a scene of topics, a contract, a table of what they did."""
