"""File slices of the data table and of the metadata table: which there are, and what is in them."""
