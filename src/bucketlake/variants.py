"""Variants from JSON text and to it, by PySpark's own code, which needs no Java for that."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.engine import variant_class
from bucketlake.errors import InputError
from bucketlake.model.arguments import check_texts


def variant(json: str) -> dict[str, bytes]:
    """Return a value of a column of Hudi's type VARIANT: what a JSON text says.

    Parameters
    ----------
    json : str
        One JSON value.

    Returns
    -------
    dict
        ``metadata`` and ``value``, as a row has it.

    Raises
    ------
    InputError
        If the text is no JSON.
    UnsupportedFeatureError
        If PySpark is missing, or older than 4.0.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import bucketlake as bl
    >>> schema = "id string, event variant"
    >>> table = bl.create_table("memory://docs/variants", schema=schema, record_key="id")
    >>> rows = [{"id": "a", "event": bl.variant('{"clicks": [1, 2.5]}')}]
    >>> _ = table.upsert(pa.Table.from_pylist(rows, table.schema()))
    >>> bl.variant_json(table.to_arrow()["event"][0].as_py())
    '{"clicks":[1,2.5]}'
    """
    check_texts(json=json)
    kind = variant_class()
    try:
        held = kind.parseJson(json)
    except Exception as error:  # PySpark and its JSON library raise several.
        problem = f"it is no JSON ({str(error).partition(chr(10))[0]})"
        raise InputError("variant", problem, "correct the text") from error
    return {"metadata": bytes(held.metadata), "value": bytes(held.value)}


def variant_json(value: Mapping[str, bytes] | None) -> str | None:
    """Return a value of a column of Hudi's type VARIANT as JSON text.

    Parameters
    ----------
    value : mapping or None
        A value of a row, as :func:`variant` or a read returns it.

    Returns
    -------
    str or None
        None for a null of the table; a null of JSON is ``"null"``. Dates, times and bytes are
        texts.

    Raises
    ------
    InputError
        If it is no variant.
    UnsupportedFeatureError
        If PySpark is missing, or older than 4.0.
    """
    if value is None:
        return None
    kind = variant_class()
    try:
        text: str = kind(value["value"], value["metadata"]).toJson()
    except Exception as error:  # As above.
        step = "give a value of a column of variants, with its bytes metadata and value"
        raise InputError(
            "variant", f"it is none ({type(error).__name__}: {error})", step
        ) from error
    return text
