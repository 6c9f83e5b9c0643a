"""`python -m benchmarks.record_index`: see `run.py`."""

from benchmarks.record_index.run import main

raise SystemExit(main())
