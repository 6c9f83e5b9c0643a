"""The contenders and their steps, and what they are called."""

from __future__ import annotations

STREAM, MICRO = "stream", "micro"
CONTENDERS = (STREAM, MICRO)

RUN, READ = "run", "read"
"""Steps of the stream. The read is compared with what the rows must add up to."""

MAKE_SMALL, MAKE_LARGE, BATCHES = "make_small", "make_large", "batches"
"""Steps of the small batches."""

SMALL, LARGE = "small", "large"
"""The two tables of the small batches."""

STEPS = {STREAM: (RUN, READ), MICRO: (MAKE_SMALL, MAKE_LARGE, BATCHES)}

SERVICES = ("compact", "clean", "archive")
"""What runs within a batch, from time to time, in this order."""
