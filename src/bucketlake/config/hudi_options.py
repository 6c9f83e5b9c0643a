"""The table of all options: what ``save`` does with each option of Hudi, and with its own.

``hudi_options.tsv`` has a line for each option that a class of Hudi 1.2 declares, and for the
options that only bucketlake has. Columns: the option; the rule; for a refused option the values
that are accepted all the same; the meaning of a used option, or the next step for a refused one;
other names of the option, the stronger names first. ``config/write_options.py`` interprets the used
options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Self

from bucketlake.errors import ConfigError
from bucketlake.model.names import closest_name

SAFE_SQL = {
    "hoodie.spark.sql.insert.into.operation": "upsert",
    "hoodie.spark.sql.merge.into.partial.updates": "false",
}
"""Options with which Hudi's SQL keeps keys unique; they change nothing in a job with DataFrames."""


class Rule(Enum):
    """What ``save`` does with an option."""

    USED = "used"
    """The option is followed."""
    TUNING = "tuning"
    """The option has no effect: the table has the same rows without it."""
    REFUSED = "refused"
    """Only some values are accepted, because another value would change rows or be missed."""


@dataclass(frozen=True, slots=True)
class HudiOption:
    """A line of the table.

    Attributes
    ----------
    key : str
        The option's first name.
    rule : Rule
        What ``save`` does with it.
    values : tuple of str
        Accepted values of a refused option; empty if it must not be set.
    text : str
        Meaning of a used option; next step for a refused one.
    other_names : tuple of str
        Names with the same meaning. If an option is given under several names, the first name
        counts, then the earlier of the other names, as in Hudi.
    """

    key: str
    rule: Rule
    values: tuple[str, ...]
    text: str
    other_names: tuple[str, ...]

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Parse a line of the file."""
        key, rule, values, text, names = [*line.split("\t"), "", "", ""][:5]
        return cls(key, Rule(rule), _parts(values, "|"), text, _parts(names, ","))

    def require_accepted(self, value: str) -> None:
        """Raise ConfigError for a value that is not accepted."""
        found = value.strip().upper()
        words = {found, found.rpartition(".")[2]}  # A Java class is known by its last name, too.
        if self.rule is not Rule.REFUSED or not found or words & {*map(str.upper, self.values)}:
            return
        accepted = " or ".join(map(repr, self.values))
        only = f"bucketlake only supports {accepted}" if accepted else "it must not be set"
        raise ConfigError(self.key, value, f"{only}; {self.text}")


@lru_cache(maxsize=1)
def hudi_options() -> Mapping[str, HudiOption]:
    """Return the table, by the first name of each option."""
    from importlib import resources  # A table that is opened needs no option.

    file = resources.files("bucketlake.config") / "hudi_options.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return {option.key: option for option in map(HudiOption.from_line, lines)}


@lru_cache(maxsize=1)
def option_names() -> Mapping[str, str]:
    """Return the first name of each option, by each of its names."""
    options = hudi_options().values()
    return {name: option.key for option in options for name in (option.key, *option.other_names)}


def accepted_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options under their first names; unknown options keep their name.

    Raises
    ------
    ConfigError
        If a value is not accepted.

    Examples
    --------
    >>> accepted_options({"hoodie.cleaner.policy": "KEEP_LATEST_COMMITS"})
    {'hoodie.clean.policy': 'KEEP_LATEST_COMMITS'}
    """
    table, names = hudi_options(), option_names()
    given: dict[str, str] = {}
    for key in dict.fromkeys(names.get(name, name) for name in options):
        same = (key, *table[key].other_names) if key in table else (key,)
        given[key] = next(str(options[name]) for name in same if name in options)
        if key in table:
            table[key].require_accepted(given[key])
    return given


def unknown_option(name: str) -> str:
    """Return the name of an unknown option, with the option that may be meant.

    Examples
    --------
    >>> unknown_option("hoodie.tabel.name")
    'hoodie.tabel.name (did you mean hoodie.table.name?)'
    """
    meant = closest_name(name, option_names())
    return name if meant is None else f"{name} (did you mean {meant}?)"


def _parts(text: str, mark: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(mark)))
