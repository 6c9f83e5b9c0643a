"""Storage options: the settings of an object store, and how their secrets are hidden.

Options are those of obstore's stores (``access_key_id``, ``endpoint``, ``allow_http``,
``timeout``…), its retries (``max_retries``, ``retry_timeout`` in seconds), and for S3 those of
Hadoop's s3a client, which this module translates. obstore itself reads the environment variables of
the cloud vendors (``AWS_ACCESS_KEY_ID``…); an option takes precedence over them.

Secrets appear in no text: not in ``repr``, not in error messages, and not in readable form in a
pickle, which carries them to workers.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from bucketlake.errors import ConfigError
from bucketlake.model.names import one_of
from bucketlake.storage.secret_text import HIDDEN, is_secret_name, without_secrets

_RETRY_KEYS = ("max_retries", "retry_timeout")
_CLIENT_OPTIONS = frozenset(
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only "
    "http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_only "
    "pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes "
    "randomize_addresses read_timeout root_certificate timeout user_agent".split()
)
_DIGITS_MAX = 9  # Of a number of seconds or repetitions.
_VENDOR = re.compile(r"^(aws|azure|google)_")
_ENDPOINT = re.compile(r"(?i)(aws_|azure_(storage_)?)?endpoint(_url(_s3)?)?$")

_ENDPOINT_VARIABLE = re.compile(r"(aws|azure_storage|azure)_endpoint(_url(_s3)?)?$")

_HADOOP_PREFIXES = ("fs.s3a.", "hadoop.fs.s3a.", "spark.hadoop.fs.s3a.")
_HADOOP_NAMES = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint.region": "region",
    "region": "region",
}
_HADOOP_RULES = frozenset(("endpoint", "path.style.access", "connection.ssl.enabled"))

# Options whose values may be shown, by the end of their name. All others are treated as secret.
_HARMLESS = re.compile(
    r"(endpoint|endpoint_url|region|bucket|account_name|container_name|allow_http|timeout|"
    r"max_retries|virtual_hosted_style_request|skip_signature|unsigned_payload)$"
)
_SECRET_LENGTH_MIN = 4  # Hiding a shorter text would hide half of a message and protect nothing.
_VARIABLES = re.compile(r"(?i)^(AWS|AZURE|GOOGLE)_")
_HAS_LINES = re.compile(r"(?i)certificate$|service_account_key$")  # Options of several lines.
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ADDRESS = re.compile(r"(?ai)https?://(\[[\da-f:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?(/[\w.~%/-]*)?")
_PORT_MAX = 65_535


class GivenOptions(Mapping[str, str]):
    """Storage options of a user: a mapping that never shows its values as text.

    Parameters
    ----------
    options : mapping of str to str, optional

    Examples
    --------
    >>> given = GivenOptions({"region": "eu-west-1"})
    >>> given, given["region"]
    (GivenOptions(region=(hidden)), 'eu-west-1')
    """

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = dict(options or {})

    def __getitem__(self, key: str) -> str:
        return self._options[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"GivenOptions({', '.join(f'{key}={HIDDEN}' for key in self)})"

    def __reduce__(self) -> tuple[Callable[[bytes], GivenOptions], tuple[bytes]]:
        return _unpickled_given, (_encoded(self._options),)


@dataclass(frozen=True, repr=False)
class StoreOptions:
    """Options of one object store.

    Attributes
    ----------
    config : mapping of str to str
        Options for obstore's store, with its names.
    client : mapping of str to str
        Options for its connections: timeouts, proxies, certificates.
    retry : mapping of str to int
        ``max_retries`` and ``retry_timeout`` (seconds), if they are given.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    retry: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_user(cls, options: Mapping[str, str], bucket: str) -> Self:
        """Sort the options of a user into the three groups.

        Parameters
        ----------
        options : mapping of str to str
            As given to ``open_storage``.
        bucket : str
            Bucket of the table; S3's virtual-hosted endpoints begin with it.

        Raises
        ------
        ConfigError
            If a value cannot be used, if two spellings of one option disagree, or if an option of
            Hadoop has no counterpart. obstore rejects unknown names later.
        """
        hadoop = {n: text for key, text in options.items() if (n := _hadoop_name(key)) is not None}
        plain = {key: text for key, text in options.items() if _hadoop_name(key) is None}
        retry = {key: _whole_number(key, plain.pop(key)) for key in _RETRY_KEYS if key in plain}
        config = {key: _text(key, value) for key, value in plain.items()}
        for option, value in hadoop.items():
            _text(f"fs.s3a.{option}", value)
        for key, text in _translate_hadoop(hadoop, bucket).items():
            if config.setdefault(key, text) != text:
                allowed = f"the option {key} has another value; keep one of them"
                raise ConfigError(f"fs.s3a.* for {key}", HIDDEN, allowed)
        for key, text in config.items():
            if _ENDPOINT.match(key):
                _require_endpoint(key, text)
        # Passed separately, because some of obstore's stores ignore them among the others.
        client = {name: config.pop(key) for key in [*config] if (name := _client_name(key))}
        if any(_ENDPOINT.match(key) and text.startswith("http://") for key, text in config.items()):
            client.setdefault("allow_http", "true")  # The user wrote http://.
        return cls(config, client, retry)

    def __repr__(self) -> str:
        return f"StoreOptions({HIDDEN})"

    def __reduce__(self) -> tuple[Callable[[bytes], StoreOptions], tuple[bytes]]:
        options = [dict(self.config), dict(self.client), dict(self.retry)]
        return _unpickled, (_encoded(options),)

    def client_options(self) -> dict[str, str]:
        """Return the options of connections, with ``allow_http`` from the environment.

        Call it where the connection is made, because a worker has its own environment.
        """
        found = dict(self.client)
        if "allow_http" not in found and not any(map(_ENDPOINT.match, self.config)):
            said = {name.lower(): text for name, text in os.environ.items()}
            endpoints = (text for name, text in said.items() if _ENDPOINT_VARIABLE.match(name))
            if any(text.startswith("http://") for text in endpoints):
                found["allow_http"] = "true"
            elif "aws_allow_http" in said:
                found["allow_http"] = said["aws_allow_http"]
        return found

    def redact(self, text: str, *, shows_harmless: bool = True) -> str:
        """Hide possible secrets in a message of the store.

        Values of options such as a timeout stay, unless the options themselves were refused: a
        secret may be under a wrong name.
        """
        given = [*self.config.items(), *self.client.items()]
        own = (
            value
            for key, value in given
            if "@" in value or not (shows_harmless and _HARMLESS.search(key.lower()))
        )
        foreign = (value for key, value in _variables() if is_secret_name(key))
        for secret in sorted({*own, *foreign}, key=len, reverse=True):
            if len(secret) >= _SECRET_LENGTH_MIN:
                text = text.replace(secret, HIDDEN)
        return without_secrets(text)


