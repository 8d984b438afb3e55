"""Guards of the product taken away one by one: the test of each must go red, by the harm that the mutant names.

`make mutants` runs them (``plugin.py``). A mutant names its test by node id; no test is imported. This is the only
place where tests replace private parts of the product. Guards that the simulation judges are in
``tests/mutants/simulation_guards.py``.
"""
