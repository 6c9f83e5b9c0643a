"""Commands that create a table and change its rows: create, upsert, update, delete, sql."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import bucketlake as bl
from bucketlake.cli.data_files import input_files, read_input_file, schema_of_file
from bucketlake.cli.output import Output
from bucketlake.cli.shared_options import (
    DataFilePath,
    GivenIndex,
    IndexOption,
    Word,
    data_parameters,
    format_option,
    index_options,
    int_option,
    names_option,
    path_command,
    schema_options,
)
from bucketlake.cli.table_facts import table_facts
from bucketlake.config.table_config import OFF, UPKEEP_MODES
from bucketlake.config.table_version import NEWEST_VERSION, WRITTEN_VERSIONS
from bucketlake.index.partition import with_rules
from bucketlake.index.setting import TableIndex
from bucketlake.model.result import facts_of
from bucketlake.model.row_merge import ColumnRule, SchemaMerge
from bucketlake.model.schema_text import parse_schema
from bucketlake.model.table_type import ChangeLogMode, TableType
from bucketlake.write.input_files.reading import Reading

metadata_table_option = click.option(
    "--without-metadata-table",
    is_flag=True,
    help="Turn the metadata table off first, and delete it; Hudi's next write builds it again.",
)


@path_command
@click.option(
    "--like",
    type=DataFilePath(),
    help="Data file with the columns of the table; its rows are not written.",
)
@click.option(
    "--schema",
    "schema_text",
    metavar="NAME:TYPE,...",
    help="Columns of the table; types are those of SQL.",
)
@format_option("Format of --like, if its ending does not name it.")
@names_option("--key", "Columns that identify a record.", "record_key", required=True)
@names_option("--partition-by", "Columns whose values become folders; if not set: none.")
@click.option(
    "--ordering",
    metavar="NAME",
    help="Column whose greater value wins; if not set: later commits win.",
)
@click.option(
    "--ordering-of",
    multiple=True,
    metavar="COLUMN=NAME",
    help="Column whose greater value wins for one column alone; repeatable.",
)
@click.option(
    "--delete-marker",
    metavar="COLUMN=TEXT",
    help="Column and the text in it that makes a row of a write delete its key: op=D.",
)
@index_options(of_new_table=True)
@click.option(
    "--rules",
    cls=IndexOption,
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
@int_option(
    "--max-file-size",
    "Let a bucket have several file groups; the next is opened at this size. With a "
    "record-level index: the size to which new keys fill a file group.",
    cls=IndexOption,
    metavar="BYTES",
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
    "version",
    type=click.Choice(WRITTEN_VERSIONS),
    default=NEWEST_VERSION,
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
@click.option(
    "--keep-deletes",
    metavar="TIME",
    help="How long deletes with an ordering value keep older rows out: '7 days', or 0.  "
    "[default: 7 days with --ordering]",
)
def create_command(
    path: str,
    output: Output,
    like: Path | None,
    schema_text: str | None,
    file_format: str | None,
    index: GivenIndex,
    **settings: Any,
) -> None:
    r"""Create an empty table at PATH.

    Examples
    --------
    bucketlake create orders --like monday.parquet --key order_id \
      --partition-by day --ordering updated_at --delete-marker op=D
    bucketlake create prices --schema 'sku string, price decimal(10,2)' --key sku
    bucketlake create events --like monday.parquet --key event_id --index consistent \
      --buckets 4 --max-buckets 256 --table-type merge_on_read
    """
    marker, own = settings.pop("delete_marker"), settings.pop("ordering_of")
    if own:
        rows = {} if settings["ordering"] is None else {"*": settings["ordering"]}
        settings["ordering"] = _by_name("--ordering-of", own, "COLUMN=NAME") | rows
    rules, max_file_size = settings.pop("rules"), settings.pop("max_file_size")
    table = bl.create_table(
        path,
        schema=_schema(like, schema_text, file_format),
        delete_marker=_marker(marker),
        index=_whole_index(index, rules, max_file_size),
        **settings,
    )
    output.facts(table_facts(table))


@path_command
@data_parameters
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
@click.option(
    "--on-tie",
    type=Word(["fail"]),
    help="fail: refuse two different rows of one key with equal ordering values.",
)
@metadata_table_option
def upsert_command(
    table: bl.Table,
    output: Output,
    files: tuple[Path | str, ...],
    reading: Reading,
    merge: SchemaMerge,
    merge_rules: tuple[str, ...],
    without_metadata_table: bool,
    **kept: Any,
) -> None:
    """Insert or update records.

    One commit writes the rows of all FILEs: new keys are inserted, existing keys are updated. A
    FILE may be a pattern in quotes such as 'landing/*.csv', or an address such as
    's3://landing/*.parquet', with the -o options of the table.

    Examples
    --------
    bucketlake upsert orders monday.parquet tuesday.csv --null-value NA
    bucketlake upsert orders changed_columns.csv --missing keep
    bucketlake upsert totals new_counts.csv --merge n=sum --merge last_seen=max
    """
    rules = _by_name("--merge", merge_rules, "COLUMN=RULE") or None
    rows = input_files(files, reading, table.storage_options)
    if without_metadata_table:
        table.drop_metadata_table()
    with output.progress("upserting the rows"):
        result = table.upsert(rows, merge_schema=merge.words, merge=rules, **kept)
    output.facts(_facts(result, output))


@path_command
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
def update_command(
    table: bl.Table, output: Output, assignments: tuple[str, ...], where: str | None
) -> None:
    """Change columns of the rows that match a condition.

    Literals, columns, +, -, *, ||, concat, coalesce, upper and lower can be used. Files without a
    matching row are not written.

    Examples
    --------
    bucketlake update orders --set "status='late'" --set "n=n + 1" --where "status = 'open'"
    """
    changes = _by_name("--set", assignments, "COLUMN=EXPRESSION")
    with output.progress("updating the matching rows"):
        result = table.update(changes, where=where)
    output.facts(_facts(result, output))


@path_command
@partial(data_parameters, required=False)
@click.option("--where", metavar="CONDITION", help="SQL condition, in place of FILEs.")
@index_options(of_new_table=False)
@metadata_table_option
def delete_command(
    table: bl.Table,
    output: Output,
    files: tuple[Path | str, ...],
    reading: Reading,
    where: str | None,
    without_metadata_table: bool,
) -> None:
    """Delete records by key, or those that match a condition.

    One commit deletes the keys of all FILEs. A file needs the key columns and the partition
    columns; other columns are ignored, and so are keys that the table does not have.

    Examples
    --------
    bucketlake delete orders withdrawn.csv
    bucketlake delete orders --where "status = 'test'"
    """
    if bool(files) == (where is not None):
        raise click.UsageError("give either files with keys, or --where")
    keys, doing = None, "deleting the matching rows"
    if where is None:
        keys = input_files(files, reading, table.storage_options)
        doing = "deleting the keys"
    if without_metadata_table:
        table.drop_metadata_table()
    with output.progress(doing):
        result = table.delete(keys, where=where)
    output.facts(_facts(result, output))


def _by_name(option: str, texts: tuple[str, ...], form: str) -> dict[str, str]:
    """Return the values of an option of the form COLUMN=VALUE, by what stands before the sign."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise click.UsageError(f"{option} {text!r} is not {form}")
        if name in found:
            raise click.UsageError(f"{option} names {name!r} twice; name it once")
        found[name] = value
    return found