def require_sendable_variables() -> None:
    """Raise ConfigError if a variable that obstore reads has a control character.

    obstore ends in a panic when it puts such a credential into the header of a request.
    """
    for name, text in _variables():
        _require_sendable(name, text)


def _variables() -> Iterator[tuple[str, str]]:
    """Yield the variables of the environment that obstore may read."""
    return ((name, text) for name, text in os.environ.items() if _VARIABLES.match(name))


def _require_sendable(key: str, text: str) -> None:
    found = _CONTROL.search(text)
    if found is not None and not _HAS_LINES.search(key):
        what = "a line end" if found[0] in "\r\n" else "a control character"
        allowed = f"it has {what} at character {found.start() + 1} of {len(text)}; remove it"
        raise ConfigError(key, HIDDEN, allowed)


def _encoded(options: object) -> bytes:
    """Encode options: this is no encryption, but logs that print pickles show no secret."""
    return base64.b85encode(json.dumps(options).encode())


def _unpickled(encoded: bytes) -> StoreOptions:
    return StoreOptions(*json.loads(base64.b85decode(encoded)))


def _unpickled_given(encoded: bytes) -> GivenOptions:
    return GivenOptions(json.loads(base64.b85decode(encoded)))


def _hadoop_name(key: str) -> str | None:
    """Return the name of an option of Hadoop's s3a client without its prefix, or None."""
    for prefix in _HADOOP_PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return None


def _translate_hadoop(options: Mapping[str, str], bucket: str) -> dict[str, str]:
    unknown = sorted(options.keys() - _HADOOP_NAMES.keys() - _HADOOP_RULES)
    if unknown:
        known = [f"fs.s3a.{name}" for name in sorted({*_HADOOP_NAMES, *_HADOOP_RULES})]
        allowed = f"only Hadoop has this option; use {one_of(f'fs.s3a.{unknown[0]}', known)}"
        raise ConfigError(f"fs.s3a.{unknown[0]}", HIDDEN, allowed)
    config = {_HADOOP_NAMES[key]: text for key, text in options.items() if key in _HADOOP_NAMES}
    path_style = _truth(options, "path.style.access", default=not options.get("endpoint"))
    if "path.style.access" in options:
        config["virtual_hosted_style_request"] = str(not path_style).lower()
    encrypted = _truth(options, "connection.ssl.enabled", default=True)
    if not encrypted:
        config["allow_http"] = "true"
    if options.get("endpoint"):
        host_bucket = bucket if "path.style.access" in options and not path_style else None
        config["endpoint"] = _endpoint(options["endpoint"], encrypted, host_bucket)
    return config


def _endpoint(endpoint: str, encrypted: bool, host_bucket: str | None) -> str:
    """Convert Hadoop's endpoint, a host with or without scheme, to obstore's form."""
    scheme, _, host = endpoint.rpartition("://")
    scheme = scheme or ("https" if encrypted else "http")
    return f"{scheme}://{host_bucket}.{host}" if host_bucket else f"{scheme}://{host}"


def _require_endpoint(key: str, text: str) -> None:
    """Raise ConfigError for an endpoint that is no address; obstore would crash on some of them."""
    if "@" in text:
        raise ConfigError(key, HIDDEN, "it must not have a user; give credentials as options")
    address = _ADDRESS.fullmatch(text)
    if address is None or not 0 < int(address["port"] or 1) <= _PORT_MAX:
        raise ConfigError(key, HIDDEN, "it must be an address: https://host or http://host:port")


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = str(options.get(name, default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"fs.s3a.{name}", text, "it must be true or false")
    return text == "true"


def _whole_number(key: str, text: str) -> int:
    if not str(text).isascii() or not str(text).isdigit() or len(str(text)) > _DIGITS_MAX:
        allowed = f"it must be a whole number of at most {_DIGITS_MAX} digits, not below 0"
        raise ConfigError(key, text, allowed)
    return int(text)


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        raise ConfigError(key, HIDDEN, f"it must be text, not {type(value).__name__}")
    _require_sendable(key, value)
    return value


def _client_name(key: str) -> str | None:
    """Return the name of an option for connections; None for any other option."""
    name = _VENDOR.sub("", key.lower())
    return name if name in _CLIENT_OPTIONS else None
