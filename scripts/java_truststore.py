"""Give Java the certificates that the other tools of this machine trust.

usage: java_truststore.py BUNDLE.pem STORE.p12

Where SSL_CERT_FILE names a bundle (as behind a proxy that inspects TLS), pip and uv follow it and
Java does not: it has a store of its own. This writes the bundle as such a store, in PKCS #12 with
the usual password, since Java asks for one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)
from cryptography.x509 import load_pem_x509_certificates

PASSWORD = b"changeit"


def main(bundle: Path, store: Path) -> None:
    certificates = load_pem_x509_certificates(bundle.read_bytes())
    entries = [
        PKCS12Certificate(certificate, f"certificate-{number}".encode())
        for number, certificate in enumerate(certificates)
    ]
    store.write_bytes(serialize_java_truststore(entries, BestAvailableEncryption(PASSWORD)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
