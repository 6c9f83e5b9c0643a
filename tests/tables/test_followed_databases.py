"""Recorded streams of databases flow into tables, in any order; the tables equal the databases."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.cdc.batch import plan_of, read_messages, schemas_in
from bucketlake.cdc.json_messages import any_has
from bucketlake.following import reading_of
from tests.cdc_streams import (
    as_texts,
    declared,
    expected,
    keys_of,
    kinds_of,
    messages,
    parts,
    rows_at_end,
)
from tests.registry import registry_of

WHOLE = [
    ("random", "default", "public.ledger"),
    ("mysql-random", "default", "mysql_random.stock"),
    ("interleaved", "default", "public.a"),
    ("interleaved", "default", "public.b"),
    ("incremental", "default", "public.old"),
    ("incremental", "default", "public.stock"),
    ("heartbeat", "default", "public.seen"),
    ("lifecycle", "keep-nulls", "public.customers"),
    ("lifecycle", "keep-nulls", "public.orders"),
]


IN_ONE_BATCH = [("random", "default")]
"""Streams of which a row whose key changed lacks a value, which is in the row of the old key."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:columns .* have a default:UserWarning"),
    pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning"),
]


def followed(scenario: str, table: str, batches: Iterator[pa.Table], **given: Any) -> Any:
    """Write the batches of a topic to a table, which is made of the first one."""
    made, schema = None, given.pop("schema", None)
    for batch in batches:
        if (
            made is None
            and schema is None
            and not batch["value"].drop_null()[0].as_py().startswith(b'{"schema"')
        ):
            schema = declared(scenario, table)
        rows = bl.debezium(batch, schema, table=made, **given)
        if made is None:
            path = f"memory://followed/{random.random()}"
            keys = keys_of(scenario, table)
            made = bl.create_table(path, schema=rows.schema, record_key=keys, ordering="_position")
        made.upsert(rows, merge_schema=True)
    return made


def require_rows_of(scenario: str, table: str, made: Any) -> None:
    kinds = kinds_of(scenario, table)
    assert as_texts(made.to_arrow(), [*kinds], kinds) == rows_at_end(scenario, table)


@pytest.mark.parametrize(("scenario", "variant", "table"), WHOLE)
@pytest.mark.parametrize("order", ["in order", "random cuts", "shuffled with repeats"])
def test_a_stream_gives_the_rows_of_its_database(
    scenario: str, variant: str, table: str, order: str
) -> None:
    rows = messages(scenario, variant, table)
    draw = random.Random(f"{scenario} {variant} {order}")
    cuts: list[int] = []
    if order != "in order":
        cuts = [draw.randrange(len(rows)) for _ in range(4)]
    if order == "shuffled with repeats":
        if (scenario, variant) in IN_ONE_BATCH:
            cuts = []
        places = [*range(len(rows)), *draw.sample(range(len(rows)), len(rows) // 3)]
        draw.shuffle(places)
        rows = rows.take(pa.array(places))
    require_rows_of(scenario, table, followed(scenario, table, parts(rows, cuts)))


@pytest.mark.parametrize("table", ["public.parents", "public.children", "public.others"])
@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3, 4, 5, 6, 7]], ids=len)
def test_a_truncate_deletes_the_rows_before_it(table: str, cuts: list[int]) -> None:
    rows = messages("truncate", "default", table)
    made = followed("truncate", table, parts(rows, cuts), on_truncate="delete")
    require_rows_of("truncate", table, made)
    made.upsert(bl.debezium(rows, table=made, on_truncate="delete"))
    require_rows_of("truncate", table, made)
    first = bl.debezium(rows.slice(0, 2), table=made, on_truncate="ignore")
    made.upsert(first)  # Rows before the truncate come again, without it.
    require_rows_of("truncate", table, made)


@pytest.mark.parametrize(
    ("variant", "framing"),
    [("headers", "confluent"), ("eight-bytes", "apicurio"), ("confluent", "confluent")],
)
def test_avro_is_read_with_the_schemas_of_a_registry(variant: str, framing: str) -> None:
    rows = messages("avro", variant, "public.wares")
    with registry_of(expected("avro")["schemas"]) as (address, asked):
        given = {"registry": address, "framing": framing}
        made = followed("avro", "public.wares", parts(rows, [6]), **given)
        assert len({*asked}) < len(asked) <= 2 * len({*asked})  # Once for each batch and id.
    kinds = kinds_of("avro", "public.wares")
    names = [name for name in kinds if name != "flag"]  # Its null came as the default.
    wanted = [{name: row[name] for name in names} for row in rows_at_end("avro", "public.wares")]
    assert as_texts(made.to_arrow(), names, kinds) == sorted(wanted, key=repr)


