"""Checks of the arguments that callers pass to public functions.

Public functions check their arguments here, once per call and before any work. Code below the
public functions relies on the types. Each check raises ``ConfigError`` with the argument's name.
Limits of numbers are checked by the value that holds them (``CompactionLimits``, index kinds …).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Signature
from typing import Any

from bucketlake.errors import ConfigError
from bucketlake.model.names import Names, did_you_mean


def check_flags(**given: object) -> None:
    """Raise ConfigError for a value that is neither True nor False; a text would count as True.

    Examples
    --------
    >>> check_flags(dry_run="no")
    Traceback (most recent call last):
        ...
    bucketlake.errors.ConfigError: dry_run = 'no' cannot be used: give True or False
    """
    _require(given, lambda value: isinstance(value, bool), "give True or False")


def _require(given: Mapping[str, object], is_right: Callable[[Any], object], allowed: str) -> None:
    for name, value in given.items():
        if not is_right(value):
            raise ConfigError(name, value, allowed)


def check_texts(**given: object) -> None:
    """Raise ConfigError for a value that is no text, or that cannot be written as UTF-8."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ConfigError(name, value, "give a text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # The text itself could not be printed.
            raise ConfigError(name, ascii(value), f"give valid Unicode text ({error})") from None


def check_optional_texts(**given: object) -> None:
    """Raise ConfigError for a value that is neither None nor a text."""
    check_texts(**{name: value for name, value in given.items() if value is not None})


def check_words(**given: object) -> None:
    """Raise ConfigError for a value that is not one word of letters, digits and underscores."""
    check_texts(**given)
    allowed = "give a word of letters, digits and underscores"
    _require(given, re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch, allowed)


def check_expressions(**given: object) -> None:
    """Raise ConfigError for a value that is no mapping of columns and SQL expressions."""
    for name, value in given.items():
        if not isinstance(value, Mapping) or not value:
            raise ConfigError(name, value, "give a dict of columns and SQL expressions")
        for column, text in value.items():
            if not isinstance(column, str) or not isinstance(text, str):
                allowed = "give SQL text; a text value has quotes: {'status': \"'gone'\"}"
                raise ConfigError(name, {column: text}, allowed)


def check_integers(least: int, **given: object) -> None:
    """Raise ConfigError for a value that is no integer, or less than ``least``."""
    allowed = f"give an integer of at least {least}"
    _require(given, lambda value: type(value) is int and value >= least, allowed)


def check_seconds(most: float, **given: object) -> None:
    """Raise ConfigError for a value that is no number from 0 to ``most``."""
    allowed = f"give a number from 0 to {most:g}"
    _require(given, lambda value: type(value) in (int, float) and 0 <= value <= most, allowed)


def check_kinds(kinds: tuple[type, ...], **given: object) -> None:
    """Raise ConfigError for a value of none of the classes."""
    for name, value in given.items():
        if not isinstance(value, kinds):
            names = [kind.__name__ for kind in kinds]
            hint = did_you_mean(value, names) if isinstance(value, str) else ""
            raise ConfigError(name, value, f"give a {' or '.join(names)}{hint}")


def check_methods(method: str, what: str, **given: object) -> None:
    """Raise ConfigError for a value without a method, or for a class."""
    # The class is asked, because a Column of Spark has every attribute.
    _require(given, lambda value: callable(getattr(type(value), method, None)), f"give {what}")


def check_session(spark: object) -> None:
    """Raise ConfigError for a value that is neither None nor a Spark session."""
    if spark is not None:
        check_methods("createDataFrame", "a SparkSession", spark=spark)


def _check_optional_flags(**given: object) -> None:
    check_flags(**{name: value for name, value in given.items() if value is not None})


_BY_ANNOTATION: Mapping[str, Callable[..., None]] = {
    "bool": check_flags,
    "bool | None": _check_optional_flags,
    "str": check_texts,
    "str | None": check_optional_texts,
    "SparkSession | None": check_session,
}


def annotated_checks(signature: Signature) -> dict[str, Callable[..., None]]:
    """Return what checks the arguments of a function, as far as their annotations tell it.

    >>> from inspect import signature
    >>> def clean(self, hours: int, *, dry_run: bool = False) -> None: ...
    >>> [*annotated_checks(signature(clean))]
    ['dry_run']
    """
    known = {name: each.annotation for name, each in signature.parameters.items()}
    return {name: _BY_ANNOTATION[kind] for name, kind in known.items() if kind in _BY_ANNOTATION}


def names_of(given: Names, argument: str, *, in_order: bool = True) -> tuple[str, ...]:
    """Return names that are given as a text or as several texts.

    Parameters
    ----------
    given : str or iterable of str
        The names. A set has no order, and a mapping is a mistake.
    argument : str
        Name of the caller's parameter, for the error.
    in_order : bool
        Whether the order of the names matters.

    Raises
    ------
    ConfigError
        If the value is something else.

    Examples
    --------
    >>> names_of("id", "columns"), names_of(["id", "day"], "columns")
    (('id',), ('id', 'day'))
    """
    if isinstance(given, str):
        names: tuple[Any, ...] = (given,)
    else:
        refused = (bytes, bytearray, Mapping) + ((set, frozenset) if in_order else ())
        allowed = "give a text, or a list of texts"
        if isinstance(given, refused):
            raise ConfigError(argument, given, allowed)
        names = tuple(items_of(given, argument, allowed))
    for name in names:
        check_texts(**{argument: name})
    return names


def items_of(given: Any, argument: str, allowed: str) -> list[Any]:
    """Return the items of a list or another iterable; a Column of Spark only looks like one."""
    try:
        return [*given]
    except TypeError:
        raise ConfigError(argument, given, allowed) from None


def path_of(given: object) -> str:
    """Return the path of a table as text; a ``pathlib.Path`` is a local path."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    check_texts(path=path)
    assert isinstance(path, str)
    if "\0" in path:
        raise ConfigError("path", path, "give a path without the character \\0")
    return path


def options_of(given: object, argument: str) -> dict[str, str]:
    """Return options as texts, none for None; numbers and booleans are printed as Hudi reads them.

    The error does not show the values, because one of them may be a password.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(argument, type(given), "give a mapping of text to text")
    return {
        _key(key, argument): _option_text(value, f"{argument}[{key!r}]")
        for key, value in given.items()
    }


def pairs_of(given: object, argument: str) -> tuple[tuple[str, int], ...]:
    """Return the bucket counts of rules, from a mapping or from pairs."""
    items: object = given.items() if isinstance(given, Mapping) else given
    allowed = "give a mapping from text to bucket count, or a list of such pairs"
    if isinstance(items, str | bytes):
        raise ConfigError(argument, given, allowed)
    pairs = []
    for pair in items_of(items, argument, allowed):
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise ConfigError(argument, pair, allowed)
        check_texts(**{argument: pair[0]})
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _key(key: object, argument: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"a key of {argument}", key, "give a text")
    check_texts(**{f"a key of {argument}": key})
    return key


def _option_text(value: object, argument: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(argument, type(value), "give a text, a number or a boolean")
    check_texts(**{argument: value})
    return value
