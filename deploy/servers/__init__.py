"""Real servers on loopback for tests, demonstration and the local stack."""
