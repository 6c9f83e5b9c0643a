"""How keys of one field are spelled in a table whose properties do not tell.

The key generator COMPLEX gives a key of one field the name of the field, ``id:7``. Releases of Hudi
from 0.14.1 to 1.0.2 leave it out, and so do the writers of a table after them: else each key would
be stored twice. Since table version 9 all keys have the name. Of an older table only the stored
keys tell.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pyarrow.compute as pc

from bucketlake.config.table_config import TableConfig
from bucketlake.model.keys import KeyGenerator
from bucketlake.read.snapshot import Snapshot
from bucketlake.read.stored_keys import StoredKeyReader


def with_stored_spelling(snapshot: Snapshot) -> Snapshot:
    """Return a table whose key settings make keys as the stored ones are spelled.

    A table without records gets the keys that Hudi would write.
    """
    if not is_spelling_open(snapshot.config):
        return snapshot
    is_bare = stored_keys_are_bare(snapshot)
    if is_bare is None:
        is_bare = not snapshot.config.rules.names_single_keys
    spec = replace(snapshot.config.key_spec, bare_keys=is_bare)
    config = replace(snapshot.config, key_spec=spec)
    return replace(snapshot, table=snapshot.table.with_config(config))


def is_spelling_open(config: TableConfig) -> bool:
    """Return whether the properties of a table leave open how its keys are spelled."""
    spec = config.key_spec
    is_single = spec.generator is KeyGenerator.COMPLEX and len(spec.record_key_fields) == 1
    return is_single and config.may_have_bare_keys


def stored_keys_are_bare(snapshot: Snapshot) -> bool | None:
    """Return whether stored keys lack the name of their field; None if no key is stored."""
    reader = StoredKeyReader.of_snapshot(snapshot)
    prefix = f"{snapshot.config.key_spec.record_key_fields[0]}:"
    for held in snapshot.all_slices():
        with reader.open_base(held) as (_, keys):
            for found in chain(keys, reader.log_keys(held)):
                if len(found):
                    # A value may begin like the name of the field, but not every value.
                    return not pc.all(pc.starts_with(found, prefix)).as_py()
    return None
