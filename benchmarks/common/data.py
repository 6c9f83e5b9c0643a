"""Order-like rows: a first load, and a batch of updates and inserts.

There are two shapes. *Orders* arrive in any order, and their values vary. *Lines* of orders arrive
as they are numbered, with few and short texts: files of such rows compress well, and are cheap to
write for any format.

Three more have the values of orders, and the changes of LakeLoader's tables
(github.com/onehouseinc/lake-loader, its README). *Facts* are partitioned by time, and most updates
meet the newest partitions, by Zipf's law. *Dimensions* have one partition, and any row is updated.
*Events* are partitioned by time and never updated.

*Vectors* are orders with an embedding of 768 floats each.

Everything follows from (shape, rows, partitions, seed): the same Parquet files on every machine
with the same pyarrow. An order's region, customer and creation date are functions of its number, so
an update meets the row that it replaces; what an order goes through (status, quantity, amount,
note, time of change) is drawn anew for each version. The files are kept in the data folder and used
again. While it draws rows the generator adds up the checksums that each system's table must show
after the load and after the upsert: an oracle that shares no code with any of the systems.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common.rows import EPOCH_MS, KEY_PREFIX, PAIR_MODULUS, REGIONS, DataSet

SEED = 20_250
FORMAT = 1  # Part of the folder's name: raise it whenever the rows change.
ROWS_PER_FILE_MAX = 250_000
UPDATE_SHARE, INSERT_SHARE = 0.20, 0.02
BY_TIME = ("facts", "events")  # Shapes whose partitions follow the numbers of the orders.
ZIPF_EXPONENT = 1.5
STATUSES = ("placed", "paid", "picked", "shipped", "delivered", "returned", "cancelled")
LINE_STATUSES = STATUSES[:4]
LINES_OF_ORDER = 4
LINE_MS = 10
NOTE_COUNT = 20_000  # Medium cardinality: dictionary pages help, but do not carry the column.
CUSTOMERS_PER_ORDER = 0.1
YEAR_MS = 365 * 86_400_000
FIRST_DAY = 18_993  # 2022-01-01 in days since 1970.

SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("region", pa.string()),
        ("customer_id", pa.int64()),
        ("status", pa.string()),
        ("quantity", pa.int32()),
        ("amount", pa.float64()),
        ("note", pa.string()),
        ("created", pa.date32()),
        ("updated_at", pa.int64()),
    ]
)

EMBEDDING, DIMENSION = "embedding", 768


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the rows follow from; the batch has a share of the rows unless it has a size."""

    rows: int
    partitions: int = 8
    seed: int = SEED
    shape: str = "orders"
    batch: int | None = None

    @property
    def updates(self) -> int:
        """How many rows are updated."""
        if self.shape == "events":
            return 0
        batch_updates = round((self.batch or 0) * UPDATE_SHARE / (UPDATE_SHARE + INSERT_SHARE))
        return batch_updates if self.batch else int(self.rows * UPDATE_SHARE)

    @property
    def inserts(self) -> int:
        """How many rows of the batch are new."""
        batch = self.batch or int(self.rows * UPDATE_SHARE) + int(self.rows * INSERT_SHARE)
        return batch - self.updates

    @property
    def folder_name(self) -> str:
        """The folder that these rows, and no others, live in."""
        batch = "" if self.batch is None else f"-{self.batch}b"
        return f"{self.shape}-v{FORMAT}-{self.rows}r-{self.partitions}p-s{self.seed}{batch}"

    def regions_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the place of the region of each order, among the regions."""
        if self.shape == "dimensions":
            return np.zeros(len(numbers), np.int32)
        if self.shape in BY_TIME:
            # The orders of the changes come after all others, into the newest partition.
            places = np.minimum(numbers * self.partitions // self.rows, self.partitions - 1)
        else:
            lasting = _mix(numbers.astype(np.uint64) + np.uint64(self.seed))
            places = lasting % np.uint64(self.partitions)
        return np.asarray(places, np.int32)


def prepare(root: Path, recipe: Recipe) -> DataSet:
    """Return the data set of a recipe, generating its files when they are not there yet."""
    if not 1 <= recipe.partitions <= len(REGIONS):
        raise SystemExit(f"--partitions must be 1..{len(REGIONS)}, not {recipe.partitions}")
    data = DataSet(root / recipe.folder_name)
    if not data.facts_path.exists():  # Written last: a folder without it was cut short.
        print(f"generating {recipe.rows:,} rows in {data.path}", file=sys.stderr)
        _generate(data, recipe)
    return data


def _generate(data: DataSet, recipe: Recipe) -> None:
    rng = np.random.default_rng([recipe.seed, 0])
    is_lines = recipe.shape == "lines"
    arrival = np.arange(recipe.rows) if is_lines else rng.permutation(recipe.rows)
    updated = _updated(recipe, rng)
    inserted = np.arange(recipe.rows, recipe.rows + recipe.inserts)
    changes = np.concatenate([np.sort(updated), inserted])
    changes = changes if is_lines else rng.permutation(np.concatenate([updated, inserted]))
    is_updated = np.zeros(recipe.rows, dtype=bool)
    is_updated[updated] = True

    loaded, kept = Checksum(), Checksum()
    for numbers, table in _write_files(data.load, arrival, recipe, version=0):
        loaded.add(table)
        kept.add(table.filter(~is_updated[numbers]))
    for _, table in _write_files(data.changes, changes, recipe, version=1):
        kept.add(table)
    facts = {
        "format": FORMAT,
        "rows": recipe.rows,
        "partitions": recipe.partitions,
        "seed": recipe.seed,
        "updates": len(updated),
        "inserts": len(inserted),
        "columns": SCHEMA.names,
        "checksum_after_load": loaded.sums,
        "checksum_after_upsert": kept.sums,
    }
    data.facts_path.write_text(json.dumps(facts, indent=1) + "\n")


def _updated(recipe: Recipe, rng: np.random.Generator) -> np.ndarray:
    """Return the numbers of the orders that are updated, each once, in any order."""
    numbers = rng.permutation(recipe.rows)
    if recipe.shape == "facts":
        # A row of a likely partition gets an early place; see Efraimidis and Spirakis, 2006.
        age = recipe.partitions - recipe.regions_of(numbers)
        places = rng.exponential(size=recipe.rows) * age**ZIPF_EXPONENT
        numbers = numbers[np.argsort(places)]
    return numbers[: recipe.updates]


def _write_files(
    folder: Path, numbers: np.ndarray, recipe: Recipe, *, version: int
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Write the rows of these numbers; yield the numbers and rows of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    # At least two files each, so that two cores read from the start.
    file_count = max(2, -(-len(numbers) // ROWS_PER_FILE_MAX))
    for index, part in enumerate(np.array_split(numbers, file_count)):
        rng = np.random.default_rng([recipe.seed, 1 + version, index])
        table = (_lines if recipe.shape == "lines" else _orders)(part, rng, recipe, version)
        if recipe.shape == "vectors":
            numbers_of = rng.standard_normal((len(part), DIMENSION), np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers_of.ravel()), DIMENSION)
            table = table.append_column(EMBEDDING, vectors)
        pq.write_table(table, folder / f"part-{index:05d}.parquet", compression="zstd")
        yield part, table


def _orders(
    numbers: np.ndarray, rng: np.random.Generator, recipe: Recipe, version: int
) -> pa.Table:
    """Rows of the orders with these numbers, in this order."""
    count = len(numbers)
    lasting = _mix(numbers.astype(np.uint64) + np.uint64(recipe.seed))
    region = recipe.regions_of(numbers)
    customers = max(1, int(recipe.rows * CUSTOMERS_PER_ORDER))
    customer = (_mix(lasting) % np.uint64(customers)).astype(np.int64) + 1_000_000
    day = (_mix(lasting + np.uint64(1)) % np.uint64(700)).astype(np.int32) + FIRST_DAY
    quantity = 1 + rng.geometric(0.35, count).astype(np.int32)
    cents = np.round(rng.lognormal(3.2, 0.8, count) * 100).astype(np.int64) * quantity
    updated_at = EPOCH_MS + version * YEAR_MS + rng.integers(0, YEAR_MS, count)
    columns = [
        _order_ids(numbers),
        _pick(REGIONS[: recipe.partitions], region),
        pa.array(customer),
        _pick(STATUSES, rng.integers(0, len(STATUSES), count).astype(np.int32)),
        pa.array(quantity),
        pa.array(cents / 100.0),
        _pick(_notes(recipe.seed), _skewed(rng, count)),
        pa.array(day).cast(pa.date32()),
        pa.array(updated_at),
    ]
    return pa.table(columns, schema=SCHEMA)


def _lines(numbers: np.ndarray, rng: np.random.Generator, recipe: Recipe, version: int) -> pa.Table:
    """Rows of the lines with these numbers: a key is an order and a line of it."""
    count, order = len(numbers), numbers // LINES_OF_ORDER
    region = (_mix(order.astype(np.uint64)) % np.uint64(recipe.partitions)).astype(np.int32)
    line = (numbers % LINES_OF_ORDER + 1).astype("U1")
    ids = pc.binary_join_element_wise(_order_ids(order, 10), pa.array(line), "-")
    columns = [
        ids,
        _pick(REGIONS[: recipe.partitions], region),
        pa.array(order // 10),
        _pick(LINE_STATUSES, rng.integers(0, len(LINE_STATUSES), count).astype(np.int32)),
        pa.array(rng.integers(1, 6, count).astype(np.int32)),
        pa.array(rng.integers(100, 10_000, count) / 100.0),
        _pick(_notes(recipe.seed)[: NOTE_COUNT // 2], rng.integers(0, NOTE_COUNT // 2, count)),
        pa.array((FIRST_DAY + numbers // 4_000).astype(np.int32)).cast(pa.date32()),
        pa.array(EPOCH_MS + version * YEAR_MS + numbers * LINE_MS),
    ]
    return pa.table(columns, schema=SCHEMA)


def _order_ids(numbers: np.ndarray, digits: int = 16) -> pa.Array:
    """``ord-`` and some digits for each number, built as one block of bytes."""
    prefix, width = KEY_PREFIX.encode(), len(KEY_PREFIX) + digits
    text = np.empty((len(numbers), width), dtype=np.uint8)
    text[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    rest = numbers.astype(np.int64)
    for position in range(width - 1, len(prefix) - 1, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, position] = digit + ord("0")
    return texts(text)


def texts(characters: np.ndarray) -> pa.Array:
    """Return strings of equal length, of which each row of a matrix has the bytes."""
    count, width = characters.shape
    offsets = pa.py_buffer(np.arange(0, count * width + 1, width).astype(np.int32))
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(characters.tobytes()))


def random_digits(count: int, rng: np.random.Generator) -> pa.Array:
    """Return keys of 20 random digits."""
    return texts(rng.integers(ord("0"), ord("9") + 1, (count, 20), dtype=np.uint8))


def _key_numbers(table: pa.Table) -> np.ndarray:
    digits = pc.utf8_slice_codeunits(table["order_id"], len(KEY_PREFIX))
    digits = pc.replace_substring(digits, "-", "")
    numbers: np.ndarray = digits.cast(pa.int64()).to_numpy()
    return numbers


def _pick(values: tuple[str, ...] | pa.Array, indices: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values)).cast(pa.string())


def _skewed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Positions in the notes, the first ones most often."""
    return (rng.random(count) ** 2 * NOTE_COUNT).astype(np.int32)


