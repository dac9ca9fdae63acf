"""The certificate with which the workers of one fold encrypt what they send to each other, and trust nobody else.

The driver makes it for each fold, where Spark encrypts its own connections, and signs it with its own key. Each worker
gets it with the key: it is what both ends of a connection show, and the only one that either takes. Whose address it
is told from does not matter, and no authority is asked.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ddcore.jobs.engines.protocol import Credentials

if TYPE_CHECKING:
    import ssl

_DAYS = 30  # a fold may begin again, but not for so long
_SKEW = timedelta(days=1)  # between the clocks of two machines


def can_encrypt() -> bool:
    """Whether certificates can be made here."""
    return find_spec("cryptography") is not None


def new_certificate(secret: bytes) -> bytes:
    """A key of its own and its certificate, as PEM. The key can be read with the secret only: it is in a file for a
    moment, as Python takes it from nowhere else. Some 20 ms, of which the import is the most.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a fold of ddcore")])
    now = datetime.now(UTC)
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)  # signatures, also of itself
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(secret.hex().encode())
    form = serialization.Encoding.PEM
    return certificate.public_bytes(form) + key.private_bytes(form, serialization.PrivateFormat.PKCS8, locked)


def context_of(credentials: Credentials, *, answers: bool) -> ssl.SSLContext:
    """How the side of a connection that answers, or that calls, encrypts it. Needs the standard library only."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if answers else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # there is one certificate, and both sides have it
    context.verify_mode = ssl.CERT_REQUIRED
    if answers:
        context.num_tickets = 0  # no connection is resumed
    pem = credentials.certificate.decode()
    context.load_verify_locations(cadata=pem[: pem.index("-----BEGIN ENCRYPTED")])
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=credentials.secret.hex())
    return context
