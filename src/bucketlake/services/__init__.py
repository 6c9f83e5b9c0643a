"""What keeps a table in shape: rewriting its files without changing its rows."""