@pytest.mark.parametrize(("variant", "at"), [("eight-bytes", 8), ("confluent", 4)])
def test_a_message_of_a_schema_that_the_registry_does_not_have_is_bad(
    variant: str, at: int
) -> None:
    rows = messages("avro", variant, "public.wares").slice(0, 4)
    values = rows["value"].to_pylist()
    unknown = [values[0][:at] + b"\xee" + values[0][at + 1 :], *values[1:]]
    place = rows.column_names.index("value")
    with registry_of(expected("avro")["schemas"]) as (address, _):
        framing = "apicurio" if at == 8 else "confluent"
        reading = reading_of(registry=address, framing=framing)
        held = rows.set_column(place, "value", pa.array(unknown, pa.binary()))
        found = read_messages(held, reading, None)
        whole = read_messages(rows, reading, None)
    with (
        registry_of({}) as (address, _),
        pytest.raises(bl.StorageError, match=r"the registry gave no Avro schema .*registry="),
    ):
        read_messages(rows, reading_of(registry=address, framing=framing), None)
    assert found.at.tolist() == [at for at in whole.at.tolist() if at]
    (reason,) = found.bad["reason"].to_pylist()
    assert "the message names no schema that the registry has" in reason


@pytest.mark.parametrize(
    ("scenario", "variant", "table", "envelope"),
    [
        ("lifecycle", "unwrap-keep-nulls", "public.customers", "unwrapped"),
        ("lifecycle", "unwrap-keep-nulls", "public.empty_at_first", "unwrapped"),
        ("lifecycle", "plain-tx", "public.customers", "debezium"),
        ("lifecycle", "no-tombstones", "public.orders", "debezium"),
        ("keys", "default", "public.pairs", "debezium"),
        ("keys", "default", "public.single", "debezium"),
        ("keys", "default", "public.key_types", "debezium"),
        ("keys", "three-partitions-plain", "public.single", "debezium"),
        ("keys", "unwrap", "public.single", "unwrapped"),
        ("mysql-random", "plain", "mysql_random.stock", "debezium"),
        ("partitioned", "via-root", "public.events", "debezium"),
        ("random", "plain", "public.ledger", "debezium"),
    ],
)
def test_other_forms_of_a_stream_give_the_rows_of_its_database(
    scenario: str, variant: str, table: str, envelope: str
) -> None:
    rows = messages(scenario, variant, table)
    cuts = [len(rows) // 3, len(rows) // 2]
    made = followed(scenario, table, parts(rows, cuts), envelope=envelope)
    require_rows_of(scenario, table, made)


UNLIKE_THE_DATABASE = {
    ("types", "public.nums"): {"nneg", "m", "nfree"},  # Sent with a wrong scale, a sign, 1.1.
    ("types", "public.texts"): {"c5", "nm", "bt", "bt5", "bv"},  # Blanks, null, other words.
    ("types", "public.times"): {"t", "t0", "t3", "tz", "iv"},  # Numbers; another zone.
    ("types", "public.lists"): {"abo", "a2"},  # Other words; arrays of arrays are lost.
    ("types", "public.others"): {"h", "pt", "g", "ip", "ln", "bx", "po", "ci", "comp", "lsn"},
    ("mysql-types", "mysql_types.texts"): {"bn", "vb", "bl", "e"},  # Other words.
}


@pytest.mark.parametrize(("scenario", "table"), UNLIKE_THE_DATABASE)
def test_values_of_all_types_are_those_of_the_database(scenario: str, table: str) -> None:
    """Decimals in base64 are read as text elsewhere (risingwave#10628)."""
    made = followed(scenario, table, iter([messages(scenario, "default", table)]))
    kinds = kinds_of(scenario, table)
    names = [name for name in kinds if name not in UNLIKE_THE_DATABASE[scenario, table]]
    wanted = [
        {name: _number(row[name], kinds[name]) for name in names}
        for row in rows_at_end(scenario, table)
    ]
    held = as_texts(made.to_arrow(), names, kinds)
    found = [{name: _number(row[name], kinds[name]) for name in names} for row in held]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def _number(text: str | None, kind: str) -> Any:
    if text is None or kind not in ("real", "double precision"):
        return text
    return np.float32(text) if kind == "real" else float(text)


def test_times_and_bits_are_numbers_and_bytes() -> None:
    times = bl.debezium(messages("types", "default", "public.times"))
    assert times["t"].to_pylist()[:3] == [0, 86_399_999_999, 86_400_000_000]  # 24:00 is kept.
    assert times["t3"][0].as_py() == 1_000
    texts = bl.debezium(messages("types", "default", "public.texts"))
    assert texts["bt5"][0].as_py() == bytes([0b10101])
    numbers = bl.debezium(messages("types", "default", "public.nums"))
    assert numbers["nfree"][0].as_py() == "-12345678901234567890.12345678901234567890123456789"
    specials = bl.debezium(messages("types", "string-connect-base64", "public.specials"))
    assert specials["n"].to_pylist()[:1] == ["NAN"]
    infinite = bl.debezium(messages("types", "default", "public.infinite"))
    assert infinite["tsz"].cast(pa.int64())[0].as_py() == 9223372036825200000
    iso = bl.debezium(
        messages("types", "isostring-plain", "public.times"),
        "id int, d date, ts timestamp_ntz, tsz timestamp",
    )
    assert iso["ts"].equals(times["ts"])
    assert iso["tsz"].equals(times["tsz"])
    assert iso["d"].slice(0, 2).equals(times["d"].slice(0, 2))  # Later ones differ at the source.


@pytest.mark.parametrize("variant", ["default", "hex-string-plain"])
@pytest.mark.parametrize("order", ["in order", "in cuts", "shuffled"])
def test_values_that_did_not_change_are_kept(variant: str, order: str) -> None:
    """Placeholders overwrite values elsewhere (debezium-server-iceberg#196, risingwave#22852).

    The rows that are named here are those of which the messages tell the values.
    """
    for table, told in (("public.docs", {"1", "4", "5", "6"}), ("public.docs_full", {"1"})):
        rows = messages("toast", variant, table)
        cuts = [*range(2, len(rows), 4), 13] if order == "in cuts" else []  # 13: a key changes.
        if order == "shuffled":
            rows = rows.take(pa.array(random.Random(8).sample(range(len(rows)), len(rows))))
        kinds = kinds_of("toast", table)
        schema = None if variant == "default" else declared("toast", table)
        if schema is not None:  # Bytes come as text in hexadecimal digits.
            schema = schema.set(schema.names.index("by"), pa.field("by", pa.string()))
        made = followed("toast", table, parts(rows, cuts), schema=schema)
        names = [*kinds]
        held = {row["id"]: row for row in as_texts(made.to_arrow(), names, kinds)}
        wanted = {row["id"]: row for row in rows_at_end("toast", table)}
        if schema is not None:
            for row in wanted.values():
                row["by"] = row["by"] and row["by"].removeprefix("\\x")
        assert held.keys() == wanted.keys()
        for key in told & wanted.keys():
            assert held[key] == wanted[key], key


# ---- Faults that pipelines are reported for --------------------------------------------------


def change(op: str, after: Any, before: Any = None, lsn: int | None = 1, **source: Any) -> str:
    """Return a message of Debezium without a schema."""
    told = {"connector": "postgresql", "lsn": lsn, **source}
    return json.dumps({"before": before, "after": after, "op": op, "source": told})


def topic(*values: str | None, keys: list[str | None] | None = None) -> pa.Table:
    """Return messages of one partition, by default with the key 1."""
    count = len(values)
    return pa.table(
        {
            "key": pa.array(['{"id":1}'] * count if keys is None else keys, pa.string()),
            "value": pa.array(values, pa.string()),
            "topic": ["db.public.t"] * count,
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(70, 70 + count), pa.int64()),
        }
    )


