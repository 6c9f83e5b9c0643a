"""Names as callers give them: a text, or a sequence of texts; ``arguments.py`` checks them."""

from __future__ import annotations

from collections.abc import Sequence

Names = str | Sequence[str]
"""Names of columns or partitions; a text is one name, not a sequence of letters."""
