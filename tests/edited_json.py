"""JSON files of a table as a program edits them that knows nothing of their checksum."""

from __future__ import annotations

import json
from typing import Any

from bucketlake.format.json_fields import CHECKSUM_MEMBER


def edited_json(content: bytes, **members: Any) -> bytes:
    """Return JSON with other members, and without the checksum of what it was."""
    held = json.loads(content)
    held.pop(CHECKSUM_MEMBER, None)
    return json.dumps({**held, **members}).encode()
