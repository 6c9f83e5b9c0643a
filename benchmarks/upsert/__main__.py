"""`python -m benchmarks.upsert`: see `run.py`."""

from benchmarks.upsert.run import main

raise SystemExit(main())
