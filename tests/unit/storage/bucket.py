"""A bucket as the vendor's own client sees it, beside bucketlake's view of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bucketlake.storage.location import open_storage
from bucketlake.storage.object_store import ObjectStorage

ACCESS_KEY, SECRET_KEY = "AKIDFORTESTS", "a-secret-for-tests"


@dataclass(frozen=True)
class Bucket:
    name: str
    client: Any  # The vendor's client has no types.
    options: dict[str, str]

    def open(self, prefix: str = "table", scheme: str = "s3") -> ObjectStorage:
        storage = open_storage(f"{scheme}://{self.name}/{prefix}", self.options)
        assert isinstance(storage, ObjectStorage)
        return storage

    def with_options(self, options: dict[str, str]) -> Bucket:
        return replace(self, options=options)

    def keys(self) -> list[str]:
        listed = self.client.list_objects_v2(Bucket=self.name)
        return [one["Key"] for one in listed.get("Contents", [])]

    def put(self, key: str, data: bytes = b"") -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