COLUMNS = "id bigint, v string"
BAD = {
    "not JSON": ("nonsense", "cannot be read"),
    "a cut message": (change("c", {"id": 1, "v": "a"})[:-9], "cannot be read"),
    "no object": ("[1, 2]", "where an object belongs"),
    "null": ("null", "a NoneType, where an object belongs"),
    "nothing": ("", "cannot be read"),
    "two objects": (
        f"{change('c', {'id': 1, 'v': 'a'})}{change('c', {'id': 1, 'v': 'b'})}",
        "cannot",
    ),
    "an unknown operation": (change("x", {"id": 1, "v": "a"}), "operation 'x' is unknown"),
    "no envelope": ('{"id": 1, "v": "a"}', "the message has no op"),
    "no position": (change("u", {"id": 1, "v": "a"}, lsn=None), "no position in the log"),
    "no file of the log": (
        change("u", {"id": 1, "v": "a"}, connector="mysql", file="bin", pos=4),
        "no position in the log",
    ),
    "no place in the log": (
        change("u", {"id": 1, "v": "a"}, connector="mysql", file="bin.000001"),
        "no position in the log",
    ),
    "no row": (change("c", None), "the change has no row"),
    "a delete without a row": (change("d", None), "the change has no row"),
    "another type": (change("c", {"id": "one", "v": "a"}), "cannot be read"),
    "a truncated table": (change("t", None), "the table was truncated"),
}


