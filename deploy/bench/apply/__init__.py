"""The benchmark of ``make bench-apply``: one module a kind of figure, ``run`` names the lines."""
