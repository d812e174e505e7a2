# SPDX-License-Identifier: BSD-3-Clause
"""The one place that calls `cryptography`: raw signature primitives over numbers and bytes, and AES blocks.

All functions take and return plain integers and bytes, so that the formats above (OpenPGP, DSSE) can be read and
tested without the library. Sizes of foreign numbers are checked first: a hostile key costs no time.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import re
import warnings
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from kedge.errors import KeyUnusable

_MINIMUM_RSA_BITS = 2047  # a 2048-bit product of two primes may start with a zero bit
_MAXIMUM_RSA_BITS = 16384
_MAXIMUM_EXPONENT_BITS = 64

_HASHES: dict[str, hashes.HashAlgorithm] = {
    "sha224": hashes.SHA224(),
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
    "sha1": hashes.SHA1(),  # only ever asked for when a revocation of an old key is checked
}
_CURVES: dict[str, ec.EllipticCurve] = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}


@dataclass(frozen=True, slots=True, repr=False)
class RsaSecret:
    """The numbers of an RSA key pair; `inverse` is p⁻¹ mod q, the order OpenPGP keeps."""

    modulus: int
    exponent: int
    private: int
    prime_p: int
    prime_q: int
    inverse: int


def verify_rsa(modulus: int, exponent: int, hash_name: str, digest: bytes, signature: int) -> bool:
    """Whether an RSA PKCS#1 v1.5 signature over an already computed digest is good."""
    _check_rsa_size(modulus, exponent)
    size = (modulus.bit_length() + 7) // 8
    if not 0 < signature < modulus:
        return False
    try:
        key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
        key.verify(signature.to_bytes(size, "big"), digest, padding.PKCS1v15(), utils.Prehashed(_HASHES[hash_name]))
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True


def _check_rsa_size(modulus: int, exponent: int) -> None:
    """Refuse RSA numbers that are too weak to trust, or so large that using them is an attack."""
    bits = modulus.bit_length()
    if not _MINIMUM_RSA_BITS <= bits <= _MAXIMUM_RSA_BITS:
        raise KeyUnusable(f"an RSA key of {bits} bits is not accepted", hint="use a key of 2048 to 16384 bits")
    if exponent.bit_length() > _MAXIMUM_EXPONENT_BITS or exponent < 3 or not exponent & 1 or not modulus & 1:
        raise KeyUnusable("the RSA key has numbers that no honest key has")


def sign_rsa(secret: RsaSecret, hash_name: str, digest: bytes) -> int:
    """RSA PKCS#1 v1.5 over a digest."""
    key = _load_rsa_secret(secret)
    return int.from_bytes(key.sign(digest, padding.PKCS1v15(), utils.Prehashed(_HASHES[hash_name])), "big")


def _load_rsa_secret(secret: RsaSecret) -> rsa.RSAPrivateKey:
    _check_rsa_size(secret.modulus, secret.exponent)
    p, q = secret.prime_p, secret.prime_q
    if p < 3 or q < 3 or p * q != secret.modulus:
        raise KeyUnusable("the secret RSA key's primes do not belong to its modulus")
    try:
        numbers = rsa.RSAPrivateNumbers(
            p=p,
            q=q,
            d=secret.private,
            dmp1=secret.private % (p - 1),
            dmq1=secret.private % (q - 1),
            iqmp=rsa.rsa_crt_iqmp(p, q),
            public_numbers=rsa.RSAPublicNumbers(secret.exponent, secret.modulus),
        )
        return numbers.private_key()
    except (ValueError, UnsupportedAlgorithm) as problem:
        raise KeyUnusable("the secret RSA key's numbers do not belong together") from problem