BAD_UNWRAPPED = {
    "a mark that is no mark": ({"__deleted": "yes"}, "__deleted is yes, not true or false"),
    "a truncated table": ({"__op": "t"}, "operation 't' changes no row"),
    "an unknown operation": ({"__op": "x"}, "operation 'x' changes no row"),
}


@pytest.mark.parametrize("fault", BAD_UNWRAPPED)
def test_an_unwrapped_row_that_may_be_none_is_bad(fault: str) -> None:
    told, reason = BAD_UNWRAPPED[fault]
    row = {"id": 1, "v": "a", "__lsn": 5}
    rows = topic(json.dumps({**row, "__op": "c"}), json.dumps({**row, **told}))
    with pytest.raises(bl.InputError, match=f"offset 71: .*{reason}"):
        bl.debezium(rows, COLUMNS, envelope="unwrapped")
    if "__deleted" in told:
        with pytest.raises(bl.InputError, match=f"offset 71: .*{reason}"):
            bl.debezium(rows, COLUMNS, envelope="row")


@pytest.mark.parametrize("key", ["1", '"id"', "[1]", "{"])
def test_a_delete_whose_key_is_no_object_is_bad(key: str) -> None:
    with pytest.raises(bl.InputError, match="offset 70: it cannot be read"):
        bl.debezium(topic(None, keys=[key]), COLUMNS, envelope="row")


@pytest.mark.parametrize("data", [{"id": 1, "v": "a"}, "text", 5])
def test_rows_of_canal_that_are_no_list_are_bad(data: Any) -> None:
    value = json.dumps({"type": "INSERT", "data": data, "es": 1})
    with pytest.raises(bl.InputError, match="offset 70: it cannot be read"):
        bl.debezium(topic(value), COLUMNS, envelope="canal", record_key="id")


def test_a_snapshot_of_sql_server_is_before_its_changes() -> None:
    """It has the text NULL in place of the log's number of the change."""
    told = {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"}
    read = change("r", {"id": 1, "v": "old"}, **told, change_lsn="NULL")
    changed = change("u", {"id": 1, "v": "new"}, **told, change_lsn="00000027:00000758:0003")
    found = bl.debezium(topic(changed, read), COLUMNS)["_position"].to_pylist()
    assert found[1] < found[0]


AFTER: Any = {"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int64"}]}
SCHEMAS = [
    "a text",
    [],
    {"fields": 5},
    {"fields": ["a text"]},
    {"fields": [{"field": "after", "type": "struct", "fields": "a text"}, {"field": "op"}]},
    {"fields": [{**AFTER, "fields": AFTER["fields"] * 2}, {"field": "op", "type": "string"}]},
    {"fields": [{**AFTER, "fields": []}, {"field": "op", "type": "string"}]},
    *(
        {
            "fields": [
                {**AFTER, "fields": [{"field": added, "type": "string"}]},
                {"field": "op", "type": "string"},
                {"field": added, "type": "string"},
            ]
        }
        for added in ("_position", "_unavailable", "_hoodie_is_deleted")
    ),
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_message_whose_schema_is_none_is_bad_alone(schema: Any) -> None:
    fine = change("c", {"id": 1, "v": "a"})
    odd = json.dumps({"schema": schema, "payload": json.loads(fine)})
    key = json.dumps({"schema": schema, "payload": {"id": 1}})
    for envelope, part in (("debezium", 0), ("row", 2)):
        rows = topic(odd, fine, None, keys=['{"id":1}', '{"id":1}', key])
        reading = reading_of(COLUMNS, envelope=envelope)
        found = plan_of(schemas_in(rows, reading).to_pylist(), reading).decode(rows)
        reasons = {letter["offset"] - 70: letter["reason"] for letter in found.bad.to_pylist()}
        assert "the schema cannot be read" in reasons[part]
        if envelope == "debezium":
            assert found.rows["v"].to_pylist() == ["a"]


@pytest.mark.parametrize("fault", BAD)
def test_a_message_that_cannot_be_read_is_named_with_its_reason(fault: str) -> None:
    """It stops the others only in a write; ingest gets them apart (hudi#18458)."""
    value, reason = BAD[fault]
    fine = change("c", {"id": 1, "v": "a"})
    rows = topic(fine, value, fine)
    with pytest.raises(
        bl.InputError, match=r"topic db\.public\.t, partition 3, offset 71"
    ) as caught:
        bl.debezium(rows, COLUMNS)
    assert reason in str(caught.value)
    reading = reading_of(COLUMNS)
    found = plan_of(schemas_in(rows, reading).to_pylist(), reading).decode(rows)
    assert found.bad.select(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 3, "offset": 71, "value": value.encode()}
    ]
    assert reason in found.bad["reason"][0].as_py()
    assert found.rows["v"].to_pylist() == ["a", "a"]


