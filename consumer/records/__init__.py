"""The records of a topic as arrays: read, cut into pieces and source transactions, walked into rows."""
