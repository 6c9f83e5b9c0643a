"""Actions on the timeline: turns, commits, conflicts, recovery, rollback, restore and clean."""
