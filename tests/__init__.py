"""Tests, in rooms from fast to slow; a package so that they share helpers as ``tests.<room>``."""