@path_command
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
def sql_command(
    table: bl.Table,
    output: Output,
    statement: str,
    sources: tuple[str, ...],
    file_format: str | None,
) -> None:
    """Run MERGE INTO, UPDATE or DELETE FROM on the table at PATH.

    In STATEMENT the table has the name of its folder. One commit has all changes. The conditions
    and expressions are those of update and delete, and comparisons of columns.

    Examples
    --------
    bucketlake sql orders "DELETE FROM orders WHERE n >= 9"
    bucketlake sql orders --source news=monday.parquet "MERGE INTO orders t USING news s \
      ON t.id = s.id WHEN MATCHED AND s.n = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
    """
    tables: dict[str, bl.Table | pa.Table] = {table.path.rstrip("/").rpartition("/")[2]: table}
    for name, file in _by_name("--source", sources, "NAME=FILE").items():
        given = DataFilePath().convert(file, None, click.get_current_context())
        tables[name] = read_input_file(given, table.schema(), Reading(file_format))
    with output.progress("running the statement"):
        result = bl.sql(None, statement, tables=tables)
    output.facts(_facts(result, output))


def _whole_index(index: GivenIndex, rules: str | None, max_file_size: int | None) -> TableIndex:
    """Return the index with rules and a maximum file size, where the command has them."""
    if rules is not None and index.counted is not None:  # Other kinds have no such option.
        return with_rules(index.counted, rules).with_max_file_size(max_file_size)
    return index.with_max_file_size(max_file_size)


def _marker(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    ((column, value),) = _by_name("--delete-marker", (text,), "COLUMN=TEXT").items()
    return column, value


def _schema(like: Path | None, schema_text: str | None, file_format: str | None) -> pa.Schema:
    if (like is None) == (schema_text is None):
        raise click.UsageError("give either --like or --schema")
    if schema_text is not None:
        return parse_schema(schema_text, "--schema")
    assert like is not None
    return schema_of_file(like, Reading(file_format))


def _facts(result: bl.WriteResult, output: Output) -> dict[str, object]:
    """Return the facts of a write; those of lookups only if the kind of index looks keys up."""
    lookups = ("looked_up", "from_cache", "from_table")
    facts = facts_of(result) if output.is_text else asdict(result)
    return {
        name: value for name, value in facts.items() if name not in lookups or value is not None
    }
