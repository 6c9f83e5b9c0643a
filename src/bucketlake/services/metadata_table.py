"""Turning the metadata table of a table on and off, and building it again.

The build of an existing table runs beside writers, in these steps:

1. An indexing action comes on the timeline, and the partitions to build into the list of partitions
   that are being built. A write that sees the action reads the properties again, and maintains
   these partitions with log files; readers do not use them yet.
2. The build takes a turn in the order of commits. All commits with an earlier turn are completed by
   then, and all with a later turn see the action.
3. The base files are made from the table as it is at the turn. The log files of later commits count
   on top of them.
4. The partitions move into the list of valid partitions, and the action completes.

A build that died leaves the action and the list; the next build begins again. Nothing is lost
meanwhile, because readers list the storage.
"""

from __future__ import annotations