def test_a_row_with_a_new_key_that_is_truncated_needs_no_value_of_the_old_key() -> None:
    lacking = change("c", {"id": 2, "v": "__debezium_unavailable_value"}, lsn=1)
    rows = topic(lacking, change("t", None, lsn=2), keys=['{"id":2}', None])
    old = [[{"key": "__debezium.oldkey", "value": b'{"id":1}'}], []]
    rows = rows.append_column("headers", pa.array(old))
    with pytest.raises(bl.InputError, match="its key changed"):
        bl.debezium(rows, COLUMNS, on_truncate="ignore")
    batch = bl.debezium(rows, COLUMNS, on_truncate="delete")
    assert batch.select(["id", "_hoodie_is_deleted"]).to_pylist() == [
        {"id": 2, "_hoodie_is_deleted": True}
    ]


def test_a_message_without_a_key_is_named() -> None:
    """After a change of the key or the name of a table, Debezium sends such messages."""
    fine = change("c", {"id": 1, "v": "a"})
    rows = topic(fine, fine, keys=['{"id":1}', None])
    with pytest.raises(bl.InputError, match="offset 71: the message has no key"):
        bl.debezium(rows, COLUMNS)


def test_a_tombstone_without_key_and_value_is_passed_over() -> None:
    """A tombstone falls over elsewhere (hudi#8519)."""
    rows = topic(None, change("c", {"id": 1, "v": "a"}), None, keys=[None, '{"id":1}', '{"id":1}'])
    assert bl.debezium(rows, COLUMNS)["v"].to_pylist() == ["a"]


def test_a_message_without_value_deletes_where_rows_have_no_envelope() -> None:
    rows = topic('{"id":1,"v":"a"}', None, '{"id":2,"v":"b"}', keys=['{"id":1}', '{"id":1}', "x"])
    batch = bl.debezium(rows, COLUMNS, envelope="row")
    assert batch["_hoodie_is_deleted"].to_pylist() == [False, True, False]
    assert batch["id"].to_pylist() == [1, 1, 2]
    assert batch["_position"].to_pylist() == sorted(batch["_position"].to_pylist())


def test_positions_in_a_binlog_are_numbers() -> None:
    """They are compared as text elsewhere (hudi#9475)."""
    places = [("bin.000009", 900, 2), ("bin.000010", 5, 0), ("bin.000010", 1000, 0)]
    places += [("bin.000010", 1000, 1), ("bin.1000000", 1, 0)]
    values = [
        change("u", {"id": 1, "v": "a"}, connector="mysql", file=f, pos=p, row=r)
        for f, p, r in places
    ]
    found = bl.debezium(topic(*values), COLUMNS)["_position"].to_pylist()
    assert found == sorted({*found})


@pytest.mark.parametrize("log", [{"lsn": 1}, {"connector": "mysql", "file": "a.000001", "pos": 4}])
def test_a_snapshot_row_without_position_loses_against_any_change(log: dict[str, Any]) -> None:
    """Positions are null after a bootstrap (hudi#7193)."""
    told = dict.fromkeys(log) | {"lsn": None, "connector": log.get("connector", "postgresql")}
    values = [
        change("u", {"id": 1, "v": "new"}, **log),
        change("r", {"id": 1, "v": "old"}, **told),
    ]
    batch = bl.debezium(topic(*values), COLUMNS)
    path = f"memory://followed/{random.random()}"
    table = bl.create_table(path, schema=batch.schema, record_key="id", ordering="_position")
    table.upsert(batch)
    assert table.to_arrow()["v"].to_pylist() == ["new"]


