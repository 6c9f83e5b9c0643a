"""PySpark that is too old is named before anything of it is called."""

from __future__ import annotations

import pytest

from bucketlake.errors import UnsupportedFeatureError

pyspark = pytest.importorskip("pyspark")


@pytest.mark.parametrize("version", ["3.4.4", "3.3.0", "2.4.8"])
def test_a_pyspark_before_3_5_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    from bucketlake.spark.worker_python import require_pyspark

    require_pyspark()
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(UnsupportedFeatureError, match=r"install PySpark 3\.5 or newer"):
        require_pyspark()
