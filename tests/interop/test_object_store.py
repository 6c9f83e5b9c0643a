"""A table in an object store that Hudi, through Hadoop's client, and bucketlake both write."""

from __future__ import annotations

from pathlib import Path

import pytest

import bucketlake as bl
from tests.choices import combinations
from tests.interop.conftest import environment_of
from tests.interop.model import Model, in_order, rows_of
from tests.interop.peer.client import HudiPeer, read_with_hudi_rs
from tests.interop.shared_table import rows
from tests.interop.table_kind import TableKind
from tests.unit.storage.bucket import Bucket

pytestmark = pytest.mark.interop

KINDS = [TableKind(), TableKind(merge_on_read=True)]


@pytest.mark.parametrize(
    ("kind", "first"),
    combinations(KINDS, ["bucketlake", "hudi"]),
    ids=lambda v: f"{v} first" if isinstance(v, str) else "mor" if v.merge_on_read else "cow",
)
def test_hudi_and_bucketlake_take_turns_in_a_bucket(
    bucket: Bucket, hudi_on_s3: HudiPeer, kind: TableKind, first: str
) -> None:
    name = f"{first}_{kind.merge_on_read}"
    path, options = f"s3a://{bucket.name}/lake/{name}", kind.write_options(Path(name))
    model = Model(kind)

    def ours() -> bl.Table:
        return bl.open_table(path, index=kind.index, storage_options=bucket.options)

    def write(by_hudi: bool, step: int) -> None:
        batch = rows(range(4 * step, 4 * step + 12), ts=step)
        model.upsert(batch)
        if by_hudi:
            hudi_on_s3.write(path, kind.rows(batch), options)
        else:
            ours().upsert(kind.rows(batch))

    if first == "bucketlake":
        bl.create_table(
            path, schema=kind.schema, record_key=kind.record_key, partition_by=kind.partition_by,
            ordering=kind.ordering, index=kind.index, storage_options=bucket.options,
            table_type="merge_on_read" if kind.merge_on_read else "copy_on_write",
        )  # fmt: skip
    for step in range(1, 5):
        write(by_hudi=(first == "hudi") == (step % 2 == 1), step=step)
        held = in_order(model.rows.values(), kind.schema)
        assert rows_of(ours().to_arrow(), kind.schema) == held
        assert rows_of(hudi_on_s3.read(path), kind.schema) == held
    groups = [(one.partition_path, one.bucket_id) for one in ours().buckets()]
    assert len(groups) == len(set(groups))
    # Hudi leaves marks of folders in a bucket, which are no files of the table's.
    assert {one.state.name for one in ours().timeline()} == {"COMPLETED"}


def test_hudi_rs_reads_from_a_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TableKind()
    path, model = f"s3://{bucket.name}/lake/rs", Model(kind)
    table = bl.create_table(
        path, schema=kind.schema, record_key=kind.record_key, partition_by=kind.partition_by,
        ordering=kind.ordering, index=kind.index, storage_options=bucket.options,
    )  # fmt: skip
    for step in (1, 2):
        batch = rows(range(4 * step, 4 * step + 12), ts=step)
        model.upsert(batch)
        table.upsert(kind.rows(batch))
    for name, value in environment_of(bucket).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    found = read_with_hudi_rs(path)
    assert rows_of(found, kind.schema) == in_order(model.rows.values(), kind.schema)
