"""Tests of the kinds of findings."""

from __future__ import annotations

from bucketlake.services.check.findings import BY_HAND, FindingKind, Remedy


def test_a_finding_that_no_repair_mends_says_what_to_do_by_hand() -> None:
    silent = [kind.value for kind in FindingKind if kind.remedy is Remedy.NOTHING]
    assert [word for word in silent if word not in BY_HAND] == []
