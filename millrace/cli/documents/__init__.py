"""Documents in files: plan, export, schema, and their history."""
