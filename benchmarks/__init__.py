"""Benchmarks: one question a file or folder; results are JSON in `results/`."""
