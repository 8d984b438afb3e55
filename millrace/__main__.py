"""The ``millrace`` program: the command line. Ctrl-C ends it quietly, also while Python imports it."""

from millrace.process.signals import leave_at_interrupt


def main() -> None:
    """The entry point."""
    leave_at_interrupt()
    from millrace.cli import main as run

    run()


if __name__ == "__main__":
    main()