def test_positions_grow_along_a_log_of_interleaved_transactions() -> None:
    """The place of a change alone does not: a later record has a smaller one (materialize#5668)."""
    for table, partition in product(("public.a", "public.b"), (0, 1)):
        rows = messages("interleaved", "default", table)
        own = rows.filter(pc.equal(rows["partition"], partition))
        found = bl.debezium(own, declared("interleaved", table))["_position"].to_pylist()
        assert found == sorted(found)


@pytest.mark.parametrize(
    "sequence", ["", "[]", "text", '["1"]', '[null,""]', '["a","b"]', f'["{2**64}","1"]'], ids=repr
)
@pytest.mark.parametrize("envelope", ["debezium", "unwrapped"])
def test_a_change_whose_sequence_cannot_be_read_is_bad(sequence: str, envelope: str) -> None:
    """Its lsn may be less than the commit before, by which other changes of its transaction go."""
    rows = messages("interleaved", "default", "public.a")
    every = [json.loads(value) for value in rows["value"].to_pylist() if value]
    [first] = [change for change in every if (change["after"] or {}).get("v") == "A first"]
    told = first["source"]
    later = {**told, "lsn": told["lsn"] + 8, "sequence": sequence}
    values = [
        {**first, "source": source, "after": {"id": 1, "v": v}, "op": op}
        for op, v, source in (("u", "first", told), ("u", "later", later), ("r", "read", later))
    ]
    if envelope == "unwrapped":
        values = [
            {**value["after"], "__op": value["op"]}
            | {f"__source_{name}": value["source"][name] for name in ("lsn", "sequence")}
            for value in values
        ]
    batch = topic(*map(json.dumps, values))
    reading = reading_of(COLUMNS, envelope=envelope)
    found = plan_of(schemas_in(batch, reading).to_pylist(), reading).decode(batch)
    assert found.bad["offset"].to_pylist() == [71, 72]
    assert found.rows["v"].to_pylist() == ["first"]
    with pytest.raises(bl.InputError, match=r"offset 71: .*sequence|offset 71: it cannot be read"):
        bl.debezium(batch, COLUMNS, envelope=envelope)


@pytest.mark.parametrize("envelope", ["row", "unwrapped", "maxwell"])
def test_a_row_that_nothing_orders_is_bad(envelope: str) -> None:
    """Two changes of a key would have one position, and a DataFrame has no order."""
    values = {
        "row": {"id": 1, "v": "a"},
        "unwrapped": {"id": 1, "v": "a", "__op": "u"},
        "maxwell": {"type": "insert", "data": {"id": 1, "v": "a"}},
    }
    rows = topic(json.dumps(values[envelope]))
    assert len(bl.debezium(rows, COLUMNS, envelope=envelope, record_key="id")) == 1
    with pytest.raises(bl.InputError, match="tells no position, and has no offset"):
        bl.debezium(rows.drop(["offset"]), COLUMNS, envelope=envelope, record_key="id")


def test_a_row_that_tells_no_place_while_others_do_is_bad() -> None:
    """The offset would take the place of one, which is no place in the log."""
    told = {"__op": "u", "__source_lsn": 9}
    values = [{"id": n, "v": "a", **told} for n in (1, 2)]
    values += [{"id": 1, "v": "b", "__op": "u"}, {"id": 3, "v": "c", "__op": "r"}]
    batch = topic(*map(json.dumps, values))
    reading = reading_of(COLUMNS, envelope="unwrapped")
    found = plan_of(schemas_in(batch, reading).to_pylist(), reading).decode(batch)
    assert found.bad["offset"].to_pylist() == [72, 73]
    assert found.rows["id"].to_pylist() == [1, 2]


def test_a_column_with_a_default_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="columns balance have a default"):
        bl.debezium(messages("lifecycle", "default", "public.customers"))


def test_a_value_that_is_lacking_is_refused_if_asked_for() -> None:
    rows = messages("toast", "default", "public.docs")
    with pytest.raises(bl.InputError, match="lacks the value of"):
        bl.debezium(rows, unavailable="fail")
    arrays = messages("toast", "default", "public.more_arrays")
    with pytest.raises(bl.InputError, match="the row lacks the value of"):
        bl.debezium(arrays, unavailable="fail")


