"""Millrace: change data capture for MySQL and MariaDB.

This package holds the command line (``millrace.cli``) and the plumbing that everything shares: errors and their codes,
logs, fault points, the home folder, the check of roots. The plumbing imports nothing of ours.
"""
