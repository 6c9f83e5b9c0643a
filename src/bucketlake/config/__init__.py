"""Typed options: the keys of ``hoodie.properties`` and their wire spelling."""
