"""``python -m millrace``: the command line."""

from millrace.cli import main

main()
