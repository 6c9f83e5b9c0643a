"""What the benchmarks share: the rows, the contenders' processes, the race, the page."""
