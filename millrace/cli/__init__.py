"""The command line; its commands live in the modules beside this one."""
