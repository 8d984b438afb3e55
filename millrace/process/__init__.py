"""A process about itself: its privacy, signals, shortages, and the check of its installation."""
