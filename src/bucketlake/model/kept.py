"""Properties that are computed once per object, and pickles that leave them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Value = TypeVar("_Value")


class kept_property(Generic[_Value]):  # noqa: N801 -- named like ``cached_property``.
    """A cached property that may wait for storage.

    In Python 3.11 all objects of a class share the lock of a ``functools.cached_property``. So one
    object that waits for storage would make the others wait. Here two threads may both compute the
    value of an object, and one of the values is kept.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | _Value:
        if instance is None:
            return self
        # The value in the object's dictionary hides this descriptor from then on.
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value


def fields_alone(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a value, as ``__getstate__``: what it keeps or caches is left out."""
    return {member.name: getattr(value, member.name) for member in fields(value)}
