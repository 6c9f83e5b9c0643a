"""Credentials travel to where they are used, and no text shows them on the way."""

from __future__ import annotations

import base64
import copy
import pickle
import traceback
from dataclasses import asdict

import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.errors import BucketLakeError, ConfigError, UnsupportedFeatureError
from bucketlake.spark.stream_source import SourceOptions
from bucketlake.storage.location import open_storage
from bucketlake.storage.store_options import GivenOptions

SECRET = "hush/hush+hush"
OPTIONS = {"region": "eu-west-1", "secret_access_key": SECRET, "access_key_id": SECRET}
NOBODY = {**OPTIONS, "endpoint": "http://127.0.0.1:9", "max_retries": "0"}


def everything_of(error: BaseException | None) -> str:
    """Return all texts of an error: its message, its facts, its pickle, its causes and contexts."""
    if error is None:
        return ""
    own = f"{''.join(traceback.format_exception(error))} {error!r} {error.args} {vars(error)}"
    held = pickle.dumps(error).decode("latin-1") if isinstance(error, BucketLakeError) else ""
    return own + held + everything_of(error.__cause__) + everything_of(error.__context__)


def test_a_table_shows_its_options_in_no_text() -> None:
    table = bl.Table("s3://lake/t", None, OPTIONS)
    shown = [repr(table), str(table), f"{table.storage_options}", repr(asdict(table))]
    assert not [text for text in shown if "hush" in text]
    assert table.storage_options == OPTIONS


def test_a_pickled_table_has_its_options_and_does_not_show_them() -> None:
    table = bl.Table("s3://lake/t", storage_options=OPTIONS)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps(table, protocol)
        assert b"hush" not in pickled
        assert base64.b64encode(SECRET.encode()).rstrip(b"=")[:-1] not in pickled
        assert pickle.loads(pickled) == table
    assert copy.deepcopy(table) == copy.copy(table) == table


def test_given_options_are_a_mapping_that_cannot_change() -> None:
    given = GivenOptions(OPTIONS)
    assert dict(given) == OPTIONS
    assert len(given) == 3
    assert given != {"region": "eu-west-1"}
    with pytest.raises(TypeError):
        given["region"] = "x"  # type: ignore[index]


@pytest.mark.parametrize(
    "path",
    [
        "s3://lake/t?X-Amz-Credential=x&X-Amz-Signature=hush",
        "gs://lake/../t?x-goog-signature=hush",
        "abfss://c@acc.dfs.core.windows.net/t?sv=2024&sig=hush",
        "abfss://c@acc.dfs.core.windows.net?sv=2024&sig=hush",
        "az://c?sv=2024&sig=hush",
        "s3://lake?X-Amz-Signature=hush",
        "s3://lake/t?AWSAccessKeyId=AKID&Signature=hush",
        "https://lake/t?sig=hush",
        "https://lake/t?AWSAccessKeyId=AKID&Signature=hush",
        "s3://hush@lake/t",
        "s3a://AKID:hush@lake/t",
        "s3a://AKID:hush/hush/hush@lake/t",
        "s3a://AKID:hush/../hush@lake/t",
        "gs://user:hush/hush@lake/t",
        "az://account:hush/hush@c/t",
        "abfss://account:hush/hush@c@acc.dfs.core.windows.net/t",
        "s3:///AKID:hush@lake/t",
        "s3:/AKID:hush@lake/t",
        "https://user:hush/hush@host/t",
        "https://user:hush@hush@host/t",
        "webhdfs:/user:hush@host/t",
        "file://user:hush@host/t",
        "file://user:hush@host",
        "s3://lake/t?X-Amz-Security-Token=hush",
        "s3://lake/t?x-amz-credential=hush/20260101",
        "s3://lake/t?part=1&access_key=hush",
        "gs://lake/t?access_token=hush",
        "memory://t?token=hush",
        "file:/lake/t?password=hush",
        "hdfs://namenode/t?token=hush",
        "jdbc:mysql://host/db?user=u&password=hush",
        "jdbc:sqlserver://host;user=u;password=hush",
        "jdbc:postgresql://user:hush@host/db",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(path: str) -> None:
    for act in (open_storage, bl.open_table, bl.files):
        with pytest.raises((ConfigError, UnsupportedFeatureError)) as caught:
            act(path)
        assert "hush" not in everything_of(caught.value)
    assert "hush" not in repr(bl.Table(path))


def test_files_and_options_of_a_read_do_not_show_their_options() -> None:
    files = bl.files("s3://lake/landed", storage_options=OPTIONS)
    options = {f"storage.{name}": text for name, text in OPTIONS.items()}
    source = SourceOptions.of({"path": "s3://lake/t", **options})
    for held in (files, source):
        assert "hush" not in f"{held!r} {held} {asdict(held)}"
        assert b"hush" not in pickle.dumps(held)
        assert dict(pickle.loads(pickle.dumps(held)).storage_options) == OPTIONS


@pytest.mark.parametrize("end", ["\n", "\r\n", "\t", "\0", "\x7f"])
@pytest.mark.parametrize(
    "name",
    ["session_token", "access_key_id", "region", "user_agent", "proxy_url", "fs.s3a.secret.key"],
)
def test_an_option_with_a_control_character_is_refused(name: str, end: str) -> None:
    with pytest.raises(ConfigError, match=r"line end|control character") as caught:
        open_storage("s3://lake/t", {**NOBODY, name: f"{SECRET}{end}"})
    assert "hush" not in everything_of(caught.value)


def test_a_variable_with_a_line_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{SECRET}\n")
    with pytest.raises(ConfigError, match=r"AWS_SESSION_TOKEN.* line end") as caught:
        open_storage("s3://lake/t", NOBODY)
    assert "hush" not in everything_of(caught.value)


def test_an_option_of_several_lines_is_taken() -> None:
    key = '{"type": "service_account",\n"private_key": "x"}'
    with pytest.raises(ConfigError) as caught:  # obstore reads it, and misses other entries.
        open_storage("gs://lake/t", {"service_account_key": key})
    assert "line end" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "host"), [("https://user:hush@host/t", "host/t"), ("file://user:hush@host/t", "host")]
)
def test_an_address_that_is_refused_is_known_by_what_is_no_secret(path: str, host: str) -> None:
    with pytest.raises((ConfigError, UnsupportedFeatureError), match=f"{path[:5]}.*@{host}"):
        open_storage(path)