def test_the_text_of_a_placeholder_is_a_value_of_a_row_that_was_inserted() -> None:
    text = "__debezium_unavailable_value"
    batch = bl.debezium(topic(change("c", {"id": 1, "v": text})), COLUMNS)
    assert batch["v"].to_pylist() == [text]
    own = bl.debezium(topic(change("u", {"id": 1, "v": "<no>"})), COLUMNS, placeholder="<no>")
    assert own["v"].to_pylist() == [None]


def test_a_lacking_value_takes_the_latest_earlier_one_however_rows_come() -> None:
    text = "__debezium_unavailable_value"
    values = [
        change("c", {"id": 1, "v": "a"}, lsn=10),
        change("u", {"id": 1, "v": "b"}, lsn=20),
        change("u", {"id": 1, "v": text}, lsn=30),
    ]
    for kind in ("copy_on_write", "merge_on_read"):
        for places in permutations(range(3)) if kind == "copy_on_write" else [(0, 1, 2)]:
            table = bl.create_table(
                f"memory://followed/{kind}-{places}",
                schema=bl.debezium(topic(*values), COLUMNS).schema,
                record_key="id",
                ordering="_position",
                table_type=kind,
            )
            for place in places:
                table.upsert(bl.debezium(topic(values[place]), COLUMNS, table=table))
            assert table.to_arrow()["v"].to_pylist() == ["b"], places


@pytest.mark.parametrize(
    ("argument", "value"),
    [("envelope", "avro"), ("unavailable", "null"), ("on_truncate", "x"), ("framing", 4)],
)
def test_an_argument_that_has_none_of_its_values_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(bl.ConfigError, match=argument):
        bl.debezium(topic(), COLUMNS, **{argument: value})


def partitioned_by_city(index: Any) -> Any:
    schema = pa.schema(
        {"id": pa.int64(), "city": pa.string(), "_unavailable": _MAP, "_position": pa.string()}
    )
    path = f"memory://followed/{random.random()}"
    return bl.create_table(
        path, schema=schema, record_key="id", partition_by="city", ordering="_position", index=index
    )


_MAP = pa.map_(pa.string(), pa.string())
_ROME, _OSLO = {"id": 1, "city": "Rome"}, {"id": 1, "city": "Oslo"}


def test_a_changed_partition_value_leaves_no_second_row() -> None:
    """The row is doubled elsewhere (hudi#12128, hudi#4501)."""
    table = partitioned_by_city(bl.SimpleBucket(2))
    table.upsert(bl.debezium(topic(change("c", _ROME, lsn=1)), table))
    table.upsert(bl.debezium(topic(change("u", _OSLO, before=_ROME, lsn=2)), table))
    assert table.to_arrow()["city"].to_pylist() == ["Oslo"]
    with pytest.raises(bl.InputError, match="does not show the row before it"):
        bl.debezium(topic(change("u", _ROME, lsn=3)), table)


def test_a_delete_that_carries_keys_alone_is_refused_by_a_partitioned_table() -> None:
    """It deletes nothing elsewhere (hudi#9143); an index of the whole table finds the key."""
    gone = topic(change("d", None, before={"id": 1, "city": None}, lsn=4))
    table = partitioned_by_city(bl.SimpleBucket(2))
    with pytest.raises(bl.InputError, match="its partition is not known"):
        bl.debezium(gone, table)
    whole = topic(change("d", None, before=_ROME, lsn=4))
    table.upsert(bl.debezium(topic(change("c", _ROME, lsn=1)), table))
    table.upsert(bl.debezium(whole, table))
    assert table.count() == 0


def test_replica_identity_of_another_index_is_refused() -> None:
    rows = messages("keys", "default", "public.by_index")
    with pytest.raises(bl.InputError, match="REPLICA IDENTITY USING INDEX"):
        bl.debezium(rows)
    zero = topic(change("d", None, before={"id": 0, "v": None}), keys=['{"id":0}'])
    assert bl.debezium(zero, COLUMNS)["_hoodie_is_deleted"].to_pylist() == [True]


