"""Workloads in which every wrong copy is detectable."""