def test_a_question_mark_in_an_address_is_part_of_the_key() -> None:
    assert open_storage("s3://lake/sig=1/what?x=sig").root == "s3://lake/sig=1/what?x=sig"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"endpoint": "http://user:hush-hush@127.0.0.1:9"},
        {"endpoint": "http://user:hush/hush@127.0.0.1:9"},
        {"proxy_url": "http://user:hush-hush@127.0.0.1:9"},
    ],
)
def test_a_store_that_cannot_be_reached_is_told_without_them(given: dict[str, str]) -> None:
    with pytest.raises(BucketLakeError) as caught:
        bl.open_table("s3://lake/t", storage_options=NOBODY | given)
    assert "hush" not in everything_of(caught.value)


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(
    "given",
    [
        ["-o", f"secret_access_key={SECRET}", "-o", "endpoint=http://127.0.0.1:9"],
        ["-o", f"secret_access_kee={SECRET}"],
        ["-o", f"secret_access_key {SECRET}"],
        ["-o", SECRET],
        ["-o", f"={SECRET}"],
        ["-o", f"fs.s3a.secret.kee={SECRET}"],
        ["-o", f"timeout={SECRET}"],
    ],
)
def test_the_command_line_says_what_is_wrong_without_them(given: list[str], output: str) -> None:
    arguments = ["show", "s3://lake/t", "-o", "max_retries=0", *given, "--output", output]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code in (1, 2)
    assert len(done.output) > 20
    assert "hush" not in done.output


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "t", "-o", "region=eu", f"secret_access_key={SECRET}"],
        ["show", "t", "-o", "region=eu", "fs.s3a.secret.key=hush hush"],
        ["show", "t", "AWS_SESSION_TOKEN=hush=hush", "sas=hush"],
        ["show", "t", "endpoint=http://user:hush@store"],
        ["upsert", "t", __file__, f"secret_access_key={SECRET}"],
        [f"account_key={SECRET}", "show", "t"],
    ],
)
def test_an_option_that_is_not_expected_is_named_without_its_value(
    arguments: list[str], output: str
) -> None:
    done = CliRunner().invoke(main, [*arguments, "--output", output])
    assert done.exit_code == 2
    assert "=(hidden)" in done.output or "(hidden)@store" in done.output
    assert "hush" not in done.output
