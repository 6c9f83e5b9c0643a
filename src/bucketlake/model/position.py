"""Where the records of a write come from: the batch of a stream, and the position in a source.

A commit keeps both in its metadata (``actions/stream_batches.py``). This module says what a
position is, and by which rule a write goes on from the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arguments import check_optional_texts, check_texts

OnJump = Literal["fail", "skip", "accept"]
"""What a write does if a source does not go on where the stored position ends."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source is read: the number of the last record, by partition of the source.

    A write with a position stores it in its commit. ``Table.position`` returns the stored one.

    Parameters
    ----------
    source : str
        Name of the source; the same after a restart. Each source has its own position.
    last : mapping of str to int
        For each partition of the source, the number of its last record in the batch, such as
        the offset in a Kafka partition. Partitions without records in the batch can be left out.
    first : mapping of str to int, optional
        Where the batch begins, so that a gap is noticed: for each partition the number from which
        the source was read. That is not always the number of a record, because a compacted topic
        has holes.
    on_jump : {"fail", "skip", "accept"}
        What happens if the batch ends before the stored position, or begins more than one after
        it. ``"fail"``: an error names the range. ``"skip"``: a batch that ends at or before the
        stored position in all partitions is skipped, a position never goes back, and a gap is an
        error. ``"accept"``: the batch is written, and its position is stored as it is given.
    state : str, optional
        A text that belongs to the numbers, such as the name of a list of what is read. It is stored
        and returned with them.

    Examples
    --------
    >>> Position("orders", {"orders-0": 1204, "orders-1": 998}, first={"orders-0": 1001})
    Position(source='orders', last={'orders-0': 1204, 'orders-1': 998})
    """

    source: str
    last: Mapping[str, int]
    first: Mapping[str, int] = field(default_factory=dict, repr=False)
    on_jump: OnJump = field(default="fail", repr=False)
    state: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the values; raise ConfigError for one that cannot be used."""
        check_texts(source=self.source, on_jump=self.on_jump)
        check_optional_texts(state=self.state)
        _check_numbers("last", self.last)
        if not self.last:
            raise ConfigError("last", self.last, "give the last number of at least one partition")
        _check_numbers("first", self.first)
        for name, number in self.first.items():
            if name not in self.last or number > self.last[name] + 1:
                allowed = "give a partition of last, and a number that is not after its last one"
                raise ConfigError("first", {name: number}, allowed)
        if self.on_jump not in get_args(OnJump):
            raise ConfigError("on_jump", self.on_jump, f"give one of {list(get_args(OnJump))}")

    def is_seen(self, stored: Mapping[str, int], where: str) -> bool:
        """Return whether a batch up to this position was written before.

        Parameters
        ----------
        stored : mapping of str to int
            The stored position; empty if there is none.
        where : str
            The write, for the error.

        Raises
        ------
        InputError
            If the source went back, or records are missing between the positions.
        """
        known = {name: (stored[name], end) for name, end in self.last.items() if name in stored}
        fails, is_old = self.on_jump == "fail", len(known) == len(self.last)
        for name, (old, new) in known.items():
            begin = self.first.get(name, old + 1)
            if self.on_jump != "accept" and begin > old + 1:
                raise self._jump(
                    where,
                    f"partition {name!r} continues at {begin}, and its stored position is {old}: "
                    f"{old + 1} to {begin - 1} are missing",
                    f"read them again from {old + 1}",
                )
            if fails and new < old:
                raise self._jump(
                    where,
                    f"partition {name!r} goes back: the batch ends at {new}, and {old} is stored "
                    f"as written, so that {new + 1} to {old} would come again",
                    f"continue from {old + 1}; on_jump='skip' passes over what is written",
                )
            is_old &= new <= old
        return is_old and self.on_jump != "accept"

    def after(self, stored: Mapping[str, int]) -> dict[str, int]:
        """Return the position to store once the batch is written after the stored one."""
        known = {} if self.on_jump == "accept" else stored
        return {**stored, **{n: max(end, known.get(n, end)) for n, end in self.last.items()}}

    def unseen(self, partitions: pa.Array, numbers: pa.Array) -> pa.Array:
        """Return which records are after the position, or of a partition that it does not name."""
        at = pc.index_in(partitions.cast(pa.string()), pa.array(self.last.keys(), pa.string()))
        ends = pa.array(self.last.values(), pa.int64()).take(at)
        return pc.fill_null(pc.greater(numbers.cast(pa.int64()), ends), True)

    def _jump(self, where: str, problem: str, step: str) -> InputError:
        return InputError(
            f"{where}, source {self.source!r}",
            problem,
            f"{step}, or if the source was made anew or has lost them, write this batch once with "
            "on_jump='accept'",
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream.

    Attributes
    ----------
    query_name : str
        Name of the stream; the same after a restart.
    batch_id : int
        Number of the batch; each batch has a greater number than the batch before.
    """

    query_name: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the records of a write come from, as far as the caller says it.

    Attributes
    ----------
    batch : Batch or None
        The batch of a stream; each batch is written once.
    position : Position or None
        The position up to which the records reach.
    """

    batch: Batch | None = None
    position: Position | None = None


UNKNOWN_ORIGIN = Origin()
"""Records of which the caller says nothing."""


def _check_numbers(argument: str, given: object) -> None:
    """Raise ConfigError for what is no mapping of texts and integers of 64 bits."""
    is_right = isinstance(given, Mapping) and all(
        isinstance(name, str) and type(number) is int and -(2**63) <= number < 2**63
        for name, number in given.items()
    )
    if not is_right:
        allowed = "give a dict of partitions and whole numbers, such as {'orders-0': 1204}"
        raise ConfigError(argument, given, allowed)
