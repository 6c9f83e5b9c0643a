"""The merge-on-read benchmark: upserts into log files, merged reads, compaction."""
