"""Dagster assets that are tables of bucketlake: an IO manager.

    definitions = Definitions(assets=[...], resources={"io_manager": TablesOfLake(lake="s3://lake")})

What an asset returns (an Arrow table, a DataFrame of Spark, pandas or Polars) is upserted into the
table that the asset's key names; an asset that takes it as an argument gets a scan, to be read as
Arrow, Polars, pandas or Spark. The asset's metadata say how the table is made, and the run's
metadata what the write did.
"""

from __future__ import annotations

from dagster import ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field

import bucketlake as bl


class TablesOfLake(ConfigurableIOManager):
    """Stores assets as tables in a folder of a lake."""

    lake: str
    storage_options: dict[str, str] = Field(default_factory=dict)

    def _path(self, context: InputContext | OutputContext) -> str:
        return "/".join([self.lake.rstrip("/"), *context.asset_key.path])

    def handle_output(self, context: OutputContext, rows: object) -> None:
        """Upsert what an asset returns; its first run makes the table."""
        path = self._path(context)
        try:
            table = bl.open_table(path, storage_options=self.storage_options)
        except bl.TableNotFoundError:
            made = {"record_key": "id", **(context.definition_metadata or {})}
            options = {"storage_options": self.storage_options}
            table = bl.create_table(path, schema=rows, **made, **options)
        result = table.upsert(rows)
        context.add_output_metadata(
            {
                "path": path,
                "instant": result.instant or "no change",
                "inserted": result.inserted or 0,
                "updated": result.updated or 0,
            }
        )

    def load_input(self, context: InputContext) -> bl.Scan:
        """Return a scan of the table that an asset is."""
        return bl.open_table(self._path(context), storage_options=self.storage_options).scan()
