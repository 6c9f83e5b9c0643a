"""From paths as users write them to storages."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.location import open_storage, place_of
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.storage.object_store import ObjectStorage
from bucketlake.storage.store_address import Service, StoreAddress, parse_store_url


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/lake/orders", "/lake/orders"),
        ("/lake/orders/", "/lake/orders"),
        ("/", "/"),
        ("file:/lake/a%20b#1", "/lake/a%20b#1"),
        ("file:///lake/orders", "/lake/orders"),
        ("file://localhost/lake/orders", "/lake/orders"),
        ("FILE:///lake", "/lake"),
        ("/lake/p 1%2Fz", "/lake/p 1%2Fz"),
        ("/lake/a:/b", "/lake/a:/b"),
    ],
)
def test_local_path_is_taken_literally(path: str, root: str) -> None:
    assert open_storage(path) == LocalStorage(root)


@pytest.mark.parametrize(
    "path", ["orders", "./orders", "./~/orders", "a~", "a:b/orders", "c:/orders"]
)
def test_relative_path_means_the_directory_of_this_process(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage(path)
    monkeypatch.chdir("/")
    assert storage.root == os.path.normpath(tmp_path / path)


def test_a_tilde_at_the_start_is_the_home_folder_as_in_pandas_and_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/orders").root == str(tmp_path / "orders")
    assert open_storage("~").root == str(tmp_path)
    assert open_storage("file:/lake/~").root == "/lake/~"
    with pytest.raises(ConfigError, match=r"home folder, which is not known here"):
        open_storage("~nobody-with-this-name/orders")


@pytest.mark.parametrize(
    ("options", "fsync"), [(None, True), ({"fsync": "false"}, False), ({"fsync": "True"}, True)]
)
def test_fsync_is_the_option_of_local_paths(options: dict[str, str] | None, fsync: bool) -> None:
    assert open_storage("/t", options) == LocalStorage("/t", fsync)


@pytest.mark.parametrize(
    ("path", "options", "key"),
    [
        ("/t", {"fsync": "maybe"}, "fsync"),
        ("/t", {"access_key_id": "hush"}, "access_key_id"),
        ("memory://t", {"access_key_id": "hush"}, "access_key_id"),
        ("s3://b/t", {"acces_key_id": "hush"}, "acces_key_id"),
        ("gs://b/t", {"access_key_id": "hush"}, "access_key_id"),
        ("gs://b/t", {"service_account_key": "hush"}, "storage_options"),
        ("az://b/t", {"account_name": "a", "acount_key": "hush"}, "acount_key"),
        ("s3://b/t", {"prefix": "hush"}, "storage_options"),
        ("s3://b/t", {"timeout": "hush"}, "storage_options"),
    ],
)
def test_option_that_cannot_be_used_is_named_without_its_value(
    path: str, options: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_storage(path, options)
    assert caught.value.key == key
    assert "hush" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "path",
    ["", "s3:///t", "s3:/b/t", "s3://b/a/../t", "memory://", "file://host/t", "file://host"],
)
def test_path_that_names_no_place_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        open_storage(path)


@pytest.mark.parametrize("path", ["s3://key:hush@bucket/t", "s3a://key:hush@bucket/t"])
def test_secret_in_a_path_is_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(ConfigError, match="storage_options") as caught:
        open_storage(path)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("hdfs://namenode:8020/t", "hdfs:"),
        ("viewfs://cluster/t", "viewfs:"),
        ("dbfs:/t", "dbfs:"),
        ("https://user:hush@host/t", "https:"),
        ("adl://x/t", "adl:"),
    ],
)
def test_scheme_that_is_not_served_is_named_with_those_that_are(path: str, scheme: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"storage {scheme}.*s3a:.*abfss:") as caught:
        open_storage(path)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "rest", "expected"),
    [
        ("s3", "b/t", StoreAddress("s3://b/t", Service.S3, "b", "t")),
        ("s3a", "b/t/", StoreAddress("s3a://b/t", Service.S3, "b", "t")),
        ("s3n", "b", StoreAddress("s3n://b", Service.S3, "b", "")),
        ("gs", "b//x///y", StoreAddress("gs://b/x/y", Service.GCS, "b", "x/y")),
        ("s3", "b/p 1%2F#?&*", StoreAddress("s3://b/p 1%2F#?&*", Service.S3, "b", "p 1%2F#?&*")),
        (
            "abfss",
            "c@acc.dfs.core.windows.net/a@b",
            StoreAddress(
                "abfss://c@acc.dfs.core.windows.net/a@b", Service.AZURE, "c", "a@b", "acc"
            ),
        ),
        (
            "wasbs",
            "c@acc.blob.core.chinacloudapi.cn/t",
            StoreAddress(
                "wasbs://c@acc.blob.core.chinacloudapi.cn/t",
                Service.AZURE,
                "c",
                "t",
                "acc",
                "https://acc.blob.core.chinacloudapi.cn",
            ),
        ),
        ("az", "c/t", StoreAddress("az://c/t", Service.AZURE, "c", "t")),
    ],
)
def test_url_is_split_without_decoding(scheme: str, rest: str, expected: StoreAddress) -> None:
    assert parse_store_url(scheme, rest) == expected


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
def test_azure_url_brings_its_account(scheme: str) -> None:
    path = f"{scheme}://c@acc.dfs.core.windows.net/t"
    assert isinstance(open_storage(path, {"account_key": "aGVsbG8="}), ObjectStorage)


def test_azure_url_without_account_needs_one_in_the_options() -> None:
    with pytest.raises(ConfigError, match="Account must be specified"):
        open_storage("az://c/t")
    assert open_storage("az://c/t", {"account_name": "acc"}).root == "az://c/t"


def test_azure_url_with_another_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="container@account"):
        open_storage("abfss://c@nohost/t")


def test_memory_is_shared_by_name_and_its_folders_are_places_too() -> None:
    try:
        outer, inner = open_storage("memory://shared/"), open_storage("memory://shared/a/b")
        assert (outer.root, inner.root) == ("memory://shared", "memory://shared/a/b")
        inner.put("c", b"1")
        assert isinstance(outer, MemoryStorage)
        assert outer.read("a/b/c") == b"1"
    finally:
        forget("shared")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/t", "s3a://b//t/"),
        ("s3://b/t", "s3n://b/t"),
        ("abfss://c@acc.dfs.core.windows.net/t", "wasb://c@acc.blob.core.windows.net/t"),
        ("abfs://c/t", "az://c/t"),
    ],
)
def test_spellings_of_one_place_are_told_from_other_places(one: str, other: str) -> None:
    assert place_of(one) == place_of(other) != place_of(f"{other}2")


def test_places_of_other_stores_and_accounts_differ() -> None:
    accounts = (f"abfss://c@{name}.dfs.core.windows.net/t" for name in ("one", "two"))
    places = [place_of(one) for one in ("/b/t", "s3://b/t", "gs://b/t", "memory://b/t", *accounts)]
    assert len(set(places)) == len(places)


def test_a_link_and_what_it_leads_to_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    link, real, other = (str(tmp_path / name / "t") for name in ("link", "real", "other"))
    assert place_of(link) == place_of(real) != place_of(other)


@pytest.mark.parametrize("path", ["s3:bucket/t", "S3A:bucket", "memory:t", "file:t"])
def test_a_scheme_without_its_slashes_is_no_folder_of_that_name(path: str) -> None:
    with pytest.raises(ConfigError, match="it must start with"):
        open_storage(path)
