"""`python -m benchmarks.dynamic`: see `run.py`."""

from benchmarks.dynamic.run import main

raise SystemExit(main())
