"""Millrace: change data capture for MySQL and MariaDB.

This package holds the command line (``millrace.cli``) and the shared utilities: errors and their codes, logs, fault
points, the home folder, the check of the installation. The utilities import no other Millrace package.
"""

__version__ = "0.2.0"
