"""History of a table: instants, commit metadata, markers, the outcome of each instant."""
