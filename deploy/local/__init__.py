"""The local stack: everything on this machine, in the foreground or in the background."""
