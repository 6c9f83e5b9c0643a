"""A page about a table, for people: what it holds, how it grew, and what needs attention."""
