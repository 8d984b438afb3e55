"""The figures of ``make bench``: each beside a peer that did the same work in the same run."""
