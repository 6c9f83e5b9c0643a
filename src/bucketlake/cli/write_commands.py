"""Commands that create a table and change its rows: create, upsert, update, delete, sql."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal

import click
import pyarrow as pa

import bucketlake as bl
from bucketlake.cli.input import STANDARD_INPUT, read_file, read_files
from bucketlake.cli.output import Output, TextOutput
from bucketlake.cli.schema_text import parse_schema
from bucketlake.cli.shared_options import (
    CommandWithExample,
    DataFile,
    GivenIndex,
    Word,
    data_files,
    format_option,
    index_options,
    reading_of,
    schema_options,
    split_names,
    table_path,
)
from bucketlake.cli.table_facts import table_facts
from bucketlake.config.table_config import OFF, UPKEEP_MODES
from bucketlake.config.table_version import NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.index.partition_rules import split_expressions
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.setting import INDEXED_KINDS, TableIndex
from bucketlake.model.field_path import field_at
from bucketlake.model.row_merge import ColumnRule
from bucketlake.model.schema_merge import SchemaMerge
from bucketlake.model.shown import facts_of
from bucketlake.model.table_type import ChangeLogMode, TableType
from bucketlake.write.input_files.data_files import Reading
from bucketlake.write.input_files.files import InputFiles, listed

metadata_table_option = click.option(
    "--without-metadata-table",
    is_flag=True,
    help="Turn the metadata table off first, and delete it; Hudi's next write builds it again.",
)


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake create orders --like monday.parquet --key order_id \\
      --partition-by day --ordering updated_at --buckets 8
    bucketlake create prices --schema 'sku:string,price:decimal(10,2)' --key sku --buckets 1
    bucketlake create events --like monday.parquet --key event_id --index consistent \\
      --buckets 4 --max-buckets 256 --table-type merge_on_read
    """,
)
@table_path
@click.option(
    "--like",
    type=DataFile(),
    help="Data file with the columns of the table; its rows are not written.",
)
@click.option("--schema", "schema_text", metavar="NAME:TYPE,...", help="Columns of the table.")
@format_option("Format of --like, if its ending does not name it.")
@click.option(
    "--key",
    multiple=True,
    required=True,
    metavar="NAME,...",
    callback=split_names,
    help="Columns that identify a record.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="NAME,...",
    callback=split_names,
    help="Columns whose values become folders; if not set: none.",
)
@click.option(
    "--ordering",
    metavar="NAME",
    help="Column whose greater value wins; if not set: the later commit wins.",
)
@index_options(of_new_table=True)
@click.option(
    "--rules",
    metavar="TEXT",
    help="Buckets by partition, pattern,count;pattern,count ... All other partitions have "
    "--buckets (default= in Python, --default of rescale).",
)
@click.option(
    "--table-type",
    type=Word([kind.value.lower() for kind in TableType]),
    default=TableType.COPY_ON_WRITE.value.lower(),
    show_default=True,
    help="Whether updates rewrite base files or append log files.",
)
@click.option("--hive-style", is_flag=True, help="Name partition folders COLUMN=VALUE.")
@click.option("--url-encode", is_flag=True, help="Encode special characters in folder names.")
@click.option("--name", help="Name of the table; if not set: the name of its folder.")
@click.option(
    "--max-file-size",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Let a bucket have several file groups; the next is opened at this size. With a "
    "record-level index: the size to which new keys fill a file group.",
)
@click.option(
    "--metadata-table/--no-metadata-table",
    default=True,
    show_default=True,
    help="Whether the table gets Hudi's metadata table.",
)
@click.option(
    "--cdc",
    type=Word([mode.value.lower() for mode in ChangeLogMode]),
    help="Keep each change in files of their own, for Hudi's query of change data.",
)
@click.option(
    "--table-version",
    type=click.Choice([str(version) for version in WRITTEN_VERSIONS]),
    default=str(NEWEST_VERSION),
    show_default=True,
    help="Version of the table: 8 is also read by Hudi 1.0, and 6 by Hudi 0.15.",
)
@click.option(
    "--upkeep",
    type=click.Choice(UPKEEP_MODES),
    default=OFF,
    show_default=True,
    help="Whether writes compact, resize, clean and archive the table when it is due.",
)
def create(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    like: Path | None,
    schema_text: str | None,
    file_format: str | None,
    key: list[str],
    partition_by: list[str],
    ordering: str | None,
    index: GivenIndex,
    max_file_size: int | None,
    rules: str | None,
    table_type: str,
    hive_style: bool,
    url_encode: bool,
    name: str | None,
    metadata_table: bool,
    cdc: str | None,
    table_version: str,
    upkeep: str,
) -> None:
    """Create an empty table at PATH."""
    table = bl.create_table(
        path,
        schema=_schema(like, schema_text, file_format),
        record_key=key,
        partition_by=partition_by,
        ordering=ordering,
        index=_whole_index(index, rules, max_file_size),
        table_type=table_type,
        hive_style=hive_style,
        url_encode=url_encode,
        name=name,
        metadata_table=metadata_table,
        cdc=cdc,
        version=int(table_version),
        upkeep=upkeep,
        storage_options=storage_options,
    )
    output.facts(table_facts(table))


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake upsert orders monday.parquet tuesday.csv --null-value NA
    bucketlake upsert orders changed_columns.csv --missing keep
    bucketlake upsert totals new_counts.csv --merge n=sum --merge last_seen=max
    """,
)
@table_path
@data_files
@index_options(of_new_table=False)
@schema_options
@click.option(
    "--missing",
    type=Word(["keep"]),
    help="keep: stored records keep their values in columns that the files lack.",
)
@click.option(
    "--nulls", type=Word(["keep"]), help="keep: a null in the files keeps the stored value."
)
@click.option(
    "--merge",
    "merge_rules",
    multiple=True,
    metavar="COLUMN=RULE",
    help="How a column gets its value from the stored and the new one: "
    f"{', '.join(rule.value for rule in ColumnRule)}; repeatable.",
)
@metadata_table_option
def upsert(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    files: tuple[Path | str, ...],
    file_format: str | None,
    null_values: tuple[str, ...],
    index: GivenIndex | None,
    merge: SchemaMerge,
    missing: Literal["keep"] | None,
    nulls: Literal["keep"] | None,
    merge_rules: tuple[str, ...],
    without_metadata_table: bool,
) -> None:
    """Insert or update records.

    One commit writes the rows of all FILEs: new keys are inserted, existing keys are updated. A
    FILE may be a pattern in quotes such as 'landing/*.csv', or an address such as
    's3://landing/*.parquet', with the -o options of the table.
    """
    rules = _by_name("--merge", merge_rules, "COLUMN=RULE") or None
    table = bl.open_table(path, index=index, storage_options=storage_options)
    reading = replace(
        reading_of(file_format, null_values, widens=merge.widen_types),
        names_alike=missing == "keep" and nulls is None,
    )
    rows, told = _read(files, table, reading, output, alike=True)
    if without_metadata_table:
        table.drop_metadata_table()
    with output.progress(f"upserting {told} rows"):
        result = table.upsert(
            rows, merge_schema=merge.words, missing=missing, nulls=nulls, merge=rules
        )
    output.facts(_facts(result, output))


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake update orders --set "status='late'" --set "n=n + 1" --where "status = 'open'"
    """,
)
@table_path
@click.option(
    "--set",
    "assignments",
    multiple=True,
    required=True,
    metavar="COLUMN=EXPRESSION",
    help="New value of a column, an SQL expression of the columns of a row; repeatable.",
)
@click.option("--where", metavar="CONDITION", help="SQL condition; if not set: all rows.")
@index_options(of_new_table=False)
def update(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    assignments: tuple[str, ...],
    where: str | None,
    index: GivenIndex | None,
) -> None:
    """Change columns of the rows that match a condition.

    Literals, columns, +, -, *, ||, concat, coalesce, upper and lower can be used. Files without a
    matching row are not written.
    """
    table = bl.open_table(path, index=index, storage_options=storage_options)
    changes = _by_name("--set", assignments, "COLUMN=EXPRESSION")
    with output.progress("updating the matching rows"):
        result = table.update(changes, where=where)
    output.facts(_facts(result, output))


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake delete orders withdrawn.csv
    bucketlake delete orders --where "status = 'test'"
    """,
)
@table_path
@partial(data_files, required=False)
@click.option("--where", metavar="CONDITION", help="SQL condition, in place of FILEs.")
@index_options(of_new_table=False)
@metadata_table_option
def delete(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    files: tuple[Path | str, ...],
    file_format: str | None,
    null_values: tuple[str, ...],
    where: str | None,
    index: GivenIndex | None,
    without_metadata_table: bool,
) -> None:
    """Delete records by key, or those that match a condition.

    One commit deletes the keys of all FILEs. A file needs the key columns and the partition
    columns; other columns are ignored, and so are keys that the table does not have.
    """
    if bool(files) == (where is not None):
        raise click.UsageError("give either files with keys, or --where")
    table = bl.open_table(path, index=index, storage_options=storage_options)
    keys, doing = None, "deleting the matching rows"
    if where is None:
        keys, told = _read(files, table, reading_of(file_format, null_values), output)
        doing = f"deleting {told} keys"
    if without_metadata_table:
        table.drop_metadata_table()
    with output.progress(doing):
        result = table.delete(keys, where=where)
    output.facts(_facts(result, output))


def _by_name(option: str, texts: tuple[str, ...], form: str) -> dict[str, str]:
    """Return the values of an option of the form COLUMN=VALUE, by what stands before the sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{option} {text!r} is not {form}")
        found[name.strip()] = value.strip()
    return found


