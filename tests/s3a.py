"""Hadoop's client of S3 for Spark sessions of tests, by coordinates.

Hadoop asks for the vendor's whole SDK, hundreds of megabytes in one file; the parts of it that its
client uses are some 20 MB, and are named here instead.
"""

from __future__ import annotations

from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY

_SDK_1 = "1.12.262"  # As Hadoop 3.3.4 has it, which Spark 3.5 brings.
_SDK_2 = "2.35.4"  # As Hadoop 3.5.0 has it, which Spark 4.3 brings.
_PARTS = {
    "3": [
        "org.apache.hadoop:hadoop-aws:3.3.4",
        *(f"com.amazonaws:aws-java-sdk-{part}:{_SDK_1}" for part in ("s3", "dynamodb", "sts")),
    ],
    "4": [
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(
            f"software.amazon.awssdk:{part}:{_SDK_2}"
            for part in ("s3", "s3-transfer-manager", "sts", "apache-client")
        ),
    ],
}
_WHOLE_SDKS = [
    "com.amazonaws:aws-java-sdk-bundle",
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:wildfly-openssl",
]


def packages(spark_version: str) -> str:
    """Return coordinates of the client that fits a version of Spark."""
    return ",".join(_PARTS[spark_version[0]])


def settings(endpoint: str) -> dict[str, str]:
    """Return the settings by which Spark reaches a server, besides the packages."""
    client = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
    }
    excluded = {"spark.jars.excludes": ",".join(_WHOLE_SDKS)}
    return excluded | {f"spark.hadoop.fs.s3a.{key}": value for key, value in client.items()}
