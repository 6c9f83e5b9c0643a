"""Statistics of columns in the metadata table: measured, merged and looked up."""
