"""Words of Delta Lake, Iceberg, Hudi, Lance, Spark, pandas and polars, and what to call here.

A caller who types such a word gets the usual error of Python with a hint. The names do not exist:
``hasattr`` is false for them. ``words_of_others.tsv`` has a line for words with the same hint:
words that are no attributes of a table or of the package, or no arguments of our functions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from importlib import resources
from types import ModuleType
from typing import Any, TypeVar, cast

from bucketlake.model.names import did_you_mean

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
Caller = TypeVar("Caller", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)


@lru_cache(maxsize=1)
def words_of_others() -> dict[str, dict[str, str]]:
    """Return the hint of each word, by where it is used: ``table``, ``module`` or ``argument``."""
    file = resources.files("bucketlake.model") / "words_of_others.tsv"
    found: dict[str, dict[str, str]] = {}
    text = file.read_text(encoding="utf-8") if file.is_file() else ""  # A zip may lack it.
    for line in text.splitlines()[1:]:
        where, words, hint = line.split("\t")
        found.setdefault(where, {}).update(dict.fromkeys(words.split(), hint))
    return found


def hint_for(name: str, where: str, known: object = None) -> str:
    """Return the end of an error about an unknown name; empty if nothing is known of it.

    Parameters
    ----------
    name : str
        The name.
    where : {"table", "module", "merge"}
        What lacks it.
    known : object
        Has our names; a name in camel case may mean one of them.

    Examples
    --------
    >>> hint_for("show_commits", "table")
    ': table.timeline() (bucketlake timeline) has the commits and services'
    """
    words, snake = words_of_others().get(where, {}), _CAMEL.sub("_", name).lower()
    found = words.get(name) or words.get(snake)
    if found is not None:
        return f": {found}"
    return f": it is {snake} here" if snake != name and hasattr(known, snake) else ""


def attribute_error(name: str, held: object, where: str, known: object) -> AttributeError:
    """Return the error for an attribute that an object lacks; a special name gets no hint."""
    what = f"{type(held).__name__!r} object"
    if isinstance(held, ModuleType):
        what = f"module {held.__name__!r}"
    hint = "" if name.startswith("_") else hint_for(name, where, known)
    return AttributeError(f"{what} has no attribute {name!r}{hint}", name=name, obj=held)


def module_call_error(module: str) -> TypeError:
    """Return the error for a call of a module whose name is a function of others."""
    hint = hint_for(module.rpartition(".")[2], "module")
    return TypeError(f"{module} is a module, not a function{hint}")


def require_our_arguments(
    function: str, known: Mapping[str, object], options: Mapping[str, object]
) -> None:
    """Raise TypeError for an argument that a function does not have, with the one that is meant."""
    for name in options:
        if name in known:
            continue
        words = words_of_others().get("argument", {}).get(name, "").split()
        ours = [f"{word}=" for word in words if word in known]
        hint = f": give {' or '.join(ours)}" if ours else did_you_mean(name, known)
        if not hint and name in words_of_others().get("table", {}):
            hint = hint_for(name, "table")
        if not hint:
            taken = ", ".join(word for word in known if word != "self")
            hint = f": its arguments are {taken}" if taken else ": it has no arguments"
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def in_our_words(function: Caller) -> Caller:
    """Let the error for an unknown argument of a function name the argument that is meant."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        require_our_arguments(function.__name__, known, options)
        return function(*args, **options)

    return cast(Caller, call)


def methods_in_our_words(kind: Kind) -> Kind:
    """Let all public methods of a class do so."""
    for name, held in [*vars(kind).items()]:
        if inspect.isfunction(held) and not name.startswith("_"):
            setattr(kind, name, in_our_words(held))
    return kind
