"""Ask several releases of Hudi which texts of a record key they hash: ``split_keys.json``.

usage: python make_split_keys.py JARS_DIR OUT_DIR        (with PySpark 3.5, and a JDK)

``JARS_DIR`` has the bundles as Spark leaves them that fetches them by their coordinates
(``spark.jars.packages``): ``~/.ivy2/jars``. Their classes are called directly, and no table is
written. The methods have the same code in 0.14.1 as in 0.15.0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import pyspark

RELEASES = {"0.14.0": "3.4", "0.15.0": "3.5", "1.0.2": "3.5", "1.1.1": "3.5", "1.2.0": "3.5"}
"""Releases of Hudi, and the Spark of their bundles: the classes that are called need none."""

IDENTIFIER = "org.apache.hudi.index.bucket.BucketIdentifier"
PROGRAM = r"""
import java.lang.reflect.Method;
import java.nio.file.*;
import java.util.*;

public class Ask {
  public static void main(String[] args) throws Exception {
    Method method = Class.forName("IDENTIFIER")
        .getDeclaredMethod("getHashKeys", String.class, List.class);
    method.setAccessible(true);
    StringBuilder told = new StringBuilder();
    for (String line : Files.readAllLines(Path.of(args[0]))) {
      String[] parts = line.split("\t", -1);
      List<?>[] answer = new List<?>[1];
      Thread asking = new Thread(() -> {
        try {
          answer[0] = (List<?>) method.invoke(null, parts[0], Arrays.asList(parts[1].split(" ")));
        } catch (ReflectiveOperationException error) {
          throw new IllegalStateException(error);
        }
      });
      asking.start();
      asking.join(2000);
      if (answer[0] == null) {  // Hudi 1 never answers if an unhashed last field has a colon.
        asking.stop();
        told.append("none\n");
        continue;
      }
      List<?> found = answer[0];
      told.append(found.hashCode());
      for (Object value : found) told.append("\t").append(value == null ? "NULL" : value);
      told.append("\n");
    }
    Files.writeString(Path.of(args[1]), told);
  }
}
""".replace("IDENTIFIER", IDENTIFIER)

PARTS = ("", "a", "id", ":", ",", "x:y", "a,b")
ONE_FIELD = sorted(
    {
        *(f"{one}{mark}{two}" for one, mark, two in product(PARTS, (":", ","), PARTS)),
        *("k395c:d", "2024-01-01 10:00:00", "urn:a:b", "id:v", "id:__null__", "id:__empty__"),
        *("__null__:a", "a:__null__", "日:本", "😀:a,b", "a:b,", "a:b,,", ",,a:b", ":", "plain"),
    }
)
VALUES = ("p", "p:q", "p,q", "p,q:r", ":", ",", ",:", ":,", "__null__", "__empty__", "f2:z", "p,")
TWO_FIELDS = [f"f1:{one},f2:{two}" for one, two in product(VALUES, VALUES)]
CASES = [
    *((key, ["id"]) for key in ONE_FIELD),
    *((key, fields) for key in TWO_FIELDS for fields in (["f1", "f2"], ["f2"])),
    *((f"f1:{one},f2:{two}", ["f1"]) for one, two in product(VALUES, VALUES) if ":" not in two),
    *((f"f1:{one},f2:b,f3:{one}", ["f3", "f1"]) for one in VALUES),
]


def main() -> None:
    jars, into = map(Path, sys.argv[1:])
    found = [answers(jars, release) for release in RELEASES]
    lines = [
        json.dumps({"recordKey": key, "hashFields": fields} | by_rule(told))
        for (key, fields), *told in zip(CASES, *found, strict=True)
    ]
    head = f'{{"source": "{IDENTIFIER}.getHashKeys of {", ".join(RELEASES)}", "vectors": [\n'
    (into / "split_keys.json").write_text(head + ",\n".join(lines) + "\n]}\n")


def by_rule(told: list[Any]) -> dict[str, Any]:
    """Name the answer of the releases before 1, and that of the others, where each has one."""
    found = dict(zip(RELEASES, told, strict=True))
    old, new = (
        [found[name] for name in RELEASES if (name < "1") is is_old] for is_old in (True, False)
    )
    if all(answer == old[0] for answer in old) and all(answer == new[0] for answer in new):
        return {"split": old[0], "whole": new[0]}
    return found


def answers(jars: Path, release: str) -> list[Any]:
    """Return the hashed values of each case, and their hash."""
    bundle = jars / f"org.apache.hudi_hudi-spark{RELEASES[release]}-bundle_2.12-{release}.jar"
    spark = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        program, asked, told = (Path(folder, name) for name in ("Ask.java", "asked", "told"))
        program.write_text(PROGRAM)
        asked.write_text("".join(f"{key}\t{' '.join(fields)}\n" for key, fields in CASES))
        classes = f"{bundle}:{spark}/*"
        subprocess.run(["java", "-cp", classes, program, asked, told], check=True)
        lines = [line.split("\t") for line in told.read_text().splitlines()]
    return [
        None
        if hashed == "none"
        else {"values": [None if v == "NULL" else v for v in values], "hash": int(hashed)}
        for hashed, *values in lines
    ]


if __name__ == "__main__":
    main()
