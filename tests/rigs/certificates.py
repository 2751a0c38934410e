"""Certificates for tests: an authority, and what it signs, each a pair of files."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Certified(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1; `file` is its own. They are for servers and clients alike."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        own = (
            self._builder(self._name, self._key.public_key(), timedelta(days=1))
            .add_extension(constraints, critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.public_bytes(Encoding.PEM))

    def sign(self, name: str, *, address: str = "127.0.0.1", valid: timedelta = timedelta(hours=1)) -> Certified:
        """A certificate that is valid for so long from now, or ended so long ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = (
            self._builder(_name(name), key.public_key(), valid)
            .add_extension(alternatives, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certified = Certified(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        certified.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        certified.key.touch(mode=0o600)
        certified.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certified

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
