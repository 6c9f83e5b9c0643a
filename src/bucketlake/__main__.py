"""``python -m bucketlake``: the command line without its script on the path."""

from bucketlake.cli.main import main

main(prog_name="bucketlake")
