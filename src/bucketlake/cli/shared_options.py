"""Arguments and options that several commands share, and the parsing of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, TypeAlias, TypeVar, cast

import click

import bucketlake as bl
from bucketlake.cli.output import JsonOutput, Output, TextOutput
from bucketlake.config.resize_options import MAX_DEPTH_DEFAULT
from bucketlake.errors import naming_table
from bucketlake.hashing.directory import DEPTH_MAX
from bucketlake.model.names import did_you_mean
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.storage.location import shown_address
from bucketlake.storage.store_options import HIDDEN, StoreOptions
from bucketlake.write.input_files.data_files import FileFormat, Reading
from bucketlake.write.input_files.files import is_pattern

# Names before "=" in an argument whose -o was forgotten.
_NAME_OF_A_SECRET = re.compile(r"(?i)key|secret|token|sas|password|credential")
_OUTPUTS = {"text": TextOutput, "json": JsonOutput}
GivenIndex: TypeAlias = (
    bl.SimpleBucket | bl.ConsistentBucket | bl.ExtendibleBucket | bl.RecordIndex | bl.DynamicBucket
)
"""An index that options name."""

_RECORD_KINDS = {"record": True, "global-record": False}
"""Record-level indexes by name; whether each partition has an index of its own."""

_OPTIONS_OF_KIND = {
    "simple": ("--buckets", "--hash-field", "--rules", "--max-file-size"),
    "consistent": ("--buckets", "--hash-field", "--min-buckets", "--max-buckets"),
    "extendible": ("--buckets", "--hash-field", "--max-depth"),
    "dynamic": ("--max-records", "--assigners", "--max-file-size"),
    "record": ("--max-file-size",),
    "global-record": ("--max-file-size",),
}
"""The kinds of ``--index``, and the options that belong to each of them."""

_BUCKETS_DEFAULT = 4

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


class CommandWithExample(click.Command):
    """A command whose help ends with an example, printed without changes."""

    def __init__(self, *arguments: Any, example: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.example = dedent(example).strip()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Example"):
            formatter.write(indent(self.example, " " * formatter.current_indent) + "\n")


class Word(click.Choice[str]):
    """One of some words; the error for another word names the one that is meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = error.message.rstrip(".") + did_you_mean(value, self.choices)
            raise click.BadParameter(message, ctx, param) from None


