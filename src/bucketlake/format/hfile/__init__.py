"""HFiles: sorted keys with values, the format of Hudi's metadata table and its log blocks."""
