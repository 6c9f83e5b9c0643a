"""What the benchmarks share: the rows, the processes, the runner, the page, the plot."""