def _notes(seed: int) -> pa.Array:
    words = (
        "leave at the door call before gift wrap fragile urgent customer asked for invoice by mail "
        "second floor neighbour has key deliver after six replace item refund pending check address"
    ).split()
    rng = np.random.default_rng([seed, 99])
    picks = rng.integers(0, len(words), (NOTE_COUNT, 8))
    lengths = rng.integers(2, 9, NOTE_COUNT)
    return pa.array(
        f"{' '.join(words[p] for p in row[:length])} #{index}"
        for index, (row, length) in enumerate(zip(picks, lengths, strict=True))
    )


def _mix(values: np.ndarray) -> np.ndarray:
    """Scatter 64-bit numbers (the finaliser of splitmix64)."""
    mixed = values.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class Checksum:
    """The sums of `rows.CHECKSUM_SQL`, from Arrow rows."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def add(self, table: pa.Table) -> None:
        number = _key_numbers(table)
        quantity = table["quantity"].to_numpy().astype(np.int64)
        cents = np.rint(table["amount"].to_numpy() * 100).astype(np.int64)
        found = {
            "rows": table.num_rows,
            "order_id": number.sum(),
            "region": _characters(table["region"]),
            "customer_id": table["customer_id"].to_numpy().sum(),
            "status": _characters(table["status"]),
            "quantity": quantity.sum(),
            "amount": cents.sum(),
            "note": _characters(table["note"]),
            "created": table["created"].cast(pa.int32()).to_numpy().astype(np.int64).sum(),
            "updated_at": (table["updated_at"].to_numpy() - EPOCH_MS).sum(),
            "pairing": (number % PAIR_MODULUS * quantity).sum(),
        }
        if EMBEDDING in table.column_names:
            chunks = table[EMBEDDING].chunks
            values = [chunk.flatten().to_numpy().view(np.int32) for chunk in chunks]
            sums = np.concatenate(values).reshape(-1, DIMENSION).sum(axis=1, dtype=np.int64)
            found["embedding"] = sums.sum()
            found["embedding_pairing"] = (number % PAIR_MODULUS * (sums % PAIR_MODULUS)).sum()
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, 0) + int(value)


def _characters(column: pa.ChunkedArray) -> int:
    return pc.sum(pc.utf8_length(column)).as_py() or 0
