"""Undoes commits, and keeps a way back: rollback, savepoints, restore."""