def generate_rsa(bits: int) -> RsaSecret:
    """A fresh RSA key pair with exponent 65537."""
    numbers = rsa.generate_private_key(public_exponent=65537, key_size=bits).private_numbers()
    # OpenPGP asks for p < q, so that the inverse is of p modulo q
    p, q = sorted((numbers.p, numbers.q))
    return RsaSecret(
        modulus=numbers.public_numbers.n,
        exponent=numbers.public_numbers.e,
        private=numbers.d,
        prime_p=p,
        prime_q=q,
        inverse=pow(p, -1, q),
    )


def verify_dsa(numbers: tuple[int, int, int, int], digest: bytes, r: int, s: int) -> bool:
    """Whether a DSA signature over a digest is good; numbers are p, q, g, y."""
    p, q, g, y = numbers
    if not (2047 <= p.bit_length() <= 4096 and 224 <= q.bit_length() <= 256):
        raise KeyUnusable(f"a DSA key of {p.bit_length()}/{q.bit_length()} bits is not accepted")
    try:
        key = dsa.DSAPublicNumbers(y, dsa.DSAParameterNumbers(p, q, g)).public_key()
        size = q.bit_length() // 8
        chosen = next(item for item in _HASHES.values() if item.digest_size == len(digest[:size]))
        key.verify(utils.encode_dss_signature(r, s), digest[:size], utils.Prehashed(chosen))
    except (InvalidSignature, ValueError, UnsupportedAlgorithm, StopIteration):
        return False
    return True


def verify_ecdsa(curve: str, point: bytes, hash_name: str, digest: bytes, signature: tuple[int, int]) -> bool:
    """Whether an ECDSA signature (r, s) over a digest is good; `point` is the uncompressed SEC1 point."""
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(_CURVES[curve], point)
        chosen = ec.ECDSA(utils.Prehashed(_HASHES[hash_name]))
        key.verify(utils.encode_dss_signature(*signature), digest, chosen)
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True


def sign_ecdsa(curve: str, secret: int, hash_name: str, digest: bytes) -> tuple[int, int]:
    """ECDSA over a digest."""
    try:
        key = ec.derive_private_key(secret, _CURVES[curve])
    except ValueError as problem:
        raise KeyUnusable("the secret ECDSA key is not a number of its curve") from problem
    return utils.decode_dss_signature(key.sign(digest, ec.ECDSA(utils.Prehashed(_HASHES[hash_name]))))


def derive_ecdsa_point(curve: str, secret: int) -> bytes:
    """The uncompressed public point of a secret number."""
    try:
        numbers = ec.derive_private_key(secret, _CURVES[curve]).public_key().public_numbers()
    except ValueError as problem:
        raise KeyUnusable("the secret ECDSA key is not a number of its curve") from problem
    size = (_CURVES[curve].key_size + 7) // 8
    return b"\x04" + numbers.x.to_bytes(size, "big") + numbers.y.to_bytes(size, "big")


