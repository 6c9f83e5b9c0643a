"""The words of errors: which table, which name is meant, what is at the path, what to do next."""

from __future__ import annotations

import errno
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from obstore import exceptions as obstore_errors

import bucketlake as bl
from bucketlake import errors
from bucketlake.errors import naming_table
from bucketlake.format.json_fields import render_checked
from bucketlake.index import recorded_counts
from bucketlake.index.stored_setting import SETTING_FILE, read_stored
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import closest_name
from bucketlake.services.check.findings import Findings
from bucketlake.storage.base import Storage
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.location import open_storage, shown_address
from bucketlake.storage.object_store import ObjectStorage
from bucketlake.storage.system_calls import storage_error
from bucketlake.timeline.table_properties import surroundings
from tests.spies import breaks

SCHEMA = pa.schema({"order_id": pa.string(), "day": pa.string(), "price": pa.int64()})
ROWS = pa.table({"order_id": ["a"], "day": ["1"], "price": [1]}, schema=SCHEMA)
JOB = {
    "hoodie.table.name": "t",
    "hoodie.index.type": "BUCKET",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.bucket.index.num.buckets": "2",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> bl.Table:
    path = tmp_path_factory.mktemp("lake") / "orders"
    made = bl.create_table(
        str(path), schema=SCHEMA, record_key="order_id", partition_by="day",
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    made.upsert(ROWS)
    return made


def message(call: Callable[[], object]) -> str:
    with pytest.raises(bl.BucketLakeError) as caught:
        call()
    return str(caught.value)


# ---- which table --------------------------------------------------------------------------------

CALLS: dict[str, Callable[[bl.Table], object]] = {
    "missing": lambda t: t.delete_partitions("2"),
    "null_key": lambda t: t.upsert(ROWS.set_column(0, "order_id", pa.nulls(1, pa.string()))),
    "rollback": lambda t: t.rollback("20200101000000000"),
    "savepoint": lambda t: t.savepoint("20200101000000000"),
    "flag": lambda t: t.doctor(check_keys="yes"),  # type: ignore[arg-type]
    "resize": lambda t: t.resize(),
    "compact": lambda t: t.compact(),
    "where": lambda t: t.to_arrow(where="pirce = 1"),
    "batch": lambda t: t.upsert_batch("q")(ROWS, -1),
    "open": lambda t: bl.open_table(t.path, log_format="orc"),
    "create": lambda t: bl.create_table(t.path, schema=SCHEMA, record_key=[]),
    "convert": lambda t: bl.convert(t.path, bl.SimpleBucket(3)),
    "save": lambda t: bl.save(ROWS, t.path, "overwrit"),
}


@pytest.mark.parametrize("name", CALLS)
def test_error_of_a_public_call_names_the_table_once(name: str, table: bl.Table) -> None:
    text = message(lambda: CALLS[name](table))
    assert text.count(table.path) == 1, text


@pytest.mark.parametrize("kind", bl.BucketLakeError.__subclasses__())
def test_pickled_error_keeps_its_table(kind: type[bl.BucketLakeError]) -> None:
    count = len(inspect.signature(kind.__init__).parameters) - 1
    error = bl.LockError("a", "b", 1.5) if kind is bl.LockError else kind(*"abcd"[:count])
    with pytest.raises(kind), naming_table("/lake/t"):
        raise error
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.table) == (str(error), "/lake/t")
    assert "/lake/t" in str(copied)


def test_inner_edge_names_the_table_and_the_outer_one_leaves_it() -> None:
    with pytest.raises(bl.TimelineError) as caught, naming_table("/outer"), naming_table("/inner"):
        raise bl.TimelineError("1", "is odd")
    assert str(caught.value) == "table /inner: instant 1: is odd"


@pytest.mark.parametrize(
    ("sentence", "is_named"),
    [
        ("/lake/t/day=1/x.parquet is missing", False),
        ("write to /lake/t: no", False),
        ("it is at /lake/t.", False),
        ("/lake/t2 is another", True),
        ("/other/lake/t is another", True),
        ("/lake/t.old is another", True),
    ],
)
def test_table_is_named_unless_the_sentence_shows_it(sentence: str, is_named: bool) -> None:
    error = bl.BucketLakeError(sentence)
    error.table = "/lake/t"
    assert str(error) == (f"table /lake/t: {sentence}" if is_named else sentence)


@pytest.mark.parametrize(
    "path",
    [
        "s3://key:hush@lake/t",
        "s3:key:hush@lake/t",
        "s3://lake/t?X-Amz-Signature=hush",
        "hdfs://user:hush@host/t",
        "file://hush@host/t",
    ],
)
def test_shown_address_has_no_secret(path: str) -> None:
    assert "hush" not in shown_address(path)
    assert "hush" not in message(lambda: bl.open_table(path))


@pytest.mark.parametrize(
    "path", ["/lake/t", "lake/t/", "~/t", "file:///lake/t", "memory://a/b/", "s3a://lake/t/"]
)
def test_shown_address_is_the_root_of_the_storage(path: str) -> None:
    assert shown_address(path) == open_storage(path).root


def test_public_names_are_those_of_dir_and_include_every_error() -> None:
    classes = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert classes <= {*bl.__all__}
    assert all(getattr(bl, name) is getattr(errors, name) for name in classes)
    assert {name for name in dir(bl) if not name.startswith("__")} == {*bl.__all__}


def test_misspelled_public_name_is_an_attribute_error_with_its_name() -> None:
    with pytest.raises(AttributeError) as caught:
        bl.open_tabel  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("open_tabel", bl)


# ---- which name is meant ------------------------------------------------------------------------

SIMPLE = {"schema": SCHEMA, "record_key": "order_id", "index": bl.SimpleBucket(2)}
NAMES: dict[str, tuple[Callable[[bl.Table], object], str]] = {
    "key": (lambda _: bl.create_table("memory://w", **{**SIMPLE, "record_key": "ORDER_ID"}),
            "order_id"),
    "partition_by": (lambda _: bl.create_table("memory://w", **SIMPLE, partition_by="dya"), "day"),
    "ordering": (lambda _: bl.create_table("memory://w", **SIMPLE, ordering="pirce"), "price"),
    "hash_fields": (
        lambda _: bl.create_table(
            "memory://w", **{**SIMPLE, "index": bl.SimpleBucket(2, "orderid")}), "order_id"),
    "table_type": (lambda _: bl.create_table("memory://w", **SIMPLE, table_type="merge_on_raed"),
                   "merge_on_read"),
    "index": (lambda _: bl.create_table("memory://w", **{**SIMPLE, "index": "simplebucket"}),
              "SimpleBucket"),
    "where": (lambda t: t.to_arrow(where="pirce = 1"), "price"),
    "columns": (lambda t: t.to_arrow(columns=["Prices"]), "price"),
    "merge_schema": (lambda t: t.upsert(ROWS, merge_schema="add_column"), "add_columns"),
    "new_column": (lambda t: t.upsert(ROWS.append_column("prise", ROWS["price"])), "price"),
    "missing": (lambda t: t.upsert(ROWS.rename_columns(["orderid", "day", "price"])), "orderid"),
    "delete": (lambda t: t.delete(pa.table({"order_ids": ["a"], "day": ["1"]})), "order_ids"),
    "locate": (lambda t: t.locate({"Order_Id": "a"}), "Order_Id"),
    "partition": (lambda t: t.delete_partitions("11"), "1"),
    "metadata": (lambda t: t.rebuild_metadata_table(["record_indx"]), "record_index"),
    "log_format": (lambda t: bl.open_table(t.path, log_format="parqet"), "parquet"),
    "rule": (lambda t: t.rescale({"1": 3}, rule="rgex"), "regex"),
    "mode": (lambda t: bl.save(ROWS, t.path, "overwrit"), "overwrite"),
    "operation": (lambda t: bl.save(ROWS, t.path, options={
        **JOB, "hoodie.datasource.write.operation": "upsrt"}), "upsert"),
    "index_type": (lambda t: bl.save(ROWS, t.path, options={
        **JOB, "hoodie.index.type": "RECORD_LEVEL_INDX"}), "RECORD_LEVEL_INDEX"),
    "storage_option": (lambda _: bl.open_table(
        "s3://lake/t", storage_options={"acess_key_id": "k"}), "access_key_id"),
    "hadoop_option": (lambda _: bl.open_table(
        "s3://lake/t", storage_options={"fs.s3a.acces.key": "k"}), "fs.s3a.access.key"),
    "local_option": (lambda t: bl.open_table(t.path, storage_options={"fsnyc": "true"}), "fsync"),
    "table": (lambda t: bl.open_table(f"{t.path[:-1]}"), "orders"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_unknown_name_is_answered_with_the_name_that_is_meant(name: str, table: bl.Table) -> None:
    call, meant = NAMES[name]
    text = message(lambda: call(table))
    assert f"did you mean {meant!r}?" in text.replace(f"'{table.path}'", repr(meant)), text


def test_unknown_option_of_a_job_is_answered_with_the_option_that_is_meant() -> None:
    options = {**JOB, "hoodie.datasource.write.recordkey.fields": "order_id"}
    meant = r"recordkey\.fields \(did you mean hoodie\.datasource\.write\.recordkey\.field\?\)"
    with pytest.warns(UserWarning, match=meant):
        bl.save(ROWS, "memory://meant-option", options=options)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("city", None), ("hoodie.metadata.other.thing", None), ("ID", "id"), ("tmie", "time")],
)
def test_closest_name_is_none_for_another_word(given: str, meant: str | None) -> None:
    assert closest_name(given, ["id", "time", "hoodie.datasource.write.operation"]) == meant


# ---- what is at the path ------------------------------------------------------------------------


@pytest.mark.parametrize("below", [".hoodie", "day=1", "1", "1/deep/er", ".hoodie/timeline"])
def test_path_inside_a_table_is_refused_and_says_which_table(below: str, table: bl.Table) -> None:
    path = f"{table.path}/{below}"
    opened = message(lambda: bl.open_table(path))
    made = message(lambda: bl.create_table(path, **SIMPLE))
    saved = message(lambda: bl.save(ROWS, path, options=JOB))
    for text in (opened, made, saved):
        assert f"lies inside the table {table.path}" in text
    assert "create_table" not in opened


@pytest.mark.parametrize("below", ["", "/inner"])
def test_path_that_is_a_file_is_refused_and_says_so(below: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("")
    path = f"{tmp_path}/rows.csv{below}"
    for text in (
        message(lambda: bl.open_table(path)),
        message(lambda: bl.create_table(path, **SIMPLE)),
        message(lambda: bl.save(ROWS, path, options=JOB)),
    ):
        assert "is a file" in text
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]


def test_path_inside_a_table_in_a_subfolder_of_memory_is_found() -> None:
    made = bl.create_table("memory://around/lake/t", **SIMPLE)
    assert surroundings(open_storage(f"{made.path}/day=1")).table == made.path
    assert surroundings(open_storage("memory://around/lake/u")).problem is None


def test_parent_of_a_folder_in_a_bucket_is_the_folder_around_it() -> None:
    storage = open_storage("s3a://lake/a/b", {"region": "x"})
    assert isinstance(storage, ObjectStorage)
    parents = []
    while (storage := storage.parent()) is not None:  # type: ignore[assignment]
        parents.append(storage.root)
    assert parents == ["s3a://lake/a", "s3a://lake"]


def test_folders_that_may_not_be_read_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, LocalStorage, "stat", bl.StorageError("p", "stat", "denied"))
    assert surroundings(LocalStorage(str(tmp_path))).problem is None


