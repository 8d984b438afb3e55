"""The session to the ensemble: the only package that knows kazoo."""
