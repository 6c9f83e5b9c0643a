"""The page on object stores, as printed but for bucket and keys."""

from __future__ import annotations

from pathlib import Path

from tests.guides import run_page
from tests.unit.storage.bucket import Bucket


def test_object_store_page_runs_as_printed_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    options = bucket.options
    endpoint = f'", "endpoint": "{options["endpoint"]}", "allow_http": "true"}}'
    places = {
        "s3a://lake": f"s3a://{bucket.name}",
        "eu-west-1": options["region"],
        "KEY": options["access_key_id"],
        'SECRET"}': options["secret_access_key"] + endpoint,
    }
    run_page("docs/how-to/object-stores.md", tmp_path, places)