# ---- what to do next ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("s3://lake/t", ("access_key_id", "secret_access_key", "session_token")),
        ("gs://lake/t", ("service_account", "service_account_key")),
        ("az://lake/t", ("account_name", "account_key", "sas_key")),
    ],
)
@pytest.mark.parametrize(
    "denied", [obstore_errors.PermissionDeniedError, obstore_errors.UnauthenticatedError, OSError]
)
def test_denied_access_names_the_options_of_the_service(
    address: str, options: tuple[str, ...], denied: type[Exception]
) -> None:
    given = {"account_name": "acc"} if address.startswith("az") else {}
    storage = open_storage(address, given)
    assert isinstance(storage, ObjectStorage)
    reason = storage._reason(denied("Server returned error, status code: 403 Forbidden"))
    assert all(name in reason for name in ("storage_options", *options))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_names_clean(number: int) -> None:
    text = str(storage_error(OSError(number, "full"), "/lake/t/x", "put"))
    assert "table.clean() (bucketlake clean --run)" in text


def test_function_in_a_message_has_no_address(table: bl.Table) -> None:
    def rule(_: object) -> int:
        return 3

    text = message(lambda: table.rescale({"1": 3}, rule=rule))  # type: ignore[arg-type]
    assert "rule" in text
    assert " at 0x" not in text