@click.command(
    cls=CommandWithExample,
    example="""
    bucketlake sql orders "DELETE FROM orders WHERE n >= 9"
    bucketlake sql orders --source news=monday.parquet "MERGE INTO orders t USING news s \
      ON t.id = s.id WHEN MATCHED AND s.n = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
    """,
)
@table_path
@click.argument("statement")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME=FILE",
    help="Data file that a merge uses by this name; repeatable.",
)
@format_option("Format of the files, if their endings do not name it.")
@index_options(of_new_table=False)
def sql(
    path: str,
    storage_options: dict[str, str],
    output: Output,
    statement: str,
    sources: tuple[str, ...],
    file_format: str | None,
    index: GivenIndex | None,
) -> None:
    """Run MERGE INTO, UPDATE or DELETE FROM on the table at PATH.

    In STATEMENT the table has the name of its folder. One commit has all changes. The conditions
    and expressions are those of update and delete, and comparisons of columns.
    """
    table = bl.open_table(path, index=index, storage_options=storage_options)
    tables: dict[str, bl.Table | pa.Table] = {path.rstrip("/").rpartition("/")[2]: table}
    for name, file in _by_name("--source", sources, "NAME=FILE").items():
        given = DataFile().convert(file, None, click.get_current_context())
        tables[name] = read_file(given, table.schema(), Reading(file_format))
    with output.progress("running the statement"):
        result = bl.sql(None, statement, tables=tables)
    output.facts(_facts(result, output))


