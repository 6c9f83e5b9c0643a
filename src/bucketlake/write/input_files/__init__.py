"""Files that hold the records of a write."""
