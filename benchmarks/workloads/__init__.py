"""Work that is measured without a peer, and most of it without Spark."""
