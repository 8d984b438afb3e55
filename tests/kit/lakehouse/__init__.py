"""The lakehouse of ``examples/lakehouse``: its programs as processes, and a source whose rows change meanwhile."""