def _whole_index(
    index: GivenIndex,
    rules: str | None,
    max_file_size: int | None,
) -> TableIndex:
    """Return the index with rules and a maximum file size, where the command has them."""
    if isinstance(index, RingKind):  # Its kind has none of these options.
        return index
    if rules is None or isinstance(index, INDEXED_KINDS):
        return index.with_max_file_size(max_file_size)
    expressions = split_expressions(rules)
    return bl.PartitionBucket(expressions, index.count, "regex", index.hash_fields, max_file_size)


def _schema(like: Path | None, schema_text: str | None, file_format: str | None) -> pa.Schema:
    if (like is None) == (schema_text is None):
        raise click.UsageError("give either --like or --schema")
    if schema_text is not None:
        return parse_schema(schema_text)
    assert like is not None
    return read_file(like, None, Reading(file_format)).schema


def _read(
    files: tuple[Path | str, ...],
    table: bl.Table,
    reading: Reading,
    output: Output,
    *,
    alike: bool = False,
) -> tuple[pa.Table | InputFiles, str]:
    """Return the rows of files and their number; addresses are read by the write itself."""
    files = tuple(_expanded(files, reading))
    local = [file for file in files if isinstance(file, Path)]
    if len(local) < len(files):
        if STANDARD_INPUT in local:
            raise click.UsageError("give either addresses or - (standard input)")
        given = InputFiles(tuple(map(str, files)), reading, storage_options=table.storage_options)
        return given, "the"
    spec, columns = table.config().key_spec, table.schema()
    paths = dict.fromkeys((*spec.record_key_fields, *spec.partition_fields))
    # A file of keys to delete may have a column with the name of a field inside a struct.
    inner = (field_at(columns, path) for path in paths if path not in columns.names)
    known = pa.schema([*columns, *(field for field in inner if field is not None)])
    with output.progress(f"reading {len(files)} {'file' if len(files) == 1 else 'files'}"):
        rows = read_files(local, known, reading, alike=alike)
    return rows, f"{rows.num_rows:,}"


def _expanded(files: tuple[Path | str, ...], reading: Reading) -> Iterator[Path | str]:
    """Yield paths and addresses; a pattern on local disk becomes the paths of its files."""
    for file in files:
        if isinstance(file, Path) or "://" in file:
            yield file
        else:
            yield from (Path(found.shown) for found in listed(InputFiles((file,), reading)))


def _facts(result: bl.WriteResult, output: Output) -> dict[str, object]:
    """Return the facts of a write; those of lookups only if the kind of index looks keys up."""
    lookups = ("looked_up", "from_cache", "from_table")
    facts = facts_of(result) if isinstance(output, TextOutput) else asdict(result)
    return {
        name: value for name, value in facts.items() if name not in lookups or value is not None
    }
