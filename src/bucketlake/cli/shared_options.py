"""Arguments and options that several commands share, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias, TypeVar, cast

import click
from click.shell_completion import CompletionItem

import bucketlake as bl
from bucketlake.cli.output import JsonOutput, Output
from bucketlake.config.resize_options import MAX_DEPTH_DEFAULT
from bucketlake.errors import naming_table
from bucketlake.hashing.directory import DEPTH_MAX
from bucketlake.model.names import did_you_mean
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.storage.location import shown_address
from bucketlake.storage.secret_text import HIDDEN, is_secret_name
from bucketlake.storage.store_options import StoreOptions
from bucketlake.write.input_files.files import is_pattern
from bucketlake.write.input_files.reading import FileFormat, Reading

_OUTPUTS = {"text": Output, "json": JsonOutput}
INDEX_HELP = "help_index"
"""The option that shows the options of the index; a key of click's metadata of a run, too."""

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]


class IndexOption(click.Option):
    """An option of the index: the help has a section for these, perhaps only if it is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002
        """Return nothing for the section of the other options."""
        return None

    def index_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help."""
        return super().get_help_record(ctx)


class CommandWithExample(click.Command):
    """A command whose docstring ends with examples, which the help shows without changes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        text, _, examples = cleandoc(self.help or "").partition("\n\nExamples\n--------\n")
        self.help, self.examples = text, examples.strip()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; those of the index in a section of their own."""
        super().format_options(ctx, formatter)
        options = [held for held in self.params if isinstance(held, IndexOption)]
        is_asked_for = any(held.name == INDEX_HELP for held in self.params)
        if not options or (is_asked_for and not ctx.meta.get(INDEX_HELP)):
            return
        only = ", only for a table that stores no index setting" if is_asked_for else ""
        with formatter.section(f"Index options{only}"):
            formatter.write_dl([row for o in options if (row := o.index_record(ctx)) is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Example"):
            formatter.write(indent(self.examples, " " * formatter.current_indent) + "\n")


class Word(click.Choice[str]):
    """One of some words; the error for another word names the one that is meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            message = error.message.rstrip(".") + did_you_mean(value, self.choices)
            raise click.BadParameter(message, ctx, param) from None


class PlacePath(click.ParamType[str]):
    """A path or an address, as it is given; a shell completes it as a path."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Let the shell complete the names of folders (``dir``) or files (``file``)."""
        return [CompletionItem(incomplete, type=self.name)]


class DataFilePath(click.Path):
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


def names_option(name: str, help_text: str, *names: str, **settings: Any) -> Decorator[Any]:
    """Return an option that takes names, separated by commas or one at a time."""
    settings = {"metavar": "NAME,...", "callback": split_names, **settings}
    return click.option(name, *names, multiple=True, help=help_text, **settings)


def int_option(
    name: str, help_text: str, least: int = 1, most: int | None = None, **settings: Any
) -> Decorator[Any]:
    """Return an option that takes a number; the help shows its default, if it has one."""
    settings["show_default"] = "default" in settings
    return click.option(name, type=click.IntRange(least, most), help=help_text, **settings)


def split_pairs(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Parse all given ``key=value`` pairs."""
    pairs = [text.partition("=") for text in texts]
    if not all(name and equals for name, equals, _ in pairs):
        # The text may be a secret, so the error does not show it.
        raise click.BadParameter("write it as key=value")
    return {name: value for name, _, value in pairs}


def pairs_option(*names: str, help_text: str, metavar: str = "KEY=VALUE") -> Decorator[Any]:
    """Return an option that takes a pair, any number of times."""
    return click.option(
        *names, multiple=True, metavar=metavar, callback=split_pairs, help=help_text
    )


def open_output(_context: click.Context, _parameter: click.Parameter, name: str) -> Output:
    """Return the requested kind of output."""
    return _OUTPUTS[name]()


def path_command(command: Callable[..., Any], *, required: bool = True) -> CommandWithExample:
    """Make a command of a function, with its name and its docstring.

    It has the arguments of every command: the table, its storage options, the output format.
    """
    decorators: list[Decorator[Any]] = [
        click.argument("path", required=required, type=PlacePath("dir")),
        pairs_option(
            *("-o", "--storage-option", "storage_options"),
            help_text="Setting of the table's storage, such as region=eu-west-1; repeatable.",
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

    return click.command(cls=CommandWithExample)(apply_all(naming_it, decorators))


def table_command(command: Callable[..., Any]) -> CommandWithExample:
    """Make a command as :func:`path_command` does; the function gets the opened ``table``."""

    @wraps(command)
    def with_table(*args: Any, path: str, storage_options: dict[str, str], **others: Any) -> Any:
        table = bl.open_table(path, storage_options=storage_options)
        return command(*args, table=table, **others)

    return path_command(with_table)


def data_parameters(command: Command, *, required: bool = True) -> Command:
    """Add data files, one or more of them if they are required, and options for reading them.

    The command gets ``files`` and ``reading``.
    """

    @wraps(command)
    def with_reading(*args: Any, **options: Any) -> None:
        reading = {name: options.pop(name) for name in _OF_READING}
        command(*args, reading=_reading(**reading), **options)

    metavar = "FILE..." if required else "[FILE...]"
    files = click.argument(
        "files", nargs=-1, required=required, metavar=metavar, type=DataFilePath(or_address=True)
    )
    return cast(Command, apply_all(with_reading, [files, *_reading_options()]))


_OF_READING = (
    *("file_format", "null_values", "separator", "header", "columns", "renamed", "decimal"),
    "time_zone",
)


def _reading(
    *, file_format: str | None, separator: str, columns: list[str], renamed: Any, **others: Any
) -> Reading:
    if columns and renamed:
        raise click.UsageError("give either --columns or --rename")
    named = bl.files(
        "-",
        format=file_format,
        separator="\t" if separator == "\\t" else separator,
        columns=columns or renamed or None,
        **others,
    )
    return replace(named.reading, fits_numbers=True)


def _reading_options() -> list[Decorator[Any]]:
    return [
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
        click.option(
            "--separator",
            default=",",
            metavar="CHARACTER",
            help="What stands between two values of CSV, such as ; or \\t. If not set: a comma.",
        ),
        click.option(
            "--header/--no-header",
            default=True,
            help="Whether the first line of CSV names the columns; if not, --columns does.",
        ),
        names_option(
            "--columns", "Columns of CSV in their order, in place of the names in the first line."
        ),
        pairs_option(
            *("--rename", "renamed"),
            help_text="Column of the table for a name in the files; repeatable.",
            metavar="NAME=COLUMN",
        ),
        click.option(
            "--decimal",
            default=".",
            metavar="CHARACTER",
            help="Decimal point of CSV: . or a comma.",
        ),
        click.option(
            "--time-zone",
            metavar="ZONE",
            help="Zone of times in text without one, such as Europe/Berlin. If not set: columns of "
            "instants need a zone in each text, and columns without zone need none.",
        ),
    ]


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
    return cast(Command, apply_all(with_merge, decorators))


def run_option(command: Command) -> Command:
    """Add the option without which a command changes nothing."""
    does_it = "Do it; without this option, only show what would be done."
    return click.option("--run", is_flag=True, help=does_it)(command)


def format_option(help_text: str) -> Decorator[Any]:
    """Return the option that names the format of a data file."""
    formats = [known.value for known in FileFormat]
    return click.option("--format", "file_format", type=Word(formats), help=help_text)


def asks_for_json(arguments: list[str]) -> bool:
    """Return whether the arguments have ``--output json``; other arguments may be wrong."""
    joined = " ".join(arguments)
    return "--output json" in joined or "--output=json" in joined


def without_given_secrets(message: str, arguments: list[str]) -> str:
    """Hide the values of storage options in unexpected places of a message."""
    for word in arguments:
        name, equals, _ = word.partition("=")
        if equals and is_secret_name(name):
            message = message.replace(word, f"{name}={HIDDEN}")
    return StoreOptions().redact(message)


def apply_all(command: Command, decorators: list[Decorator[Command]]) -> Command:
    """Apply decorators to a command; the help shows their options in this order."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


# ---- The options of an index: of a new table, or of one that stores no index setting -------------
#
# Commands for existing tables show them with ``--help-index`` alone, since few tables need them.

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

_KINDS = (
    "simple: a fixed number of buckets. consistent, extendible: buckets of a hash ring or of a "
    'directory, which "bucketlake resize" splits and merges. dynamic: buckets that are opened as '
    "the data grows. record, global-record: a record-level index without buckets, of each "
    "partition or of the whole table."
)


def _show_index_help(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        context.meta[INDEX_HELP] = True
        click.echo(context.get_help())
        context.exit()


index_help_option = click.option(
    "--help-index",
    INDEX_HELP,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_index_help,
    help="Show this message with the options of the index, for a table that stores no index "
    "setting.",
)


def bucket_limits(command: Command) -> Command:
    """Add the limits of dynamic buckets."""
    return apply_all(command, _bucket_limit_options(click.Option))


def _bucket_limit_options(kind: type[click.Option]) -> list[Decorator[Any]]:
    return [
        int_option(
            "--max-records", "Records of a full dynamic bucket; if not set: no limit.", cls=kind
        ),
        int_option(
            "--assigners",
            "Dynamic buckets with which a new partition begins; if not set: 1, or 4 if the "
            "partition is large.",
            cls=kind,
        ),
    ]


def given_of(options: Mapping[str, int | None]) -> dict[str, int]:
    """Return the options that are set."""
    return {name: value for name, value in options.items() if value is not None}


def index_options(*, of_new_table: bool) -> Decorator[Any]:
    """Return the options of an index, which the command of a new table gets as ``index``.

    A new table without any of them has dynamic buckets. Other commands get the opened ``table``:
    the options are only for one that stores no index setting.
    """

    def add(command: Command) -> Any:
        @wraps(command)
        def with_index(*arguments: Any, **options: Any) -> Any:
            asked = {name: options.pop(name) for name in _OF_ALL_TABLES}
            if of_new_table:  # Options of "create" alone; "resize" has another --max-file-size.
                asked |= {name: options[name] for name in _OF_NEW_TABLE}
            index = _given_index(asked, of_new_table)
            if of_new_table:
                return command(*arguments, index=index, **options)
            path, storage_options = options.pop("path"), options.pop("storage_options")
            table = bl.open_table(path, index=index, storage_options=storage_options)
            return command(*arguments, table=table, **options)

        helped = [] if of_new_table else [index_help_option]
        return apply_all(with_index, [*_options(of_new_table), *helped])

    return add


_OF_NEW_TABLE = ("rules", "max_file_size")
_OF_ALL_TABLES = (
    *("kind", "buckets", "hash_fields", "min_buckets", "max_buckets", "max_depth", "max_records"),
    "assigners",
)


def _option_of(argument: str) -> str:
    return "--hash-field" if argument == "hash_fields" else f"--{argument.replace('_', '-')}"


def _given_index(asked: dict[str, Any], of_new_table: bool) -> GivenIndex | None:
    """Return the index that options name; None if none is given for a table that has one."""
    named = asked.pop("kind")
    given = [_option_of(name) for name, value in asked.items() if value not in (None, [])]
    if named is None and not given:
        return bl.DynamicBucket() if of_new_table else None
    is_dynamic = of_new_table and {*given} <= {*_OPTIONS_OF_KIND["dynamic"]}
    kind = named or ("dynamic" if is_dynamic else "simple")
    _require_own_options(kind, given, is_named=named is not None)
    if of_new_table and "--buckets" in _OPTIONS_OF_KIND[kind]:
        asked["buckets"] = asked["buckets"] or _BUCKETS_DEFAULT
    return _index_of(kind, asked)


def _options(of_new_table: bool) -> list[Decorator[Any]]:
    default_kind = default_count = ""
    if of_new_table:
        default_kind = " If not set: dynamic, or simple if another option needs it."
        default_count = f" Of these kinds, if not set: {_BUCKETS_DEFAULT}."
    return [
        click.option(
            "--index",
            "kind",
            cls=IndexOption,
            type=Word([*_OPTIONS_OF_KIND]),
            metavar="KIND",
            help=f"{_KINDS}{default_kind}",
        ),
        _number(
            "--buckets",
            "Buckets in each partition; a hash ring or a directory begins with this "
            f"number.{default_count}",
        ),
        _number("--min-buckets", "Fewest buckets of a hash ring; if not set: 1."),
        _number("--max-buckets", "Most buckets of a hash ring; if not set: 10,000."),
        _number(
            "--max-depth",
            "Most bits of the hash that choose a bucket of a directory; if not set: "
            f"{MAX_DEPTH_DEFAULT}.",
            0,
            DEPTH_MAX,
        ),
        *_bucket_limit_options(IndexOption),
        names_option(
            "--hash-field", "Key columns to hash, if not all.", "hash_fields", cls=IndexOption
        ),
    ]


def _number(name: str, text: str, least: int = 1, most: int | None = None) -> Decorator[Any]:
    return int_option(name, text, least, most, cls=IndexOption)


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


def _index_of(kind: str, asked: Mapping[str, Any]) -> GivenIndex:
    """Return the index of the options, which belong to its kind."""
    if kind == "dynamic":
        names = ("max_records", "assigners")
        return bl.DynamicBucket(**given_of({name: asked[name] for name in names}))
    if kind in _RECORD_KINDS:
        return bl.RecordIndex(_RECORD_KINDS[kind])
    buckets, hash_fields = asked["buckets"], asked["hash_fields"] or None
    if buckets is None:
        raise click.UsageError(f"--index {kind} needs --buckets")
    if kind == "simple":
        return bl.SimpleBucket(buckets, hash_fields)
    if kind == "extendible":
        depth = given_of({"max_depth": asked["max_depth"]})
        return bl.ExtendibleBucket(buckets, **depth, hash_fields=hash_fields)
    limits: dict[str, Any] = given_of({"min": asked["min_buckets"], "max": asked["max_buckets"]})
    return bl.ConsistentBucket(buckets, **limits, hash_fields=hash_fields)
