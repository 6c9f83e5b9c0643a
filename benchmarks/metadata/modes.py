"""The two tables of each pair: with a metadata table, and without."""

from __future__ import annotations

ON, OFF = "on", "off"
