"""The bucket indexes: from a record key to its file group."""
