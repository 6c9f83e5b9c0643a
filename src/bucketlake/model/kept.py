"""Values that are kept: once per object, left out of pickles; or of a process, up to a size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Value = TypeVar("_Value")
_Key = TypeVar("_Key", bound=Hashable)
_Held = TypeVar("_Held", bound=Sized)


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


def kept_by_argument(
    compute: Callable[[Any, _Key], _Value],
) -> Callable[[Any, _Key], _Value]:
    """Return a method of one argument whose results an object keeps, as a ``kept_property``."""
    name = f"_results_of_{compute.__name__}"

    @wraps(compute)
    def result(instance: Any, key: _Key) -> _Value:
        known: dict[_Key, _Value] = instance.__dict__.get(name) or {}
        if key not in known:
            known[key] = compute(instance, key)
            instance.__dict__[name] = known
        return known[key]

    return result


class NewestValues(Generic[_Key, _Held]):
    """The values that this process used last, up to a number of items in all of them."""

    def __init__(self, items_max: int, size_of: Callable[[_Held], int] = len) -> None:
        self._items_max, self._size_of = items_max, size_of
        self._count = 0
        self._held: OrderedDict[_Key, _Held] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Held | None:
        """Return the value of a key; None if it is not kept."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: _Key, value: _Held) -> None:
        """Keep a value, and drop the values that were not used for the longest time."""
        with self._lock:
            if key in self._held:
                return
            self._held[key] = value
            self._count += self._size_of(value) + 1
            while self._count > self._items_max:
                _, dropped = self._held.popitem(last=False)
                self._count -= self._size_of(dropped) + 1


def fields_alone(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a value, as ``__getstate__``: what it keeps or caches is left out."""
    return {member.name: getattr(value, member.name) for member in fields(value)}
