"""Commands that check a table and repair what they find: doctor, repair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import bucketlake as bl
from bucketlake.cli.output import Output, in_command_words
from bucketlake.cli.shared_options import path_command, run_option
from bucketlake.services.check.findings import MIN_AGE_SECONDS, Finding


def _checks(command: Callable[..., None]) -> Callable[..., Any]:
    """Add the options that choose the checks."""
    age = click.option(
        "--min-age",
        "min_age_seconds",
        type=click.IntRange(min=0),
        default=MIN_AGE_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Smallest age of a leftover.",
    )
    files = click.option("--check-files", is_flag=True, help="Also read all live files.")
    keys = click.option("--check-keys", is_flag=True, help="Also read all keys.")
    return keys(files(age(command)))


@path_command
@_checks
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also write a zip file for a report of a fault: facts without data or secrets.",
)
def doctor_command(
    path: str, storage_options: dict[str, str], output: Output, bundle: Path | None, **checks: Any
) -> None:
    """Check a table: find errors, leftovers and risks.

    Nothing is changed. The most severe findings come first.

    Examples
    --------
    bucketlake doctor orders
    bucketlake doctor orders --check-keys --check-files --output json
    bucketlake doctor orders --bundle fault.zip
    """
    from bucketlake.cli.fault_bundle import write_bundle

    table = bl.Table(path, storage_options=storage_options)
    with output.progress("checking the table"):
        found = table.doctor(**checks)
    if bundle is not None:
        write_bundle(table, found, bundle)
    output.facts(
        {
            "summary": found.summary,
            "findings": [_finding(finding) for finding in found],
            "checked": list(found.checked),
            "not_checked": [in_command_words(text) for text in found.not_checked],
            **({} if bundle is None else {"bundle": str(bundle)}),
        }
    )


@path_command
@_checks
@run_option
def repair_command(
    path: str, storage_options: dict[str, str], output: Output, run: bool, **checks: Any
) -> None:
    """Repair findings of "bucketlake doctor" without losing a committed row.

    No data file is deleted: files of no commit are moved to quarantine.

    Examples
    --------
    bucketlake repair orders
    bucketlake repair orders --check-keys --run
    """
    table = bl.Table(path, storage_options=storage_options)
    with output.progress("repairing" if run else "checking the table"):
        report = table.repair(dry_run=not run, **checks)
    output.outcome(
        {
            "summary": report.summary,
            "repaired": [_finding(finding) for finding in report.repaired],
            "left": [_finding(finding) for finding in report.left],
            "quarantine": report.quarantine,
            "commits": list(report.commits),
            "checked": list(report.checked),
            "not_checked": [in_command_words(text) for text in report.not_checked],
        },
        ran=run,
        idle=not report.repaired,
    )


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity,
        "kind": finding.kind,
        "partition": finding.partition,
        "meaning": in_command_words(finding.meaning),
        "repair": in_command_words(finding.repair),
        "files": list(finding.files),
    }
