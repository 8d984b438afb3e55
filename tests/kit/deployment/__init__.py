"""The files of ``deploy/`` for other machines: reading them, the tools that check them, a systemd that runs them."""
