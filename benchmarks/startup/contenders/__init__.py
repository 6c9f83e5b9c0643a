"""The contender that this benchmark adds to those of the upsert benchmark."""
