"""`python -m benchmarks.merge_on_read`: see `run.py`."""

from benchmarks.merge_on_read.run import main

raise SystemExit(main())
