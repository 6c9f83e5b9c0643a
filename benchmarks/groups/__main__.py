"""`python -m benchmarks.groups`: see `run.py`."""

from benchmarks.groups.run import main

raise SystemExit(main())
