"""bucketlake on Spark: the stream, and the small batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.bucketlake import start_bucketlake
from benchmarks.common.process import serve
from benchmarks.streaming.contenders.micro import Micro
from benchmarks.streaming.contenders.stream import Stream
from benchmarks.streaming.steps import MICRO, STREAM


def contenders(settings: Mapping[str, Any]) -> dict[str, Stream | Micro]:
    """Build what this process offers."""
    _, spark = start_bucketlake(settings)
    return {STREAM: Stream(spark, settings), MICRO: Micro(spark, settings)}


if __name__ == "__main__":
    serve(contenders)