class DataFile(click.Path):
    """An existing data file; the error for a missing one names the file that is meant.

    With ``or_address`` also an address in an object store, and a pattern; both stay texts.
    """

    def __init__(self, *, or_address: bool = False) -> None:
        self._or_address = or_address
        super().__init__(exists=True, dir_okay=False, allow_dash=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; an address or a pattern as it is."""
        text = str(value)
        is_path = "://" not in text and (Path(text).exists() or not is_pattern(text))
        if self._or_address and not is_path:
            return text
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            folder = Path(value).parent
            if Path(value).exists() or not folder.is_dir():
                raise
            names = [path.name for path in folder.iterdir() if path.is_file()]
            message = error.message.rstrip(".") + did_you_mean(Path(value).name, names)
            raise click.BadParameter(message, ctx, param) from None


def split_names(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> list[str]:
    """Parse ``--key a,b`` and ``--key a --key b`` to the same list."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def split_pairs(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Parse all given ``key=value`` pairs."""
    pairs = [text.partition("=") for text in texts]
    if not all(name and equals for name, equals, _ in pairs):
        # The text may be a secret, so the error does not show it.
        raise click.BadParameter("write it as key=value")
    return {name: value for name, _, value in pairs}


def open_output(_context: click.Context, _parameter: click.Parameter, name: str) -> Output:
    """Return the requested kind of output."""
    return _OUTPUTS[name]()


def table_path(command: Command, *, required: bool = True) -> Command:
    """Add the arguments of every command: the table, its storage options, the output format."""
    decorators: list[Decorator[Any]] = [
        click.argument("path", required=required),
        click.option(
            "-o",
            "--storage-option",
            "storage_options",
            multiple=True,
            metavar="KEY=VALUE",
            callback=split_pairs,
            help="Setting of the table's storage, such as region=eu-west-1; repeatable.",
        ),
        click.option(
            "--output",
            type=Word(list(_OUTPUTS)),
            default="text",
            show_default=True,
            callback=open_output,
            help="Output for people (text) or for programs (json).",
        ),
    ]

    @wraps(command)
    def naming_it(*args: Any, path: str | None, **others: Any) -> Any:
        with naming_table(shown_address(path)) if path is not None else nullcontext():
            return command(*args, path=path, **others)

    return cast(Command, _apply(naming_it, decorators))


def data_files(command: Command, *, required: bool = True) -> Command:
    """Add data files, one or more of them if they are required, and options for reading them."""
    metavar = "FILE..." if required else "[FILE...]"
    decorators: list[Decorator[Command]] = [
        click.argument(
            "files", nargs=-1, required=required, metavar=metavar, type=DataFile(or_address=True)
        ),
        format_option(
            "Format of the files, if their endings do not name it; for - (standard input): of CSV."
        ),
        click.option(
            "--null-value",
            "null_values",
            multiple=True,
            default=("",),
            metavar="TEXT",
            help="Text that means null in CSV; repeatable. If not set: nothing between two commas.",
        ),
    ]
    return _apply(command, decorators)


def schema_options(command: Command) -> Command:
    """Add the options for changes of the table's schema; the command gets ``merge``."""

    @wraps(command)
    def with_merge(
        *args: Any, add_columns: bool, widen_types: bool, fill_missing: bool, **others: Any
    ) -> None:
        command(*args, merge=SchemaMerge(add_columns, widen_types, fill_missing), **others)

    decorators: list[Decorator[Any]] = [
        click.option(
            "--add-columns", is_flag=True, help="Add new columns of the files to the table."
        ),
        click.option(
            "--widen-types",
            is_flag=True,
            help="Widen columns of the table if values of the files do not fit: int to bigint or "
            "double, float to double, decimals.",
        ),
        click.option(
            "--fill-missing",
            is_flag=True,
            help="Write nulls to columns that the files lack, also in stored records.",
        ),
    ]
    return cast(Command, _apply(with_merge, decorators))


def run_option(command: Command) -> Command:
    """Add the option without which a command changes nothing."""
    does_it = "Do it; without this option, only show what would be done."
    return click.option("--run", is_flag=True, help=does_it)(command)


def format_option(help_text: str) -> Decorator[Any]:
    """Return the option that names the format of a data file."""
    formats = [known.value for known in FileFormat]
    return click.option("--format", "file_format", type=Word(formats), help=help_text)


def bucket_limits(command: Command) -> Command:
    """Add the limits of dynamic buckets."""
    return _apply(command, _bucket_limit_options())


def _bucket_limit_options(where: str = "") -> list[Decorator[Any]]:
    return [
        click.option(
            "--max-records",
            type=click.IntRange(min=1),
            help=f"Records of a full dynamic bucket; if not set: no limit.{where}",
        ),
        click.option(
            "--assigners",
            type=click.IntRange(min=1),
            help="Dynamic buckets with which a new partition begins; if not set: 1, or 4 if the "
            f"partition is large.{where}",
        ),
    ]


def given_of(options: Mapping[str, int | None]) -> dict[str, int]:
    """Return the options that are set."""
    return {name: value for name, value in options.items() if value is not None}


def index_options(*, of_new_table: bool) -> Decorator[Any]:
    """Return the options of an index, which a command gets as ``index``.

    A new table without any of them has dynamic buckets. For other tables ``index`` is then None,
    because the options are only for a table that stores no index setting.
    """
    where = default_kind = default_count = ""
    if of_new_table:
        default_kind = " If not set: dynamic, or simple if another option needs it."
        default_count = f" If not set: {_BUCKETS_DEFAULT}."
    else:
        where = " Only for a table that stores no index setting."

    def add(command: Command) -> Any:
        @wraps(command)
        def with_index(
            *arguments: Any,
            kind: str | None,
            buckets: int | None,
            min_buckets: int | None,
            max_buckets: int | None,
            max_depth: int | None,
            max_records: int | None,
            assigners: int | None,
            hash_fields: list[str],
            **others: Any,
        ) -> Any:
            options: dict[str, object] = {
                "--buckets": buckets,
                "--hash-field": hash_fields or None,
                "--min-buckets": min_buckets,
                "--max-buckets": max_buckets,
                "--max-depth": max_depth,
                "--max-records": max_records,
                "--assigners": assigners,
            }
            if of_new_table:  # Options of "create" alone; "resize" has another --max-file-size.
                options["--rules"] = others["rules"]
                options["--max-file-size"] = others["max_file_size"]
            given = [name for name, value in options.items() if value is not None]
            is_named = kind is not None
            if kind is None:
                is_dynamic = of_new_table and {*given} <= {*_OPTIONS_OF_KIND["dynamic"]}
                kind = "dynamic" if is_dynamic else "simple"
            _require_own_options(kind, given, is_named=is_named)
            if of_new_table and "--buckets" in _OPTIONS_OF_KIND[kind]:
                buckets = buckets or _BUCKETS_DEFAULT
            index: GivenIndex | None = None
            if is_named or given:
                dynamic = given_of({"max_records": max_records, "assigners": assigners})
                limits = given_of({"min": min_buckets, "max": max_buckets, "max_depth": max_depth})
                index = _index_of(kind, buckets, limits, dynamic, hash_fields)
            elif of_new_table:
                index = bl.DynamicBucket()
            return command(*arguments, index=index, **others)

        decorators: list[Decorator[Any]] = [
            click.option(
                "--index",
                "kind",
                type=Word([*_OPTIONS_OF_KIND]),
                help="Buckets of a fixed number; buckets of a hash ring (consistent) or of a "
                'directory (extendible), which "bucketlake resize" splits and merges; buckets '
                "that are opened as the data grows; or a record-level index, which has no "
                "buckets: of each partition, or global, of "
                f"the whole table.{default_kind}{where}",
            ),
            click.option(
                "--buckets",
                type=click.IntRange(min=1),
                help="Buckets in each partition; a hash ring or a directory begins with this "
                "number."
                f"{default_count}{where}",
            ),
            click.option(
                "--min-buckets",
                type=click.IntRange(min=1),
                help=f"Fewest buckets of a hash ring; if not set: 1.{where}",
            ),
            click.option(
                "--max-buckets",
                type=click.IntRange(min=1),
                help=f"Most buckets of a hash ring; if not set: 10,000.{where}",
            ),
            click.option(
                "--max-depth",
                type=click.IntRange(min=0, max=DEPTH_MAX),
                help="Most bits of the hash that choose a bucket of a directory; if not set: "
                f"{MAX_DEPTH_DEFAULT}.{where}",
            ),
            *_bucket_limit_options(where),
            click.option(
                "--hash-field",
                "hash_fields",
                multiple=True,
                metavar="NAME,...",
                callback=split_names,
                help=f"Key columns to hash, if not all.{where}",
            ),
        ]
        return _apply(with_index, decorators)

    return add


def _require_own_options(kind: str, given: list[str], *, is_named: bool) -> None:
    """Raise UsageError for an option that does not belong to a kind of index."""
    for option in given:
        if option not in _OPTIONS_OF_KIND[kind]:
            takers = [name for name, own in _OPTIONS_OF_KIND.items() if option in own]
            if not is_named:
                raise click.UsageError(
                    f"{option} needs --index {' or '.join(takers)}; name the index, or leave the "
                    "option out"
                )
            raise click.UsageError(
                f"{option} does not belong to --index {kind}, which takes "
                f"{', '.join(_OPTIONS_OF_KIND[kind])}; leave it out, or choose --index "
                f"{' or '.join(takers)}"
            )


def _index_of(
    kind: str,
    buckets: int | None,
    limits: Mapping[str, int],
    dynamic: Mapping[str, int],
    hash_fields: list[str],
) -> GivenIndex:
    """Return the index of the options, which belong to its kind."""
    if kind == "dynamic":
        return bl.DynamicBucket(**dynamic)
    if kind in _RECORD_KINDS:
        return bl.RecordIndex(_RECORD_KINDS[kind])
    if buckets is None:
        raise click.UsageError(f"--index {kind} needs --buckets")
    if kind == "simple":
        return bl.SimpleBucket(buckets, hash_fields or None)
    if kind == "extendible":
        return bl.ExtendibleBucket(buckets, **limits, hash_fields=hash_fields or None)
    return bl.ConsistentBucket(buckets, **limits, hash_fields=hash_fields or None)


def reading_of(
    file_format: str | None, null_values: tuple[str, ...], *, widens: bool = False
) -> Reading:
    """Return how to read data files."""
    return Reading(file_format, null_values, widens)


def asks_for_json(arguments: list[str]) -> bool:
    """Return whether the arguments have ``--output json``; other arguments may be wrong."""
    joined = " ".join(arguments)
    return "--output json" in joined or "--output=json" in joined


def without_secrets(message: str, arguments: list[str]) -> str:
    """Hide the values of storage options in unexpected places of a message."""
    for word in arguments:
        name, equals, _ = word.partition("=")
        if equals and _NAME_OF_A_SECRET.search(name):
            message = message.replace(word, f"{name}={HIDDEN}")
    return StoreOptions().redact(message)


def _apply(command: Command, decorators: list[Decorator[Command]]) -> Command:
    for decorator in reversed(decorators):
        command = decorator(command)
    return command
