"""One contender, or family of contenders, a file; each is a process of its own."""
