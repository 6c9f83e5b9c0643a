"""Two DAGs of Airflow: batches that are upserted once, and work that waits for a new commit.

The first one upserts what a day brought, with a position, so that a task that Airflow runs again,
for whatever reason, is no second commit. The second one waits until the table has a commit that it
has not seen, and hands the changes since on.

Airflow loads this file in each process, so bucketlake is imported by the tasks. Tried with
``airflow standalone`` 3.3.2; ``docs/how-to/orchestrate.md`` says how.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import PokeReturnValue, dag, get_current_context, task

LAKE = os.environ.get("LAKE", "/lake")
LANDING = os.environ.get("LANDING", "/landing")


@dag(schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def load_orders() -> None:
    """Upsert the files of each day."""

    @task(retries=3)
    def upsert_day() -> str:
        import bucketlake as bl

        day = get_current_context()["logical_date"]
        files = bl.files(f"{LANDING}/orders/{day:%Y-%m-%d}/", format="csv")
        table = bl.open_table(f"{LAKE}/orders")
        # Days are counted; a day that is written already is skipped.
        position = bl.Position("days", {"orders": day.date().toordinal()}, on_jump="skip")
        done = table.upsert(files, position=position)
        return done.instant or "written before"

    upsert_day()


@dag(schedule=None, params={"seen": ""})
def follow_orders() -> None:
    """Wait for a commit, and read what changed."""

    @task.sensor(poke_interval=60, timeout=3600, mode="reschedule")
    def new_commit() -> PokeReturnValue:
        import bucketlake as bl

        seen = get_current_context()["params"]["seen"]
        done = [
            each.requested_at
            for each in bl.open_table(f"{LAKE}/orders").timeline()
            if each.written is not None
        ]
        return PokeReturnValue(
            is_done=bool(done) and max(done) > seen, xcom_value=str(max(done, default=""))
        )

    @task
    def count_changes(last: str) -> int:
        import bucketlake as bl

        seen = get_current_context()["params"]["seen"] or None
        changes = bl.open_table(f"{LAKE}/orders").changes_to_arrow(since=seen, until=last)
        return changes.num_rows

    count_changes(new_commit())


load_orders_dag = load_orders()
follow_orders_dag = follow_orders()
