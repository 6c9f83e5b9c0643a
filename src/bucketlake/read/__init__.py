"""How a table answers: file-system view, pruning, snapshots, time travel."""
