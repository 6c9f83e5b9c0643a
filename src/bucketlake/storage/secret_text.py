"""What a secret is in an address, a message or a name, and how it is hidden.

This is the only place that knows. Values of storage options are secrets, too, and
``storage/store_options.py`` knows them.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

HIDDEN: Final = "(hidden)"

# Names of options, of environment variables and of parameters in an address.
_NAME = re.compile(
    r"(?i)key|secret|token|sas\b|sas_|passw|pwd|credential|signature|authorization|"
    r"^(x-amz|x-goog)-|^sig$"
)
_PARAMETER = re.compile(r"(?P<start>[?&;])(?P<name>[\w.%-]+)=(?P<value>[^&;\s\"<>]*)")
# Parameters of signed links, also where a message quotes them without their question mark.
_SIGNED = re.compile(
    r"(?i)\b(X-Amz-[A-Za-z-]*|X-Goog-[A-Za-z-]*|sig|signature|authorization)=[^&\s\"<>]*"
)
_USER = re.compile(r"//[^/\s]*@")  # In an endpoint or a proxy, perhaps with a password.


def is_secret_name(name: str) -> bool:
    """Return whether an option, a variable or a parameter of this name has a secret as value.

    >>> [is_secret_name(name) for name in ("AWS_SESSION_TOKEN", "X-Amz-Date", "sig", "region")]
    [True, True, True, False]
    """
    return _NAME.search(name) is not None


def has_secret_parameter(address: str) -> bool:
    """Return whether an address has a parameter such as ``?X-Amz-Security-Token=…``.

    >>> [has_secret_parameter(a) for a in ("s3://b/t?part=1&sig=x", "s3://b/t?x=sig", "s3://b/sig=1")]
    [True, False, False]
    """
    start = address.find("?")
    found = _PARAMETER.finditer(address, start) if start >= 0 else ()
    return any(is_secret_name(each["name"]) for each in found)


def without_secrets(text: str) -> str:
    """Hide users, passwords and signatures of addresses in a text.

    >>> without_secrets("PUT https://user:word@host/t?part=1&sig=a%2Fb")
    'PUT https://(hidden)@host/t?part=1&sig=(hidden)'
    """
    text = _PARAMETER.sub(
        lambda m: f"{m['start']}{m['name']}={HIDDEN}" if is_secret_name(m["name"]) else m[0],
        _USER.sub(f"//{HIDDEN}@", text),
    )
    return _SIGNED.sub(rf"\1={HIDDEN}", text)


def raise_alone(error: Exception) -> NoReturn:
    """Raise an error without the one that is handled, not even as its context.

    The text of a store's error may quote a secret, and whoever reports an error may print its
    context.
    """
    try:
        raise error
    finally:
        error.__context__ = None


def shown_url(address: str) -> str:
    """Hide all that may be a secret in an address that cannot be used.

    Unlike :func:`without_secrets`, this hides everything before the last ``@`` except the scheme:
    a password may have slashes.

    >>> shown_url("https://user:pass/word@host/t")
    'https:(hidden)@host/t'
    """
    scheme, colon, rest = address.partition(":")
    _, at, host = rest.rpartition("@")
    return without_secrets(f"{scheme}{colon}{HIDDEN}@{host}" if at else address)
