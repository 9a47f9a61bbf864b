"""Certificates of a test: an authority, and what it signs."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """``trust`` is its certificate, as a file.

    ``store`` makes key and certificate of somebody, good for ``days`` from now on.
    """

    def __init__(self, directory, name="authority"):
        self.directory = directory
        self.name = name
        self.key = Ed25519PrivateKey.generate()
        self.trust = directory / f"{name}.pem"
        self.trust.write_bytes(self._pem(self._signed(name, self.key, 365, authority=True)))

    def store(self, name, days=30, mode=0o600):
        key = Ed25519PrivateKey.generate()
        path = self.directory / f"{name}-{self.name}.pem"
        path.touch()
        path.chmod(mode)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + self._pem(self._signed(name, key, days, authority=False)))
        return path

    def _signed(self, name, key, days, *, authority):
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 60 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .sign(self.key, None)
        )

    def _pem(self, certificate):
        return certificate.public_bytes(serialization.Encoding.PEM)