def test_value_of_a_verb_is_the_setting_that_hinders_it(table: bl.Table) -> None:
    assert "index = SimpleBucket(count=2" in message(table.resize)
    assert "cannot be resized" in message(table.resize)
    assert "table_type = 'copy_on_write' cannot be compacted" in message(table.compact)
    assert "clean =" not in message(lambda: table.clean(retain_commits=1, retain_hours=1))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("hoodie.index.type", "BLOOM", "one of BUCKET, RECORD_LEVEL_INDEX"),
        ("hoodie.storage.layout.type", "DEFAULT", "leave it out, or set it to BUCKET, under"),
        ("hoodie.clustering.inline", "true", "leave it out, or set false"),
    ],
)
def test_refused_option_says_what_is_allowed(
    key: str, value: str, allowed: str, table: bl.Table
) -> None:
    assert allowed in message(lambda: bl.save(ROWS, table.path, options={**JOB, key: value}))


def test_instant_that_never_was_is_not_called_archived(table: bl.Table) -> None:
    [commit] = table.timeline()
    for undo in (table.rollback, table.savepoint):
        never = message(lambda undo=undo: undo("20200101000000000"))
        assert "the table has no commit of this time" in never
        of_completion = message(lambda undo=undo: undo(commit.completed_at))
        assert f"completion time of the commit {commit.requested_at}" in of_completion


