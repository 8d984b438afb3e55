"""Commands about a local stack: ``up``, ``down``, ``demo``, ``sql``, ``bench``."""
