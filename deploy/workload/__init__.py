"""Workloads that the demonstration, the benchmarks and tests run against a source."""
