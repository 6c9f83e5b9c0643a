"""``bucketlake ingest``: arguments, files of settings, and their errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.intake.job_file import read_streamer_properties, read_toml


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "landing" / "day=4"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text("id;n\na;1,5\nb;x\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ingest", *arguments])


CSV = ("--set", "separator=;", "--set", "decimal=,")


def rows_of(path: str) -> list[dict[str, object]]:
    return bl.open_table(path).to_arrow(columns=["id", "n", "day"]).to_pylist()


def test_a_folder_is_taken_and_tried_and_its_dead_letters_are_taken_again() -> None:
    typed = (
        "orders",
        "landing",
        "--key",
        "id",
        "--set",
        "schema=id string, n double, day int",
        *CSV,
    )
    shown = run(*typed, "--dry-run", "--output", "json")
    assert json.loads(shown.stdout)["rows"] == [{"id": "a", "n": 1.5, "day": 4}]
    assert not Path("orders").exists()
    done = run(*typed, "--metrics", "m.prom", "--set", "max_files=1")
    assert (done.exit_code, "dead_letters  1" in done.stdout) == (0, True), done.output
    assert "ingest orders: 1 rows cannot be taken" in done.stderr
    assert rows_of("orders") == [{"id": "a", "n": 1.5, "day": 4}]
    assert "bucketlake_ingest_rows_total" in Path("m.prom").read_text()
    again = run("orders", "landing", *CSV, "--replay", "--output", "json")
    assert json.loads(again.stdout)["dead_letters"] == 1


def test_settings_stand_in_a_file_and_arguments_come_before_them() -> None:
    Path("i.toml").write_text(
        'table = "orders"\nrecord_key = ["id"]\non_bad_row = "fail"\n'
        '[files]\npaths = ["landing"]\nseparator = ";"\ndecimal = ","\n'
    )
    stopped = run("--config", "i.toml", "--set", "schema=id string, n double")
    assert stopped.exit_code == 1
    assert "--on-bad-row dead_letter" in stopped.stderr, stopped.stderr
    done = run("other", "--config", "i.toml", "--set", "schema=id string, n double",
               "--on-bad-row", "dead_letter")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert rows_of("other") == [{"id": "a", "n": 1.5, "day": "4"}]


def test_toml_names_topics_and_their_tables() -> None:
    Path("k.toml").write_text(
        'every = 5\n[tables]\norders = "lake/orders"\n[kafka]\nsubscribe = "orders"\n'
        '"kafka.bootstrap.servers" = "b:9092"\nincludeHeaders = true\n'
    )
    found = read_toml("k.toml")
    assert found.table == {"orders": "lake/orders"}
    assert found.source == {
        "subscribe": "orders", "kafka.bootstrap.servers": "b:9092", "includeHeaders": "true",
    }  # fmt: skip
    assert found.options == {"every": 5}


def test_properties_of_hudis_streamer_are_taken_and_the_others_named() -> None:
    Path("s.properties").write_text(
        "hoodie.datasource.write.recordkey.field=id\n"
        "hoodie.datasource.write.partitionpath.field=\n"
        "hoodie.datasource.write.precombine.field=n\n"
        "hoodie.datasource.write.table.type=MERGE_ON_READ\n"
        "hoodie.deltastreamer.source.kafka.topic=orders\n"
        "hoodie.streamer.kafka.source.maxEvents=500\n"
        "bootstrap.servers=b:9092\nauto.offset.reset=earliest\nsasl.mechanism=PLAIN\n"
        "hoodie.streamer.transformer.sql=select 1\n"
    )
    found = read_streamer_properties("s.properties")
    assert found.source == {
        "subscribe": "orders", "kafka.bootstrap.servers": "b:9092",
        "startingOffsets": "earliest", "kafka.sasl.mechanism": "PLAIN",
    }  # fmt: skip
    assert found.options == {
        "record_key": ["id"], "ordering": ["n"], "table_type": "merge_on_read", "max_rows": 500,
    }  # fmt: skip
    assert found.unused == ("hoodie.streamer.transformer.sql",)
    Path("f.properties").write_text(
        "hoodie.datasource.write.recordkey.field=id\nhoodie.streamer.source.dfs.root=landing\n"
        "hoodie.streamer.x=1\n"
    )
    (Path("landing") / "day=4" / "1.csv").write_text("id,n\na,1\n")
    done = run("orders", "--streamer-properties", "f.properties")
    assert "passed over: hoodie.streamer.x" in done.stderr
    assert rows_of("orders") == [{"id": "a", "n": 1, "day": "4"}]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give PATH and SOURCE"),
        (("orders",), "give PATH and SOURCE"),
        (("orders", "--topic", "a"), "--topic needs --kafka"),
        (("orders", "landing", "--set", "max_file=3"), "did you mean 'max_files'"),
        (("--config", "none.toml"), "none.toml: it cannot be read"),
        (("--config", "bad.toml"), "bad.toml: it is no TOML"),
        (("--config", "odd.toml"), "did you mean 'table'"),
        (("--config", "both.toml"), "either [kafka] or [files]"),
        (("--config", "empty.toml"), "paths = [...]"),
        (("--config", "number.toml"), "kafka = 5 cannot be used: give a section [kafka]"),
        (("--config", "wrong.properties"), "maxEvents: invalid literal"),
    ],
)
def test_what_is_wrong_is_told(arguments: tuple[str, ...], told: str) -> None:
    Path("bad.toml").write_text("table =")
    Path("odd.toml").write_text('tabel = "x"')
    Path("both.toml").write_text('[files]\npaths = ["x"]\n[kafka]\nsubscribe = "x"')
    Path("number.toml").write_text('table = "x"\nkafka = 5')
    Path("empty.toml").write_text('table = "x"\n[files]\n')
    Path("wrong.properties").write_text("hoodie.streamer.kafka.source.maxEvents=many\n")
    done = run(*arguments)
    assert done.exit_code in (1, 2)
    assert told in done.stderr
