"""``where``: SQL text in Spark's dialect as a predicate that prunes and filters.

:mod:`.where_parser` makes the predicate, :mod:`.predicate_tree` is its form, :mod:`.arrow_filter`
filters Arrow data by it; pruning by it is :mod:`.pruning`'s. In Spark the text itself filters, so a
predicate may know less than the text says, and never more.
"""

from bucketlake.read.arrow_filter import to_arrow_expression
from bucketlake.read.predicate_tree import Predicate
from bucketlake.read.where_parser import SPARK_SETTINGS, parse_where

__all__ = ["SPARK_SETTINGS", "Predicate", "parse_where", "to_arrow_expression"]
