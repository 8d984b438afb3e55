"""Turns: one execution in Spark, in one executor or spread over several."""
