"""`python -m benchmarks NAME`: see `common/command.py`."""

from benchmarks.common.command import main

raise SystemExit(main())
