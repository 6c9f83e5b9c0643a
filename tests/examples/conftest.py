"""The flights example as tests import it: its folder holds scripts side by side, no package."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flights"))


@pytest.fixture(scope="session")
def year_of_flights() -> pa.Table:
    from flight_data import read_flights

    return read_flights()


@pytest.fixture(scope="session")
def flights(year_of_flights: pa.Table) -> pa.Table:
    """The flights of the first ten days of February: few, and many of them cancelled in a storm."""
    in_february = pc.equal(year_of_flights["month"], 2)
    return year_of_flights.filter(pc.and_(in_february, pc.less_equal(year_of_flights["day"], 10)))