def verify_ed25519(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a 64-byte Ed25519 signature is good."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def sign_ed25519(seed: bytes, message: bytes) -> bytes:
    """Ed25519 with a 32-byte seed."""
    return ed25519.Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def derive_ed25519_public(seed: bytes) -> bytes:
    """The public point of a seed."""
    return ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def decrypt_cfb(key: bytes, vector: bytes, data: bytes) -> bytes:
    """AES in cipher feedback mode, all blocks at once: each block's mask is the encrypted block before it."""
    masks = _encrypt_blocks(key, (vector + data)[: (len(data) + 15) // 16 * 16])
    return bytes(a ^ b for a, b in zip(data, masks, strict=False))


def encrypt_cfb(key: bytes, vector: bytes, data: bytes) -> bytes:
    """AES in cipher feedback mode, the inverse of `decrypt_cfb`."""
    result = bytearray()
    previous = vector
    for start in range(0, len(data), 16):
        mask = _encrypt_blocks(key, previous)
        previous = bytes(a ^ b for a, b in zip(data[start : start + 16], mask, strict=False))
        result += previous
    return bytes(result)


def _encrypt_blocks(key: bytes, data: bytes) -> bytes:
    # ECB is the bare block function; the mode is made above, because the library is about to drop CFB
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(data) + encryptor.finalize()


_PemPublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
_PemPrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key from a PEM file or certificate, able to check SHA-256 based signatures over messages."""

    kind: str  # "Ed25519", "RSA 4096", "ECDSA secp256r1"
    key_id: str  # SHA256: and the unpadded base64 hash of the OpenSSH form, as ssh-keygen -l shows it
    _key: _PemPublicKey = field(repr=False, compare=False)

    def is_signature(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature over the message was made by this key's owner."""
        try:
            if isinstance(self._key, ed25519.Ed25519PublicKey):
                self._key.verify(signature, message)
            elif isinstance(self._key, rsa.RSAPublicKey):
                self._key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
            else:
                self._key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError, UnsupportedAlgorithm):
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key from a PEM file."""

    public: VerifyingKey
    _key: _PemPrivateKey = field(repr=False, compare=False)

    def sign(self, message: bytes) -> bytes:
        """Ed25519 as it is; RSA PKCS#1 v1.5 and ECDSA (ASN.1) over SHA-256."""
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return self._key.sign(message)
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        return self._key.sign(message, ec.ECDSA(hashes.SHA256()))


class PassphraseNeeded(KeyUnusable):
    """The PEM file is encrypted and no passphrase was given."""


def load_public_pem(data: bytes, *, where: str) -> VerifyingKey:
    """Read a PEM public key (SubjectPublicKeyInfo or PKCS#1)."""
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as problem:
        raise KeyUnusable(
            f"{where}: no PEM public key that can be read",
            hint="a public key file starts with -----BEGIN PUBLIC KEY-----; for X.509 use --certificate",
        ) from problem
    return _wrap_public(key, where)


def load_private_pem(data: bytes, passphrase: str | None, *, where: str) -> SigningKey:
    """Read a PEM private key; PassphraseNeeded when it is encrypted and no passphrase is given."""
    if b"ENCRYPTED SIGSTORE PRIVATE KEY" in data or b"ENCRYPTED COSIGN PRIVATE KEY" in data:
        raise KeyUnusable(
            f"{where}: private keys in the cosign container are not read",
            hint="export the key as PKCS#8: openssl pkcs8 -topk8",
        )
    secret = passphrase.encode(errors="surrogateescape") if passphrase else None
    try:
        key = serialization.load_pem_private_key(data, secret)
    except TypeError as problem:
        if secret is not None:  # a passphrase was offered for a key that has none
            return load_private_pem(data, None, where=where)
        raise PassphraseNeeded(f"{where}: the private key is encrypted", hint="give its passphrase") from problem
    except (ValueError, UnsupportedAlgorithm) as problem:
        wrong = secret is not None
        raise KeyUnusable(
            f"{where}: " + ("wrong passphrase, or a damaged key" if wrong else "no PEM private key that can be read"),
            hint=None if wrong else "a private key file starts with -----BEGIN PRIVATE KEY-----",
        ) from problem
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise KeyUnusable(f"{where}: keys of this kind do not sign", hint="use an Ed25519, ECDSA or RSA key")
    return SigningKey(_wrap_public(key.public_key(), where), key)


def unlock_message(data: bytes, message: bytes, *, where: str) -> str:
    """Decrypt a PEM block that was encrypted with the public half of an RSA key (OAEP with SHA-256)."""
    try:
        key = serialization.load_pem_private_key(data, None)
        body = b"".join(line for line in message.splitlines() if line and not line.startswith(b"-----"))
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError("not RSA")
        pad = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
        locked = base64.b64decode(body)[-(key.key_size // 8) :]  # behind the header of a DER octet string
        return key.decrypt(locked, pad).decode("utf-8", "surrogateescape")
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise KeyUnusable(
            f"{where} does not open this image: it is not the RSA private key that it was encrypted for",
            hint="give the private half of the key whose public half encrypted the image",
        ) from problem


def _wrap_public(key: object, where: str) -> VerifyingKey:
    if isinstance(key, rsa.RSAPublicKey):
        _check_rsa_size(key.public_numbers().n, key.public_numbers().e)
        kind = f"RSA {key.key_size}"
    elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, tuple(type(c) for c in _CURVES.values())):
        kind = f"ECDSA {key.curve.name}"
    elif isinstance(key, ed25519.Ed25519PublicKey):
        kind = "Ed25519"
    else:
        raise KeyUnusable(
            f"{where}: keys of this kind do not sign",
            hint="use an Ed25519, ECDSA (P-256, P-384, P-521) or RSA key",
        )
    blob = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).split(b" ")[1]
    digest = hashlib.sha256(base64.b64decode(blob)).digest()
    return VerifyingKey(kind, "SHA256:" + base64.b64encode(digest).decode().rstrip("="), key)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of one X.509 certificate that chain checking needs."""

    subject: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    is_authority: bool
    path_length: int | None
    may_sign_code: bool
    unknown_critical: tuple[str, ...]
    _certificate: x509.Certificate = field(repr=False)

    def is_issued_by(self, issuer: Certificate) -> bool:
        """Whether the issuer's name and key match this certificate's signature; MD5 and SHA-1 are refused."""
        if isinstance(self._certificate.signature_hash_algorithm, hashes.MD5 | hashes.SHA1):
            return False
        try:
            issuer.load_key(where=issuer.subject)
            self._certificate.verify_directly_issued_by(issuer._certificate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, KeyUnusable):
            return False
        return True

    def load_key(self, *, where: str) -> VerifyingKey:
        """The certified public key."""
        try:
            return _wrap_public(self._certificate.public_key(), where)
        except (ValueError, UnsupportedAlgorithm) as problem:
            raise KeyUnusable(f"{where}: the certificate's key cannot be read") from problem


def load_certificates(data: bytes, *, where: str) -> list[Certificate]:
    """Every certificate of a PEM bundle that can be read; KeyUnusable when there is none.

    It loads them one by one: system bundles hold old certificates that the library warns about or refuses.
    """
    certificates: list[Certificate] = []
    for block in _PEM_CERTIFICATE.findall(data):
        with (
            warnings.catch_warnings(),
            contextlib.suppress(
                ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType
            ),
        ):
            warnings.simplefilter("ignore")
            certificates.append(_describe_certificate(x509.load_pem_x509_certificate(block)))
    if not certificates:
        raise KeyUnusable(
            f"{where}: no PEM certificate that can be read",
            hint="a certificate file starts with -----BEGIN CERTIFICATE-----",
        )
    return certificates


_PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]{1,100000}-----END CERTIFICATE-----")
_KNOWN_EXTENSIONS = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)


def _describe_certificate(certificate: x509.Certificate) -> Certificate:
    extensions = {type(item.value): item for item in certificate.extensions}
    basic = extensions.get(x509.BasicConstraints)
    usage = extensions.get(x509.KeyUsage)
    extended = extensions.get(x509.ExtendedKeyUsage)
    names = x509.oid.ExtendedKeyUsageOID
    basic_value = basic.value if basic and isinstance(basic.value, x509.BasicConstraints) else None
    usage_value = usage.value if usage and isinstance(usage.value, x509.KeyUsage) else None
    extended_value = extended.value if extended and isinstance(extended.value, x509.ExtendedKeyUsage) else None
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_authority=bool(basic_value and basic_value.ca and (usage_value is None or usage_value.key_cert_sign)),
        path_length=basic_value.path_length if basic_value else None,
        may_sign_code=extended_value is None
        or any(item in (names.CODE_SIGNING, names.ANY_EXTENDED_KEY_USAGE) for item in extended_value),
        unknown_critical=tuple(
            item.oid.dotted_string
            for item in certificate.extensions
            if item.critical and not isinstance(item.value, _KNOWN_EXTENSIONS)
        ),
        _certificate=certificate,
    )
