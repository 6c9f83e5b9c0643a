"""`python -m benchmarks.rescale`: see `run.py`."""

from benchmarks.rescale.run import main

raise SystemExit(main())
