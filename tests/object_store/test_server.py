"""The server under these tests has what a table needs of S3, or their success says nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.unit.storage.bucket import Bucket

AT_ONCE = 8


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


@pytest.mark.parametrize("over", ["nothing", "what is known"])
def test_of_conditional_puts_at_once_one_is_done(bucket: Bucket, over: str) -> None:
    start = threading.Barrier(AT_ONCE)

    def put(key: str, condition: dict[str, str]) -> int:
        start.wait()
        return status_of(bucket, key, **condition)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for key in ("a", "b", "c/d", "c/e", "f"):
            condition = {"IfNoneMatch": "*"}
            if over != "nothing":
                bucket.put(key, b"0")
                condition = {
                    "IfMatch": bucket.client.head_object(Bucket=bucket.name, Key=key)["ETag"]
                }
            statuses = pool.map(lambda _, k=key, c=condition: put(k, c), range(AT_ONCE))
            assert sorted(statuses) == [200, *[412] * (AT_ONCE - 1)]
