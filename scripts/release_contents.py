"""Checks what a wheel and an sdist hold: the package, its types and its data, and nothing else."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bucketlake", "pyspark_bucketlake")


def main() -> int:
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for package in PACKAGES
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as held:
        names = {name for name in held.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as held:
        packed = {name.partition("/src/")[2] for name in held.getnames() if "/src/" in name}
    problems = [
        *(f"the wheel lacks {name}" for name in sorted(source - names)),
        *(f"the wheel has {name}" for name in sorted(names - source)),
        *(f"the sdist lacks {name}" for name in sorted(source - packed)),
    ]
    print("\n".join(problems), file=sys.stderr)
    return int(bool(problems) or "bucketlake/py.typed" not in names)


if __name__ == "__main__":
    sys.exit(main())
