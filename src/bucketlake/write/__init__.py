"""How a table changes: tag, place, merge, commit; Arrow in, files and statistics out."""
