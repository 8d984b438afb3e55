"""What each process does about itself: its privacy, signals, shortages, and the check of its installation."""
