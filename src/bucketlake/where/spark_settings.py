"""Settings of a Spark session under which bucketlake understands SQL text as Spark does.

They stand apart from the parser, whose SQL library takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SPARK_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.ansi.enforceReservedKeywords": "false",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
        "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    }
)
"""Settings of a Spark session, by key, that change what SQL text means: their defaults."""
