"""`python -m benchmarks.metadata`: see `run.py`."""

from benchmarks.metadata.run import main

raise SystemExit(main())