@pytest.mark.parametrize(
    ("path_of", "read"),
    [
        (lambda _: SETTING_FILE, lambda storage, _: read_stored(storage)),
        (recorded_counts.record_path, recorded_counts._read),
    ],
)
def test_file_of_a_newer_version_asks_for_a_newer_bucketlake(
    path_of: Callable[[InstantTime], str],
    read: Callable[[Storage, InstantTime], object],
) -> None:
    storage, instant = open_storage("memory://newer"), InstantTime("20200101000000000")
    storage.put(path_of(instant), render_checked({"version": 99}))
    with pytest.raises(bl.UnsupportedFeatureError, match="use a newer bucketlake"):
        read(storage, instant)
    storage.put(path_of(instant), render_checked({"version": "x"}))
    with pytest.raises(bl.FormatError):
        read(storage, instant)


def test_table_of_a_newer_version_asks_for_a_newer_bucketlake(tmp_path: Path) -> None:
    made = bl.create_table(str(tmp_path / "t"), **SIMPLE)
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    text = re.sub(r"(?m)^#.*\n", "", properties.read_text())
    properties.write_text(text.replace("table.version=9", "table.version=10"))
    assert "use a newer bucketlake" in message(made.to_arrow)


# ---- doctor and repair --------------------------------------------------------------------------


def test_doctor_prints_what_it_checked_and_what_not(table: bl.Table) -> None:
    found = table.doctor(check_keys=True)
    assert isinstance(found, Findings)
    assert found == []
    assert str(found).splitlines()[0] == "no findings"
    assert "keys" in found.checked
    assert [text.partition(":")[0] for text in found.not_checked] == [
        "files",
        "leftovers younger than 3600 s",
    ]
    assert "check_files=True" in str(found)
    assert "no findings" in found._repr_html_()
    assert pickle.loads(pickle.dumps(found)).checked == found.checked


def test_doctor_of_everything_leaves_nothing_unchecked(table: bl.Table) -> None:
    found = table.doctor(check_keys=True, check_files=True, min_age_seconds=0)
    assert found.not_checked == ()
    assert "not checked" not in str(found)


def test_doctor_of_broken_properties_says_that_all_else_waits(tmp_path: Path) -> None:
    made = bl.create_table(str(tmp_path / "t"), **SIMPLE)
    (tmp_path / "t/.hoodie/hoodie.properties").write_text("hoodie.table.name=\n")
    found = made.doctor()
    assert found.checked == ("properties",)
    assert len(found.not_checked) > 5
    assert found.summary == "1 error"


def test_repair_without_findings_says_so_in_words(table: bl.Table) -> None:
    report = table.repair(dry_run=True)
    assert report.summary == "no findings"
    shown = SimpleNamespace(**dict(line.split(None, 1) for line in str(report).splitlines()))
    assert (shown.repaired, shown.left) == ("nothing", "no findings")
    assert "timeline" in shown.checked
    assert "check_keys=True" in shown.not_checked


def test_a_long_value_is_cut_in_a_message() -> None:
    long = "x" * 10**6
    for error in (
        bl.FormatError("f", "a file", long),
        bl.ConfigError("key", long, "it must be short"),
        bl.InputError("t", long, "correct it"),
    ):
        assert 500 < len(str(error)) < 5_000
        assert "… (100" in str(error)
    assert str(bl.InputError("t", long, "correct it")).endswith("; correct it")
