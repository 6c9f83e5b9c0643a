"""Addresses in object stores: parsed from URLs without decoding, and opened by obstore.

URLs are those of Hadoop's clients, which do not decode the path. So no URL library is used:
``%2F``, ``#`` and ``?`` in the path of a table are part of its key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from bucketlake.errors import ConfigError
from bucketlake.model.names import did_you_mean
from bucketlake.storage.secret_text import (
    HIDDEN,
    has_secret_parameter,
    raise_alone,
    shown_url,
)
from bucketlake.storage.store_options import StoreOptions, require_sendable_variables

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# One request may send a base file of hundreds of megabytes over a slow network. obstore's default
# of 30 seconds would stop it, and the result of a conditional put would be unknown. Options of the
# user take precedence.
_CLIENT_DEFAULTS = {"timeout": "300s"}


class Service(Enum):
    """The supported object stores."""

    S3 = "S3"
    GCS = "Google Cloud Storage"
    AZURE = "Azure"


CREDENTIALS = {
    Service.S3: ("access_key_id", "secret_access_key", "session_token", "region", "endpoint"),
    Service.GCS: ("service_account", "service_account_key"),
    Service.AZURE: (
        *("account_name", "account_key", "sas_key"),
        *("client_id", "client_secret", "tenant_id"),
    ),
}
"""Options that decide who asks a service, by ``docs/how-to/object-stores.md``."""

_OF_ALL_SERVICES = (
    *("timeout", "connect_timeout", "proxy_url", "allow_http", "max_retries", "retry_timeout"),
    "virtual_hosted_style_request",
)

STORE_SERVICES = {
    "s3": Service.S3,
    "s3a": Service.S3,
    "s3n": Service.S3,
    "gs": Service.GCS,
    "abfs": Service.AZURE,
    "abfss": Service.AZURE,
    "az": Service.AZURE,
    "wasb": Service.AZURE,
    "wasbs": Service.AZURE,
}

# container@account.dfs.core.windows.net, and the national clouds' suffixes.
_AZURE_HOST = re.compile(r"(?P<container>[^@]+)@(?P<account>[^.@]+)\.(dfs|blob)\.(?P<suffix>.+)")

_AZURE_PUBLIC_SUFFIX = "core.windows.net"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The place of a table in an object store.

    Attributes
    ----------
    root : str
        The address as the user wrote it, without a slash at the end.
    service : Service
    bucket : str
        Bucket, or container on Azure.
    prefix : str
        Path of the table in the bucket, empty for the whole bucket.
    account : str or None
        Account on Azure; None if the options name it.
    endpoint : str or None
        Endpoint of a national cloud of Azure; None for the default endpoint.
    """

    root: str
    service: Service
    bucket: str
    prefix: str
    account: str | None = None
    endpoint: str | None = None


def parse_store_url(scheme: str, rest: str) -> StoreAddress:
    """Parse the part of a URL after ``scheme://``.

    >>> parse_store_url("s3a", "lake/orders/p%201/")
    StoreAddress(root='s3a://lake/orders/p%201', service=<Service.S3: 'S3'>, bucket='lake', \
prefix='orders/p%201', account=None, endpoint=None)

    Raises
    ------
    ConfigError
        If the URL has no bucket, has ``.`` or ``..`` segments, or contains secrets.
    """
    host, _, path = rest.partition("/")
    service = STORE_SERVICES[scheme]
    if has_secret_parameter(rest):
        allowed = "a link with a signature or a token does not open a table; give credentials as "
        allowed += "storage_options"
        raise ConfigError("path", HIDDEN, allowed)
    # A secret may contain slashes. Then its "@" is not in the host, but the ":" before it is.
    if ":" in host or ("@" in host and service is not Service.AZURE):
        allowed = "a path must not contain secrets or ports; give them as storage_options"
        raise ConfigError("path", HIDDEN, allowed)
    segments = [segment for segment in path.split("/") if segment]  # As Hadoop does.
    prefix = "/".join(segments)
    if not {".", ".."}.isdisjoint(segments):
        raise ConfigError("path", f"{scheme}://…/{prefix}", "it must not have '.' or '..' segments")
    if not host:
        shown = shown_url(f"{scheme}://{rest}")
        raise ConfigError("path", shown, "it must have a bucket after ://")
    root = f"{scheme}://{host}/{prefix}".rstrip("/")
    if service is not Service.AZURE or "@" not in host:
        return StoreAddress(root, service, host, prefix)
    return _azure_address(root, host, prefix)


def _azure_address(root: str, host: str, prefix: str) -> StoreAddress:
    parts = _AZURE_HOST.fullmatch(host)
    if parts is None:
        allowed = "it must be container@account.dfs.core.windows.net, or only a container"
        raise ConfigError("path", host.rpartition("@")[2], allowed)
    container, account, suffix = parts["container"], parts["account"], parts["suffix"]
    public = suffix == _AZURE_PUBLIC_SUFFIX
    endpoint = None if public else f"https://{account}.blob.{suffix}"
    return StoreAddress(root, Service.AZURE, container, prefix, account, endpoint)


def open_store(address: StoreAddress, options: StoreOptions) -> ObjectStore:
    """Create obstore's client; it connects with the first operation.

    Raises
    ------
    ConfigError
        If the store does not accept the options.
    """
    from obstore import exceptions as obstore_errors  # Tables on a disk do without obstore.

    require_sendable_variables()
    try:
        return _make_store(address, options)
    except obstore_errors.UnknownConfigurationKeyError as error:
        found = re.search(r"key: '([^']*)'", str(error))
        name = found[1] if found else "storage_options"
        usual = (*CREDENTIALS[address.service], *_OF_ALL_SERVICES)
        allowed = f"no such option of {address.service.value}; see obstore's store of that name"
        raise_alone(ConfigError(name, HIDDEN, allowed + did_you_mean(name, usual)))
    except (obstore_errors.BaseError, ValueError, TypeError) as error:
        reason = options.redact(str(error).partition("\n")[0], shows_harmless=False)
        raise_alone(ConfigError("storage_options", HIDDEN, reason))


def _make_store(address: StoreAddress, options: StoreOptions) -> ObjectStore:
    from obstore.store import AzureStore, GCSStore, S3Store

    config: dict[str, Any] = dict(options.config)
    if address.account is not None:
        config["account_name"] = address.account
    if address.endpoint is not None:
        config.setdefault("endpoint", address.endpoint)
    common: dict[str, Any] = {
        "prefix": address.prefix or None,
        "client_options": {**_CLIENT_DEFAULTS, **options.client_options()},
        "retry_config": _retry_config(options),
    }
    match address.service:
        case Service.S3:
            return S3Store(address.bucket, **common, **config)
        case Service.GCS:
            return GCSStore(address.bucket, **common, **config)
        case Service.AZURE:
            return AzureStore(address.bucket, **common, **config)


def _retry_config(options: StoreOptions) -> dict[str, object] | None:
    config: dict[str, object] = dict(options.retry)
    if "retry_timeout" in config:
        config["retry_timeout"] = timedelta(seconds=options.retry["retry_timeout"])
    return config or None
