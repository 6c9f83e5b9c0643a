"""`python -m benchmarks.startup`: see `run.py`."""

from benchmarks.startup.run import main

raise SystemExit(main())
