"""The call and the command that do what is advised, as text that can be pasted.

Both are made from one value, so that they say the same. In a call, ``table`` is the open table. In
a command, ``PATH`` is the place of a new table, and ``FILE`` a data file with its columns.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields

from bucketlake.config.table_config import AUTO, OFF
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.partition_rules import join_expressions
from bucketlake.index.setting import TableIndex
from bucketlake.model.table_type import TableType
from bucketlake.services.advice.workload import Conditions

_USUAL_TYPE = TableType.COPY_ON_WRITE.value.lower()
_SPECIAL = re.compile(r"[^\w\-=/ ]")


@dataclass(frozen=True, slots=True)
class Step:
    """What does something that is advised.

    Attributes
    ----------
    call : str
        The call in Python.
    command : str
        The command for a shell.
    """

    call: str
    command: str


def create_step(
    given: Conditions, index: TableIndex, table_type: TableType = TableType.COPY_ON_WRITE
) -> Step:
    """Make a table: a new one, or a new one in place of a table."""
    source = "sample.schema" if given.is_new else "table.schema()"
    arguments: dict[str, object] = {"record_key": [*given.record_key]}
    words = ["create", "PATH", "--like", "FILE", "--key", ",".join(given.record_key)]
    if given.partition_by:
        arguments["partition_by"] = [*given.partition_by]
        words += ["--partition-by", ",".join(given.partition_by)]
    if given.ordering:
        arguments["ordering"] = [*given.ordering] if given.ordering[1:] else given.ordering[0]
        words += ["--ordering", given.ordering[0]]
    if given.hive_style:
        arguments["hive_style"] = True
        words.append("--hive-style")
    upkeep = OFF if given.hudi_writers else AUTO
    for option, name, value, usual in (
        ("--table-type", "table_type", table_type.value.lower(), _USUAL_TYPE),
        ("--table-version", "version", given.version, NEWEST_VERSION),
        ("--upkeep", "upkeep", upkeep, OFF),
    ):
        if value != usual:
            arguments[name] = value
            words += [option, str(value)]
    texts = [f"{name}={value!r}" for name, value in arguments.items()]
    call = _call(
        "bl.create_table", "path", f"schema={source}", *texts, f"index={index_in_python(index)}"
    )
    return Step(call, _command([*words, *_index_words(index)]))


def rescale_step(given: Conditions, rules: Mapping[str, int], default: int | None = None) -> Step:
    """Put rules before those of a table; with a default, in place of them."""
    text = join_expressions(tuple(rules.items()))
    if default is None:
        words = ["rescale", given.path, "--add", text, "--run"]
        return Step(_call("table.rescale", f"add={dict(rules)!r}"), _command(words))
    words = ["rescale", given.path, "--rules", text, "--default", str(default), "--run"]
    call = _call("table.rescale", repr(dict(rules)), f"default={default}")
    return Step(call, _command(words))


def convert_step(given: Conditions, index: DynamicBucket) -> Step:
    """Put a table under dynamic buckets."""
    limits = _index_words(index)[2:]  # Without the kind.
    words = ["convert", given.path, "--dynamic", *limits, "--run"]
    return Step(_call("table.convert", index_in_python(index)), _command(words))


def open_further_groups(given: Conditions) -> Step:
    """Let a bucket of a table have several file groups."""
    size = given.target_bytes
    words = ["convert", given.path, "--max-file-size", str(size), "--run"]
    grouped = _call("table.index.with_max_file_size", str(size))
    return Step(_call("table.convert", grouped), _command(words))


def resize_step(given: Conditions) -> Step:
    """Split and merge the buckets of a ring."""
    size = given.target_bytes
    words = ["resize", given.path, "--max-file-size", str(size), "--run"]
    return Step(_call("table.resize", f"max_file_size={size}"), _command(words))


def run_service(given: Conditions, service: str) -> Step:
    """Run a service with its usual limits."""
    return Step(_call(f"table.{service}"), _command([service, given.path, "--run"]))


def keep_up(given: Conditions) -> Step:
    """Let writes run the services."""
    return Step(
        _call("table.set_upkeep", repr(AUTO)), _command(["upkeep", given.path, "--set", AUTO])
    )


def write_with(given: Conditions, index: TableIndex) -> Step:
    """Open a table with other limits of its buckets, for the writes to come."""
    words = ["upsert", given.path, "FILE", *_index_words(index)]
    call = _call("bl.open_table", repr(given.path), f"index={index_in_python(index)}")
    return Step(call, _command(words))


def index_in_python(index: TableIndex) -> str:
    """Return the expression that makes an index, without its defaults.

    >>> import bucketlake as bl
    >>> index_in_python(bl.SimpleBucket(4, ["device"]))
    "bl.SimpleBucket(4, hash_fields=['device'])"
    """
    parts: list[str] = []
    for field in fields(index):
        value = getattr(index, field.name)
        if not (field.init and field.repr) or value == field.default:
            continue
        if field.name == "rules":
            value = dict(value)
        text = repr([*value] if isinstance(value, tuple) else value)
        is_first = not parts and field.default is MISSING
        parts.append(text if is_first else f"{field.name}={text}")
    return _call(f"bl.{type(index).__name__}", *parts)


def rules_of(counts: Mapping[str, int]) -> dict[str, int]:
    r"""Return rules that match exactly some partitions, as Java patterns.

    >>> rules_of({"city=Köln (Süd)": 8, "": 2})
    {'^city=Köln \\(Süd\\)$': 8, '^$': 2}
    """
    return {f"^{_SPECIAL.sub(_literal, path)}$": count for path, count in counts.items()}


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"


def _literal(found: re.Match[str]) -> str:
    # A comma or a semicolon would end the pattern, so any letter may stand there.
    return "." if found[0] in ",;" else f"\\{found[0]}"


def _index_words(index: TableIndex) -> list[str]:
    """Return the options of a command that name an index."""
    options = [(name, value) for name, value in index.to_command().items() if value is not None]
    return [str(word) for option in options for word in option]


def _command(words: Sequence[str | None]) -> str:
    return shlex.join(["bucketlake", *(word or "" for word in words)])
