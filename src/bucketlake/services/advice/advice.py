"""What ``advise`` returns: a list of advice, each with its reason and the call that does it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from bucketlake.model.result import Shown, ShownList
from bucketlake.model.text_table import printable
from bucketlake.services.advice.steps import Step
from bucketlake.services.advice.workload import Workload, size_text

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Advice(Shown):
    """What is advised about one subject.

    Attributes
    ----------
    subject : str
        ``index``, ``table type``, ``partitions``, ``upkeep``, a service, or ``ordering``.
    now : str or None
        What the table has; None if there is no table yet.
    advised : str
        What it should have; the same as ``now`` if nothing is to be changed.
    reason : str
        Why, with numbers.
    file_bytes : int or None
        Expected size of a file afterwards, in bytes; None if the advice does not concern files.
    call : str or None
        The call that does it, in which ``table`` is the open table, ``sample`` the sample and
        ``path`` the place of a new table. None if nothing is to be changed, or if it needs a choice
        first.
    command : str or None
        The same on the command line, where ``PATH`` is the place of a new table and ``FILE`` a data
        file.
    """

    subject: str
    now: str | None
    advised: str
    reason: str
    file_bytes: int | None = None
    call: str | None = None
    command: str | None = None

    @property
    def changes(self) -> bool:
        """Whether the advice is to change something; always for a table that is to be made."""
        return self.now != self.advised


def keep(subject: str, now: str, reason: str, file_bytes: int | None = None) -> Advice:
    """Return the advice to leave something as it is."""
    return Advice(subject, now, now, reason, file_bytes)


def change(
    subject: str,
    now: str | None,
    advised: str,
    reason: str,
    step: Step | None = None,
    file_bytes: int | None = None,
) -> Advice:
    """Return the advice to change something."""
    call, command = (None, None) if step is None else (step.call, step.command)
    return Advice(subject, now, advised, reason, file_bytes, call, command)


class AdviceList(ShownList[Advice]):
    """The advice about a table, or about a sample: one item for each subject.

    Attributes
    ----------
    workload : Workload
        The facts from which it follows.
    changes : list of Advice
        The advice that changes something; none if all is well.
    """

    def __init__(self, found: Iterable[Advice], workload: Workload) -> None:
        super().__init__(found)
        self.workload = workload

    @property
    def changes(self) -> list[Advice]:
        """The advice that changes something; none if all is well."""
        return [advice for advice in self if advice.changes]

    def lines(self, *, commands: bool = False) -> Iterator[str]:
        """Yield the advice as lines of text, with calls in Python or with commands."""
        yield self.workload.line
        shown = None
        for advice in self:
            told = advice.advised if advice.changes else f"keep {advice.now}"
            if advice.changes and advice.now is not None:
                told = f"{advice.now} -> {told}"
            if advice.file_bytes is not None:
                told += f", files of about {size_text(advice.file_bytes)}"
            yield ""
            yield printable(f"{advice.subject}: {told}")
            yield from textwrap.wrap(
                printable(advice.reason), _WIDTH, initial_indent="  ", subsequent_indent="  "
            )
            step = advice.command if commands else advice.call
            if step is not None and step != shown:  # All calls about a new table are the same.
                shown = step
                yield f"  {printable(step)}"

    def __str__(self) -> str:
        """Return the facts, and each advice with its reason and its call."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
