"""`python -m benchmarks.streaming`: see `run.py`."""

from benchmarks.streaming.run import main

raise SystemExit(main())
