"""Object stores: the keys that others see, what is said when an answer is lost, and secrets."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator

import obstore
import pytest
from moto.s3.models import s3_backends

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.flow.call import keeping_requests
from bucketlake.storage import object_store
from bucketlake.storage.location import open_storage
from bucketlake.storage.object_store import ObjectStorage
from tests.fake_time import FakeTime
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY, Bucket
from tests.unit.storage.cloud import Answer, Cloud, running_cloud
from tests.unit.storage.names import CONTROL_NAMES, NAMES


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud() as cloud:
        yield cloud


def _on_s3(cloud: Cloud, **options: str) -> ObjectStorage:
    given = {
        "endpoint": cloud.url,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": "us-east-1",
        "max_retries": "2",
    }
    storage = open_storage("s3://lake/t", given | options)
    assert isinstance(storage, ObjectStorage)
    return storage


def _on_gcs(cloud: Cloud) -> ObjectStorage:
    account = {
        "gcs_base_url": cloud.url,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    options = {"service_account_key": json.dumps(account), "google_allow_http": "true"}
    storage = open_storage("gs://lake/t", options)
    assert isinstance(storage, ObjectStorage)
    return storage


def _on_azure(cloud: Cloud) -> ObjectStorage:
    options = {"account_name": "acc", "endpoint": f"{cloud.url}/acc", "skip_signature": "true"}
    storage = open_storage("az://lake/t", options)
    assert isinstance(storage, ObjectStorage)
    return storage


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_keys_are_the_literal_paths_that_other_clients_see(bucket: Bucket, scheme: str) -> None:
    storage = bucket.open("wh/p 1%2F#", scheme)
    for name in NAMES:
        storage.put(f"{name}/x", name.encode())
    assert bucket.keys() == sorted(f"wh/p 1%2F#/{name}/x" for name in NAMES)
    bucket.put("wh/p 1%2F#/ä%20b#?/y", b"from another client")
    assert storage.read("ä%20b#?/y") == b"from another client"


def test_whole_bucket_may_be_the_table(bucket: Bucket) -> None:
    storage = bucket.open("")
    storage.put("a/b", b"1")
    assert storage.root == f"s3://{bucket.name}"
    assert bucket.keys() == ["a/b"]
    assert [stored.path for stored in storage.list("")] == ["a/b"]
    assert storage.list_folders("") == ["a"]


def test_hadoop_options_open_the_same_bucket(bucket: Bucket) -> None:
    hadoop = {
        "fs.s3a.endpoint": bucket.options["endpoint"].removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": SECRET_KEY,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    bucket.with_options(hadoop).open().put("a", b"1")
    assert bucket.open().read("a") == b"1"


def test_folder_markers_of_hadoop_are_no_objects(bucket: Bucket) -> None:
    markers = ["", "empty/", "p/", "p/q/", "p/q/empty/", "p/q/dotted.name/", "old_$folder$"]
    for key in [*markers, "p/q/a", "p/q/20240101.commit.requested", "p/r"]:
        bucket.put(f"table/{key}")
    storage = bucket.open()
    files = ["p/q/20240101.commit.requested", "p/q/a", "p/r"]
    assert [stored.path for stored in storage.list("")] == files
    assert [stored.path for stored in storage.list("p")] == files
    assert [stored.path for stored in storage.list("p", recursive=False)] == ["p/r"]
    assert [stored.path for stored in storage.list("p/q", recursive=False)] == files[:2]
    assert storage.list_folders("") == ["empty", "p"]
    assert storage.stat("p/q") is None
    with pytest.raises(ObjectNotFoundError):
        storage.read("p/q")


def test_empty_object_is_told_from_a_marker_by_one_more_listing_a_folder(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = bucket.open()
    for path in ("p/a", "p/b", "q/c"):
        storage.put(path, b"")
    storage.put("r/d", b"1")
    listed: list[str | None] = []
    plain = obstore.list_with_delimiter
    monkeypatch.setattr(
        object_store.obstore,
        "list_with_delimiter",
        lambda store, folder: listed.append(folder) or plain(store, folder),
    )
    assert [stored.path for stored in storage.list("")] == ["p/a", "p/b", "q/c", "r/d"]
    assert sorted(listed) == ["p", "q"]


def test_folder_of_more_objects_than_one_request_removes_goes_whole(bucket: Bucket) -> None:
    storage = bucket.open()
    service = next(iter(s3_backends.values()))["aws"]  # Over the wire this takes long.
    for number in range(1_010):
        service.put_object(bucket.name, f"table/p/{number}", b"1")
    storage.put("q", b"1")
    storage.delete_folder("p")
    assert bucket.keys() == ["table/q"]


def test_control_characters_in_a_path_are_refused_by_name(bucket: Bucket) -> None:
    storage = bucket.open()
    for name in CONTROL_NAMES:
        with pytest.raises(StorageError, match="control character"):
            storage.put(f"p/{name}", b"1")
        with pytest.raises(StorageError, match="control character"):
            list(storage.list(name))
        for source, target in ((f"p/{name}", "a"), ("a", f"p/{name}")):
            with pytest.raises(StorageError, match="control character"):
                storage.duplicate(source, target)


def test_missing_bucket_is_a_failure_to_write(bucket: Bucket) -> None:
    storage = open_storage("s3://no-such-bucket/t", bucket.options)
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(StorageError, match="NoSuchBucket") as caught:
            write("a", b"1")
        assert not isinstance(caught.value, ObjectNotFoundError)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        list(storage.list(""))


def test_secrets_are_seen_neither_in_the_representation_nor_in_the_pickle(bucket: Bucket) -> None:
    storage = bucket.open()
    assert repr(storage) == f"ObjectStorage('s3://{bucket.name}/table')"
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret.encode() not in pickle.dumps(storage)


@pytest.mark.parametrize(
    ("status", "words"), [(403, r"storage_options \(-o\) \(access_key_id"), (401, "session_token")]
)
@pytest.mark.parametrize(
    "request_",
    [lambda storage: storage.put("a", b"1"), lambda storage: storage.duplicate("b", "a")],
    ids=["put", "duplicate"],
)
def test_refusal_of_credentials_is_told_without_them(
    cloud: Cloud,
    caplog: pytest.LogCaptureFixture,
    request_: Callable[[ObjectStorage], object],
    status: int,
    words: str,
) -> None:
    body = (
        f"<Error><Code>SignatureDoesNotMatch</Code><Message>Wrong for {ACCESS_KEY}</Message>"
        f"<AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>"
    )
    cloud.answers = [Answer(status, body)]
    with caplog.at_level(logging.DEBUG), pytest.raises(StorageError, match=words) as caught:
        request_(_on_s3(cloud))
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert f"the store answered {status}" in shown
    assert "SignatureDoesNotMatch" in shown
    assert "AWS4" not in shown
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in shown


@pytest.mark.parametrize("length", range(440, 480))
def test_half_a_secret_at_the_end_of_a_long_message_is_not_told(cloud: Cloud, length: int) -> None:
    words = f"<Code>X</Code><Message>{'-' * length}{SECRET_KEY}</Message>"
    cloud.answers = [Answer(403, words)]
    with pytest.raises(StorageError) as caught:
        _on_s3(cloud).put("a", b"1")
    assert SECRET_KEY[:6] not in str(caught.value)


@pytest.mark.parametrize(
    ("open_on", "key", "condition"),
    [
        (_on_s3, "/lake/t/", ("if-none-match", "*")),
        (_on_gcs, "/lake/t/", ("x-goog-if-generation-match", "0")),
        (_on_azure, "/acc/lake/t/", ("if-none-match", "*")),
    ],
    ids=["S3", "Google", "Azure"],
)
def test_every_service_is_asked_for_the_literal_key_and_once_only(
    cloud: Cloud, open_on: type, key: str, condition: tuple[str, str]
) -> None:
    storage = open_on(cloud)
    for name in NAMES:
        storage.put_if_absent(f"{name}/x", b"1")
        with pytest.raises(AlreadyExistsError):
            storage.put_if_absent(f"{name}/x", b"2")
    assert set(cloud.objects) == {f"{key}{name}/x" for name in NAMES}
    assert set(cloud.objects.values()) == {b"1"}
    assert {request.condition for request in cloud.requests} == {condition}


@pytest.mark.parametrize(
    ("open_on", "key", "condition"),
    [
        (_on_s3, "/lake/t/", None),
        (_on_gcs, "/lake/t/", ("x-goog-if-generation-match", "0")),
        (_on_azure, "/acc/lake/t/", ("if-none-match", "*")),
    ],
    ids=["S3", "Google", "Azure"],
)
def test_every_service_copies_the_literal_key_by_itself(
    cloud: Cloud, open_on: type, key: str, condition: tuple[str, str] | None
) -> None:
    storage = open_on(cloud)
    for name in NAMES:
        cloud.objects[f"{key}{name}/x"] = name.encode()
        assert storage.duplicate(f"{name}/x", f"copy/{name}")
        assert storage.duplicate(f"{name}/x", f"copy/{name}")
    copies = {f"{key}copy/{name}": name.encode() for name in NAMES}
    assert {path: cloud.objects[path] for path in copies} == copies
    puts = [request for request in cloud.requests if request.method == "PUT"]
    assert all(put.copied_from is not None for put in puts)
    assert {put.condition for put in puts} == {condition}
    assert all(request.method != "GET" for request in cloud.requests)


def test_copy_takes_few_requests(cloud: Cloud) -> None:
    for open_on, key, first, repeated in (
        (_on_s3, "/lake/t/a", ["HEAD", "PUT"], ["HEAD"] * 3),
        (_on_gcs, "/lake/t/a", ["PUT"], ["PUT", "HEAD", "HEAD"]),
        (_on_azure, "/acc/lake/t/a", ["PUT", *["HEAD"] * 3], ["PUT", *["HEAD"] * 3]),
    ):
        storage = open_on(cloud)
        for target, expected in (("b", first), ("b", repeated)):
            cloud.objects[key] = b"123"
            cloud.requests = []
            storage.duplicate("a", target)
            assert [request.method for request in cloud.requests] == expected
        cloud.objects = {}


def test_copy_that_azure_has_not_completed_is_waited_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)
    cloud.objects["/acc/lake/t/a"], cloud.looks_until_copied = b"123", 5
    assert _on_azure(cloud).duplicate("a", "b")
    assert cloud.looks_until_copied == 0
    assert cloud.objects["/acc/lake/t/b"] == b"123"


def test_copy_that_azure_never_completes_is_no_success(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)
    cloud.objects["/acc/lake/t/a"], cloud.looks_until_copied = b"123", 1_000
    with pytest.raises(StorageError, match=r"has 0 bytes, but .*/a has 3 bytes"):
        _on_azure(cloud).duplicate("a", "b")


def test_copy_of_nothing_on_azure_needs_no_wait(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.objects["/acc/lake/t/a"] = b""
    clock = FakeTime().installed(monkeypatch)
    assert _on_azure(cloud).duplicate("a", "b")
    assert not clock.naps


@pytest.mark.parametrize("status", [0, 500, 503, 429])
@pytest.mark.parametrize("open_on", [_on_s3, _on_gcs], ids=["S3", "Google"])
def test_copy_whose_answer_was_lost_is_a_success(cloud: Cloud, open_on: type, status: int) -> None:
    cloud.objects["/lake/t/a"] = b"123"
    cloud.answers = [Answer(status, lands=True)]
    assert open_on(cloud).duplicate("a", "b")
    assert cloud.objects["/lake/t/b"] == b"123"


def test_copy_that_the_store_refuses_with_a_conflict_is_no_success(cloud: Cloud) -> None:
    cloud.objects["/lake/t/a"] = b"123"
    cloud.answers = [Answer(409)]
    with pytest.raises(StorageError, match="now there is no object; repeat the request") as caught:
        _on_s3(cloud).duplicate("a", "b")
    assert type(caught.value) is StorageError


@pytest.mark.parametrize("status", [0, 500, 503, 429])
def test_put_whose_answer_was_lost_may_meet_its_own_object(cloud: Cloud, status: int) -> None:
    cloud.answers = [Answer(status, lands=True)]
    storage = _on_s3(cloud)
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("a", b"mine")
    assert len(cloud.requests) == 2  # obstore repeats a conditional put by itself.
    assert cloud.objects == {"/lake/t/a": b"mine"}


def test_put_that_never_arrived_is_repeated_and_wins(cloud: Cloud) -> None:
    cloud.answers = [Answer(503), Answer(0)]
    _on_s3(cloud).put_if_absent("a", b"mine")
    assert cloud.objects == {"/lake/t/a": b"mine"}


def test_conflict_with_nothing_there_is_asked_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)
    cloud.answers = [Answer(409), Answer(409)]
    _on_s3(cloud).put_if_absent("a", b"mine")
    assert cloud.objects == {"/lake/t/a": b"mine"}
    assert [request.method for request in cloud.requests] == ["PUT", "HEAD"] * 2 + ["PUT"]


def test_conflict_with_something_there_is_lost(cloud: Cloud) -> None:
    cloud.objects["/lake/t/a"], cloud.taken_status = b"theirs", 409  # As Azure says it.
    with pytest.raises(AlreadyExistsError):
        _on_s3(cloud).put_if_absent("a", b"mine")
    assert [request.method for request in cloud.requests] == ["PUT", "HEAD"]


def test_conflict_without_end_leaves_the_outcome_unknown(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeTime().installed(monkeypatch)
    cloud.answers = [Answer(409)] * 99
    with pytest.raises(StorageError, match="repeat the request") as caught:
        _on_s3(cloud).put_if_absent("a", b"mine")
    assert type(caught.value) is StorageError


def test_put_over_what_is_there_never_says_that_it_exists(cloud: Cloud) -> None:
    cloud.answers = [Answer(409), Answer(412)]
    for _ in range(2):
        with pytest.raises(StorageError, match="refused to replace") as caught:
            _on_s3(cloud).put("a", b"1")
        assert type(caught.value) is StorageError


def test_store_that_cannot_be_reached_is_a_storage_error() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "skip_signature": "true", "max_retries": "0"}
    storage = open_storage("s3://lake/t", options)
    with pytest.raises(StorageError, match=r"read s3://lake/t/a: .*error sending request"):
        storage.read("a")


def test_process_that_was_forked_after_the_first_use_is_told_so(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = _on_s3(cloud)
    storage.put("a", b"1")
    monkeypatch.setattr(object_store.os, "getpid", lambda: -1)
    with pytest.raises(StorageError, match="forked"):
        storage.stat("a")


def test_a_copy_within_the_store_counts_as_one_request(bucket: Bucket) -> None:
    storage = bucket.open("copies")
    storage.put("a", b"rows")
    with keeping_requests() as requests:
        assert storage.duplicate("a", "b")
    assert requests.count("duplicate") == 1
    assert storage.read("b") == b"rows"
