"""Hostile and damaged files, and a process with little memory and time that reads them."""
