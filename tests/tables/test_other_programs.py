"""Messages of Maxwell, Canal and AWS DMS, as their documentation shows them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.cdc.envelope import MESSAGE
from bucketlake.intake.ingesting import IngestOptions, topics_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.storage.memory import forget
from tests.tables.test_ingest_topics import Broker

_NUMBERS = itertools.count()
SCHEMA = "id bigint, city string, at timestamp_ntz"
AT = "2016-10-21 05:33:37.523"


def row(key: int, city: str, **more: Any) -> dict[str, Any]:
    return {"id": key, "city": city, "at": AT, **more}


def maxwell(kind: str, data: Any, place: int, old: Any = None, **more: Any) -> dict[str, Any]:
    told = {"database": "test", "table": "e", "ts": 1477053217, "xid": 23396}
    held = {"position": f"master.{place // 1000:06}:{place % 1000}", **more}
    return {"type": kind, "data": data, **({"old": old} if old else {}), **told, **held}


def canal(kind: str, rows: Sequence[Any], es: int, old: Any = None) -> dict[str, Any]:
    texts = [{name: str(value) for name, value in each.items()} for each in rows]
    told = {"database": "test", "table": "e", "id": 1, "isDdl": False, "pkNames": ["id"]}
    return {"type": kind, "data": texts, "old": old, "es": es, "ts": es + 1, **told}


def dms(kind: str, data: Any, second: int, before: Any = None, **more: Any) -> dict[str, Any]:
    told = {"record-type": "data", "timestamp": f"2021-02-18T23:57:{second:02}.970360Z", **more}
    image = {"before-image": before} if before else {}
    return {"data": data, **image, "metadata": {**told, "operation": kind, "table-name": "e"}}


HISTORIES = {
    "maxwell": [
        maxwell("table-create", None, 1),
        maxwell("bootstrap-start", {}, 1, position=None),
        maxwell("bootstrap-insert", row(1, "old"), 2, position=None),
        maxwell("insert", row(1, "Rome"), 9_900),
        maxwell("insert", row(2, "Oslo"), 10_004, xoffset=1),
        maxwell("update", row(2, "Bonn"), 10_004, {"city": "Oslo"}, xoffset=2),
        maxwell("update", row(3, "Rome"), 10_100, {"id": 1}),
        maxwell("insert", row(4, "Bern"), 10_200),
        maxwell("delete", row(4, "Bern"), 10_300),
    ],
    "canal": [
        {"type": "CREATE", "isDdl": True, "data": None, "sql": "create table e", "es": 1},
        canal("INSERT", [row(1, "Rome"), row(2, "Oslo"), row(4, "Bern")], 1_000),
        canal("UPDATE", [row(2, "Bonn"), row(3, "Rome")], 2_000, [{"city": "Oslo"}, {"id": "1"}]),
        canal("DELETE", [row(4, "Bern")], 3_000),
    ],
    "dms": [
        {"metadata": {"record-type": "control", "operation": "create-table"}},
        dms("load", row(1, "old"), 59),
        dms("insert", row(1, "Rome"), 1),
        dms("insert", row(2, "Oslo"), 2, **{"transaction-record-id": 1}),
        dms("update", row(2, "Bonn"), 2, {"id": 2}, **{"transaction-record-id": 2}),
        dms("update", row(3, "Rome"), 3, {"id": 1}),
        dms("insert", row(4, "Bern"), 4),
        dms("delete", row(4, "Bern"), 5),
    ],
}


def topic(history: Sequence[Any]) -> pa.Table:
    rows = [
        {"topic": "e", "partition": 0, "offset": n, "value": json.dumps(held).encode()}
        for n, held in enumerate(history)
    ]
    return pa.Table.from_pylist(rows, MESSAGE)


@pytest.mark.parametrize("program", [*HISTORIES])
def test_a_history_gives_its_last_rows_in_any_order_and_cut(program: str) -> None:
    messages = topic(HISTORIES[program])
    for order in ([*range(len(messages))], [*reversed(range(len(messages)))]):
        path = f"memory://program{next(_NUMBERS)}"
        table = bl.create_table(
            path, schema=f"{SCHEMA}, _position string", record_key="id", ordering="_position",
            index=bl.SimpleBucket(1),
        )  # fmt: skip
        for part in (order[:3], order[3:]):
            table.upsert(bl.debezium(messages.take(pa.array(part)), table, envelope=program))
        rows = table.to_arrow().to_pylist()
        forget(path)
        assert {held["id"]: held["city"] for held in rows} == {2: "Bonn", 3: "Rome"}
        assert {str(held["at"]) for held in rows} == {f"{AT}000"}


@pytest.mark.parametrize("program", [*HISTORIES])
def test_bad_messages_are_dead_letters_and_the_key_is_that_of_the_job(program: str) -> None:
    broker, name = Broker(), f"memory://program{next(_NUMBERS)}"
    kinds = {"maxwell": "truncate", "canal": "TRUNCATE", "dms": "truncate-table"}
    odd = {"type": kinds[program], "metadata": {"operation": kinds[program]}}
    broker.send("e", *[(None, held) for held in [*HISTORIES[program], odd, {"type": "x"}]])
    messages = {"envelope": program, "schema": SCHEMA, "record_key": "id"}
    made = topics_of(broker, name, IngestOptions(), messages)
    rules = JobRules({"index": bl.SimpleBucket(1), "record_key": "id"})
    assert Job(made, rules).run(None).dead_letters == 2
    rows = bl.open_table(name).to_arrow().to_pylist()
    assert {held["id"]: held["city"] for held in rows} == {2: "Bonn", 3: "Rome"}
    letters = bl.open_table(f"{name}_dead_letters").to_arrow()["reason"].to_pylist()
    word = "None" if program == "dms" else "'x'"
    assert sorted(letters) == [f"the operation {word} is unknown", "the table was truncated"]
    forget(name)
    forget(f"{name}_dead_letters")


@pytest.mark.parametrize(
    ("rows", "old"),
    [([row(1, "Rome"), None], None), ([row(3, "Rome"), row(4, "Oslo")], [{"id": 1}])],
)
def test_a_list_of_canal_is_taken_whole_or_refused(rows: list[Any], old: Any) -> None:
    odd = canal("UPDATE", [], 2_000, old) | {"data": rows}
    with pytest.raises(bl.InputError, match=r"offset 1: .*a null for a row, or old has another"):
        bl.debezium(topic([canal("INSERT", [row(9, "Bonn")], 1_000), odd]), SCHEMA,
                    envelope="canal", record_key="id")  # fmt: skip


def test_an_update_that_may_change_an_unknown_key_is_refused() -> None:
    with pytest.raises(bl.InputError, match="the update may change its key; name the key"):
        bl.debezium(topic(HISTORIES["canal"]), SCHEMA, envelope="canal")
