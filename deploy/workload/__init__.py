"""Workloads that the demonstration, the benchmarks and the fault campaigns run against a source."""
