"""Storage options: sorted, translated from Hadoop's spelling, and never shown."""

from __future__ import annotations

import pickle

import pytest

from bucketlake.errors import ConfigError
from bucketlake.storage.store_options import StoreOptions


def _hadoop(prefix: str = "fs.s3a.", **options: str) -> dict[str, str]:
    spelled = {prefix + key.replace("_", "."): text for key, text in options.items()}
    options = StoreOptions.from_user(spelled, "lake")
    return {**options.config, **options.client}


def test_options_of_obstore_pass_through_and_retries_are_numbers() -> None:
    given = {"region": "eu", "max_retries": "2", "retry_timeout": "30", "AWS_TIMEOUT": "9s"}
    options = StoreOptions.from_user(given, "lake")
    assert options.config == {"region": "eu"}
    assert options.client == {"timeout": "9s"}
    assert options.retry == {"max_retries": 2, "retry_timeout": 30}


@pytest.mark.parametrize("prefix", ["fs.s3a.", "spark.hadoop.fs.s3a."])
def test_hadoop_spelling_of_secrets_and_region_is_understood(prefix: str) -> None:
    given = {"access_key": "K", "secret_key": "S", "session_token": "T", "endpoint_region": "r"}
    assert _hadoop(prefix, **given) == {
        "access_key_id": "K",
        "secret_access_key": "S",
        "session_token": "T",
        "region": "r",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endpoint": "store:9000"}, {"endpoint": "https://store:9000"}),
        (
            {"endpoint": "store:9000", "connection_ssl_enabled": "false"},
            {"endpoint": "http://store:9000", "allow_http": "true"},
        ),
        (
            {"endpoint": "http://store:9000", "path_style_access": "true"},
            {
                "endpoint": "http://store:9000",
                "virtual_hosted_style_request": "false",
                "allow_http": "true",
            },
        ),
        (
            {"endpoint": "https://store", "path_style_access": "FALSE"},
            {"endpoint": "https://lake.store", "virtual_hosted_style_request": "true"},
        ),
        ({"path_style_access": "true"}, {"virtual_hosted_style_request": "false"}),
        ({"path_style_access": "false"}, {"virtual_hosted_style_request": "true"}),
        ({"connection_ssl_enabled": "true"}, {}),
    ],
)
def test_hadoop_endpoint_is_written_as_obstore_wants_it(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert _hadoop(**given) == expected


def test_hadoop_option_without_counterpart_is_named_with_those_that_have_one() -> None:
    with pytest.raises(ConfigError, match=r"fs\.s3a\.fast\.upload.*fs\.s3a\.access\.key") as caught:
        _hadoop(fast_upload="hush")
    assert "hush" not in str(caught.value)


def test_two_spellings_of_one_option_must_agree() -> None:
    both = {"fs.s3a.access.key": "hush1", "access_key_id": "hush1"}
    assert StoreOptions.from_user(both, "lake").config == {"access_key_id": "hush1"}
    with pytest.raises(ConfigError, match="access_key_id") as caught:
        StoreOptions.from_user({**both, "access_key_id": "hush2"}, "lake")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": "many"},
        {"max_retries": -1},
        {"retry_timeout": "-1"},
        {"fs.s3a.path.style.access": "yes"},
        {"fs.s3a.connection.ssl.enabled": ""},
    ],
)
def test_value_that_cannot_be_used_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        StoreOptions.from_user(options, "lake")


def test_value_that_is_no_text_is_refused_unless_its_text_is_plain() -> None:
    assert StoreOptions.from_user({"allow_http": True}, "lake").client == {"allow_http": "true"}
    with pytest.raises(ConfigError, match="it must be text, not NoneType"):
        StoreOptions.from_user({"region": None}, "lake")


@pytest.mark.parametrize(
    "endpoint",
    ["", "store", "store:9000", "ftp://store", "http://", "https://a b", "https://a\n", "https://é",
     "https://store:0", "https://store:65536", "https://store:x", "https://[::1", "https://a|b",
     "https://store/?a=b", "https://store/<b>"],
)  # fmt: skip
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"https://host or http://host:port|a line end"):
        StoreOptions.from_user({"endpoint": endpoint}, "lake")


@pytest.mark.parametrize(
    "endpoint",
    ["https://store", "http://127.0.0.1:9000/", "https://[::1]:65535", "https://s-3.a_b/c%20d/e"],
)
def test_an_endpoint_is_taken_as_it_is(endpoint: str) -> None:
    assert StoreOptions.from_user({"endpoint": endpoint}, "lake").config["endpoint"] == endpoint


@pytest.mark.parametrize("key", ["endpoint", "aws_endpoint_url", "AWS_ENDPOINT_URL_S3"])
def test_plain_http_endpoint_allows_plain_http(key: str) -> None:
    def client(**options: str) -> dict[str, str]:
        return dict(StoreOptions.from_user(options, "lake").client)

    assert client(**{key: "http://store"}) == {"allow_http": "true"}
    assert client(**{key: "https://store"}) == {}
    assert client(**{key: "http://store", "aws_allow_http": "false"}) == {"allow_http": "false"}


def test_secrets_are_seen_neither_in_the_representation_nor_in_the_pickle() -> None:
    options = StoreOptions.from_user({"secret_access_key": "hush-hush"}, "lake")
    assert "hush" not in repr(options)
    assert b"hush" not in pickle.dumps(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_secrets_are_redacted_from_messages_and_harmless_values_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    given = {"access_key_id": "AKID", "token": "hush/+=", "endpoint": "https://store", "sas": "x"}
    message = (
        "AKID hush/+= from-the-environment https://store?X-Amz-Signature=abc&sig=d%2F&x=1 next"
    )
    assert StoreOptions.from_user(given, "lake").redact(message) == (
        "(hidden) (hidden) (hidden) https://store?X-Amz-Signature=(hidden)&sig=(hidden)&x=1 next"
    )


def test_the_user_in_an_endpoint_is_redacted_from_messages_and_the_host_stays() -> None:
    message = "sending a request to http://user:hush@store:9000/lake/a@b failed"
    assert StoreOptions().redact(message) == (
        "sending a request to http://(hidden)@store:9000/lake/a@b failed"
    )


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://store"}, {}, "true"),
        ({"AWS_ENDPOINT_URL_S3": "http://store"}, {"region": "eu"}, "true"),
        ({"AWS_ENDPOINT_URL": "https://store"}, {}, None),
        ({"AWS_ENDPOINT_URL": "http://store"}, {"endpoint": "https://other"}, None),
        ({"AWS_ENDPOINT_URL": "http://store"}, {"allow_http": "false"}, "false"),
        ({"AWS_ALLOW_HTTP": "true"}, {}, "true"),
        ({}, {}, None),
    ],
)
def test_plain_http_endpoint_of_the_environment_allows_plain_http(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    given: dict[str, str],
    expected: str | None,
) -> None:
    options = StoreOptions.from_user(given, "lake")
    for name, value in environment.items():  # That of the worker, where options arrive pickled.
        monkeypatch.setenv(name, value)
    assert options.client_options().get("allow_http") == expected


@pytest.mark.parametrize("key", ["max_retries", "retry_timeout"])
def test_a_number_that_no_clock_holds_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="at most 9 digits"):
        StoreOptions.from_user({key: "9" * 20}, "lake")
