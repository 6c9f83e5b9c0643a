"""Columns with orderings of their own: which of two rows of a key gives the values of each group.

The ordering field of the table orders rows: the row with the greater value gives all columns
without an ordering of their own, and a delete removes what is not greater. The columns of a group
come from the row with the greatest value in the ordering column of the group. A record brings a
group whole, or not at all: then this value is null. A delete also clears groups with values that
are not greater than its own, so a value may not exceed that of the row: what is left does not
depend on the order in which records and deletes meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError
from bucketlake.merge.column_rules import chosen
from bucketlake.merge.incoming import ORDERING, BoolArray, at_least, comparable
from bucketlake.merge.row_changes import are_valid, differing
from bucketlake.model.arrays import one_array
from bucketlake.model.column_type import type_name
from bucketlake.model.field_path import column_of, fields_at, roots_of
from bucketlake.model.names import did_you_mean
from bucketlake.model.schema import IS_DELETED


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """The groups of a table; a small picklable value.

    Attributes
    ----------
    of_rows : str
        The ordering field of the table.
    orderings : mapping of str to str
        The ordering column of each column in a group; it is in the group, too.
    """

    of_rows: str
    orderings: Mapping[str, str]

    @property
    def own(self) -> list[str]:
        """The ordering columns of groups."""
        return sorted({*self.orderings.values()})

    @classmethod
    def of_table(cls, config: TableConfig, schema: pa.Schema, where: str) -> Self | None:
        """Return the groups of a table; None if it has none.

        Raises
        ------
        InputError
            If columns cannot be a group.
        """
        if not config.ordering_groups:
            return None
        (of_rows,), held = config.ordering_fields, schema.names
        spec, own = config.key_spec, {*config.ordering_groups.values()}
        fixed = (*spec.record_key_fields, *spec.partition_fields, of_rows, config.delete_field)
        taken = {*roots_of([name for name in fixed if name], held)}
        kind = fields_at(schema, [of_rows]).types[0]
        for name in (*config.ordering_groups, *sorted(own)):
            at, step = f"{where}, ordering of column {name}", "name another column"
            if name not in held:
                problem = f"the table has no such column; it has {held}"
                raise InputError(at, problem, f"{step}{did_you_mean(name, held)}")
            if name in taken or (name in own and name in config.ordering_groups):
                problem = "keys, partitions, deletes or orderings of other columns follow from it"
                raise InputError(at, problem, step)
            if name in own and (found := schema.field(name).type) != kind:
                types = f"{type_name(found)}, and of {of_rows}, {type_name(kind)}"
                problem = f"a delete compares with both, and their types differ: {types}"
                raise InputError(at, problem, "give both one type")
        return cls(of_rows, {**config.ordering_groups, **{name: name for name in own}})

    def require_whole(
        self, names: Collection[str], given: Collection[str], *, may_lack: bool, where: str
    ) -> None:
        """Raise InputError if records have some columns of a group and lack others.

        Parameters
        ----------
        names, given : collection of str
            Columns of the table, and of the records.
        may_lack : bool
            Whether records may lack groups.
        where : str
            The write, for messages.
        """
        lacking = {*names}.difference(given, [IS_DELETED])
        for own in self.own:
            group = {name for name, other in self.orderings.items() if other == own}
            lacks, has = sorted(lacking & group), sorted(group - lacking)
            if lacks and has:
                raise InputError(
                    where,
                    f"some records lack {lacks} and have {has}, which are ordered by {own!r}",
                    "give all of these columns or none, and null for a record that has none",
                )
        others = sorted(lacking.difference(self.orderings))
        if others and may_lack:
            raise InputError(
                where,
                f"some records lack {others}, which are ordered by {self.of_rows!r} like the row",
                "give these columns, or create the table with an ordering of their own for them",
            )

    def brought(self, rows: pa.Table, deleted: BoolArray, where: str) -> pa.Table:
        """Return records with nulls in groups that they do not bring.

        Raises
        ------
        InputError
            If a group is newer than its row.
        """
        of_rows = comparable(column_of(rows, self.of_rows, ORDERING))
        for own in self.own:
            is_given, values = are_valid(rows[own]), comparable(rows[own])
            for at in np.flatnonzero(is_given & ~deleted & ~at_least((of_rows,), (values,)))[:1]:
                raise InputError(
                    f"{where}, column {own}",
                    f"it is greater than {self.of_rows} in {rows.slice(at, 1).to_pylist()[0]}",
                    f"a row is as new as its newest column: give it a greater {self.of_rows}",
                )
            given = pa.array(np.arange(len(rows)), mask=~is_given)
            for name in self.orderings if given.null_count else ():
                if self.orderings[name] == own:
                    at = rows.schema.get_field_index(name)
                    rows = rows.set_column(at, rows.schema.field(at), rows[name].take(given))
        return rows

    def merged(
        self,
        older: pa.Table,
        newer: pa.Table,
        counts: tuple[BoolArray, BoolArray],
        wins: BoolArray,
        erased: pa.Array,
    ) -> pa.Table:
        """Merge rows pair by pair.

        Parameters
        ----------
        older, newer : pa.Table, shape (n_pairs, n_columns)
            The rows, with the same columns and types.
        counts : pair of ndarray of bool
            Whether the older and the newer row bring groups.
        wins : ndarray of bool
            Whether the newer row gives the columns without a group.
        erased : pa.Array
            The comparable ordering value of the newest delete; null without one.
        """
        rows, places = np.arange(len(wins)), {}
        for own in self.own:
            sides = one_array(newer[own]), one_array(older[own])
            has_new, has_old = are_valid(sides[0]) & counts[1], are_valid(sides[1]) & counts[0]
            takes = has_new & (~has_old | at_least(*((comparable(side),) for side in sides)))
            place = np.where(takes, rows, rows + len(rows))
            values = comparable(pa.concat_arrays(sides).take(pa.array(place)))
            lost = ~(has_new | has_old) | covered(erased, values)
            places[own] = pa.array(place, mask=lost)
        columns = []
        for name in newer.column_names:
            sides, at = (one_array(newer[name]), one_array(older[name])), self.orderings.get(name)
            taken = chosen(wins, *sides) if at is None else pa.concat_arrays(sides).take(places[at])
            columns.append(taken)
        return pa.Table.from_arrays(columns, schema=newer.schema)

    def ties(
        self, older: pa.Table, newer: pa.Table, erased: pa.Array
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield each ordering, and the pairs that are equal in it and differ in its columns.

        The parameters are those of :meth:`merged`.
        """
        for own in (self.of_rows, *self.own):
            names = [n for n in newer.column_names if self.orderings.get(n, self.of_rows) == own]
            old, new = (comparable(rows[own]) for rows in (older, newer))
            is_tie = at_least((new,), (old,)) & at_least((old,), (new,)) & ~covered(erased, new)
            if own != self.of_rows:  # A null is no value of a group.
                is_tie &= are_valid(older[own]) & are_valid(newer[own])
            yield own, is_tie & differing(older.select(names), newer.select(names))


def covered(erased: pa.Array, values: pa.Array) -> BoolArray:
    """Return which values a delete covers: both are comparable, null is no delete."""
    return are_valid(erased) & at_least((erased,), (values,))
