"""The server under these tests has what a table needs of S3, or their success says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.storage.bucket import Bucket


def status_of(bucket: Bucket, key: str, **conditions: str) -> int:
    try:
        done: dict[str, Any] = bucket.client.put_object(
            Bucket=bucket.name, Key=key, Body=b"1", **conditions
        )
    except ClientError as error:
        done = error.response
    status: int = done["ResponseMetadata"]["HTTPStatusCode"]
    return status


def test_a_put_with_if_none_match_is_done_once(bucket: Bucket) -> None:
    assert status_of(bucket, "a", IfNoneMatch="*") == 200
    assert status_of(bucket, "a", IfNoneMatch="*") == 412
    assert status_of(bucket, "b", IfNoneMatch="*") == 200


@pytest.mark.parametrize(("etag", "status"), [(None, 200), ('"another"', 412)])
def test_a_put_with_if_match_is_done_over_what_is_known(
    bucket: Bucket, etag: str | None, status: int
) -> None:
    bucket.put("a", b"1")
    held = bucket.client.head_object(Bucket=bucket.name, Key="a")["ETag"]
    assert status_of(bucket, "a", IfMatch=etag or held) == status
    assert status_of(bucket, "nothing", IfMatch=held) == 404