def test_a_key_change_is_a_delete_and_an_insert_in_any_order() -> None:
    """It is seen as one event elsewhere (materialize#6553); the halves may be in two partitions."""
    rows = messages("keys", "three-partitions-plain", "public.single")
    places = [*range(len(rows))]
    random.Random(3).shuffle(places)
    made = followed("keys", "public.single", parts(rows.take(pa.array(places)), [9, 20]))
    require_rows_of("keys", "public.single", made)


def test_a_key_before_a_change_that_cannot_be_read_makes_its_message_bad_alone() -> None:
    """Its header is damaged, and its row lacks a value of the row with that key."""
    lacks = {"id": 1, "v": "__debezium_unavailable_value"}
    rows = topic(change("c", {"id": 2, "v": "b"}), change("c", lacks))
    headers = [[], [{"key": "__debezium.oldkey", "value": b"{broken"}]]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = rows.append_column("headers", pa.array(headers, kind))
    found = read_messages(rows, reading_of(COLUMNS), None)
    assert found.rows["id"].to_pylist() == [2]
    assert found.bad["offset"].to_pylist() == [71]


@pytest.mark.parametrize("values", [["1", "0", None], [1, 0, None], [True, False, None]], ids=repr)
def test_a_boolean_that_is_declared_may_be_a_number_or_its_text(values: list[Any]) -> None:
    """MySQL has tinyint(1), and Canal sends texts."""
    rows = topic(*(json.dumps({"id": 1, "v": value}) for value in [None, *values]))
    batch = bl.debezium(rows, "id bigint, v boolean", envelope="row")
    assert batch["v"].to_pylist() == [None, True, False, None]


@pytest.mark.parametrize("ordering", [None, "n", ["n", "_position"]])
def test_a_lacking_value_is_refused_where_a_table_would_not_keep_the_stored_one(
    ordering: Any,
) -> None:
    """Other orderings do not say of which change a stored value is."""
    columns = "id bigint, v string, n bigint"
    first = change("c", {"id": 1, "v": "long", "n": 1}, lsn=10)
    lacks = change("u", {"id": 1, "v": "__debezium_unavailable_value", "n": 2}, lsn=20)
    batch = bl.debezium(topic(first), columns)
    path = f"memory://followed/{random.random()}"
    table = bl.create_table(path, schema=batch.schema, record_key="id", ordering=ordering)
    table.upsert(batch)
    for later in (topic(lacks), topic(first, lacks)):
        for rows in (bl.debezium(later, columns), bl.debezium(later, table)):
            with pytest.raises(bl.InputError, match="lacks a value that its change did not show"):
                table.upsert(rows)
    assert table.to_arrow()["v"].to_pylist() == ["long"]
    table.upsert(bl.debezium(topic(change("u", {"id": 1, "v": "b", "n": 3}, lsn=30)), table))
    table.upsert(table.to_arrow())
    text = change("c", {"id": 1, "v": "__debezium_unavailable_value", "n": 4}, lsn=40)
    assert table.to_arrow()["v"].to_pylist() == ["b"]
    table.upsert(bl.debezium(topic(text), table))
    assert table.to_arrow()["v"].to_pylist() == ["__debezium_unavailable_value"], "it lacks none"


@pytest.mark.parametrize("branch", [b"", b"\x02"], ids=["int", "null or int"])
def test_a_lacking_list_of_numbers_is_seen_in_avro(branch: bytes) -> None:
    """A number that may be null has the number of its branch before it."""
    reading = reading_of(COLUMNS)
    numbers = (2 * number for number in reading.placeholder.encode())
    items = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in numbers]
    message = b"".join(branch + item for item in items)
    assert any_has(pa.array([b"before", b"\x38" + message + b"\0"], pa.binary()), reading.traces)


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_batch_and_table_order_the_changes_of_a_key_alike(kind: str) -> None:
    """A batch is ordered by another column than its table elsewhere (hudi#19660)."""
    new, old = (change("u", {"id": 1, "v": v}, lsn=n) for v, n in (("new", 30), ("old", 20)))
    gone = change("d", None, before={"id": 1, "v": None}, lsn=25)
    for batches in permutations([[new, gone, old]]), permutations([[new], [gone], [old]]):
        for order in batches:
            path = f"memory://followed/{random.random()}"
            schema = bl.debezium(topic(new), COLUMNS).schema
            table = bl.create_table(
                path, schema=schema, record_key="id", ordering="_position", table_type=kind
            )
            for batch in order:
                table.upsert(bl.debezium(topic(*batch), table))
            assert table.to_arrow()["v"].to_pylist() == ["new"], order
