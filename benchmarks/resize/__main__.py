"""`python -m benchmarks.resize`: see `run.py`."""

from benchmarks.resize.run import main

raise SystemExit(main())
