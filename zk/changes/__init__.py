"""The edits, restarts, replays and problems on the way to wanted documents. Pure: no session."""
