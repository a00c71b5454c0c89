"""ML-KEM-768 (FIPS 203): making a key pair, and opening what was sealed for it.

Plain Python integers, written from the standard. It is meant for a dev chain:
it does not run in constant time.
"""

import hashlib
from dataclasses import dataclass

Q, N, K = 3329, 256, 3
ETA, DU, DV = 2, 10, 4
CIPHERTEXT_BYTES = 32 * (DU * K + DV)
PUBLIC_BYTES = 384 * K + 32

Poly = list[int]
Vector = list[Poly]


def _reversed_bits(value: int) -> int:
    return int(f"{value:07b}"[::-1], 2)


_ZETAS = [pow(17, _reversed_bits(index), Q) for index in range(128)]
_GAMMAS = [pow(17, 2 * _reversed_bits(index) + 1, Q) for index in range(128)]
_HALF_INVERSE = 3303  # 128^-1 mod q


@dataclass(frozen=True)
class KeyPair:
    """A public key, and what opens its ciphertexts."""

    public: bytes
    secret: bytes
    reject: bytes


def _g(data: bytes) -> tuple[bytes, bytes]:
    digest = hashlib.sha3_512(data).digest()
    return digest[:32], digest[32:]


def _h(data: bytes) -> bytes:
    return hashlib.sha3_256(data).digest()


def _ntt(poly: Poly) -> Poly:
    f, index, length = list(poly), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            zeta = _ZETAS[index]
            index += 1
            for j in range(start, start + length):
                t = zeta * f[j + length] % Q
                f[j + length] = (f[j] - t) % Q
                f[j] = (f[j] + t) % Q
        length //= 2
    return f


def _inverse_ntt(poly: Poly) -> Poly:
    f, index, length = list(poly), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            zeta = _ZETAS[index]
            index -= 1
            for j in range(start, start + length):
                t = f[j]
                f[j] = (t + f[j + length]) % Q
                f[j + length] = zeta * (f[j + length] - t) % Q
        length *= 2
    return [value * _HALF_INVERSE % Q for value in f]


def _multiply(a: Poly, b: Poly) -> Poly:
    product = [0] * N
    for index in range(128):
        a0, a1, b0, b1 = a[2 * index], a[2 * index + 1], b[2 * index], b[2 * index + 1]
        product[2 * index] = (a0 * b0 + a1 * b1 % Q * _GAMMAS[index]) % Q
        product[2 * index + 1] = (a0 * b1 + a1 * b0) % Q
    return product


def _add(a: Poly, b: Poly) -> Poly:
    return [(x + y) % Q for x, y in zip(a, b, strict=True)]


def _inner(a: Vector, b: Vector) -> Poly:
    total = [0] * N
    for x, y in zip(a, b, strict=True):
        total = _add(total, _multiply(x, y))
    return total


def _uniform(seed: bytes, column: int, row: int) -> Poly:
    """One entry of the public matrix, already in the transformed domain."""
    stream, at = hashlib.shake_128(seed + bytes([column, row])).digest(1344), 0
    values: Poly = []
    while len(values) < N:
        low = stream[at] | (stream[at + 1] & 15) << 8
        high = stream[at + 1] >> 4 | stream[at + 2] << 4
        at += 3
        values += [value for value in (low, high) if value < Q]
    return values[:N]


def _small(seed: bytes, counter: int) -> Poly:
    """A polynomial with small coefficients, from a centred binomial distribution."""
    stream = hashlib.shake_256(seed + bytes([counter])).digest(64 * ETA)
    bits = int.from_bytes(stream, "little")
    values = []
    for index in range(N):
        four = bits >> 4 * index & 15
        values.append(((four & 1) + (four >> 1 & 1) - (four >> 2 & 1) - (four >> 3)) % Q)
    return values


def _pack(poly: Poly, width: int) -> bytes:
    total = 0
    for index, value in enumerate(poly):
        total |= value << width * index
    return total.to_bytes(32 * width, "little")


def _unpack(data: bytes, width: int) -> Poly:
    total, mask = int.from_bytes(data, "little"), (1 << width) - 1
    return [total >> width * index & mask for index in range(N)]


def _compress(poly: Poly, width: int) -> Poly:
    return [((value << width) + Q // 2) // Q & (1 << width) - 1 for value in poly]


def _decompress(poly: Poly, width: int) -> Poly:
    return [(value * Q + (1 << width - 1)) >> width for value in poly]


def _matrix(seed: bytes) -> list[Vector]:
    return [[_uniform(seed, column, row) for column in range(K)] for row in range(K)]


def key_pair(seed: bytes) -> KeyPair:
    """The key pair of a 64-byte seed (d, then z)."""
    if len(seed) != 64:
        raise ValueError(f"an ML-KEM seed has 64 bytes, found {len(seed)}")
    rho, sigma = _g(seed[:32] + bytes([K]))
    matrix = _matrix(rho)
    secret = [_ntt(_small(sigma, index)) for index in range(K)]
    error = [_ntt(_small(sigma, K + index)) for index in range(K)]
    public = [_add(_inner(matrix[row], secret), error[row]) for row in range(K)]
    packed = b"".join(_pack(poly, 12) for poly in public) + rho
    return KeyPair(packed, b"".join(_pack(poly, 12) for poly in secret), seed[32:])


def _encrypt(public: bytes, message: bytes, coins: bytes) -> bytes:
    t = [_unpack(public[384 * index : 384 * (index + 1)], 12) for index in range(K)]
    matrix = _matrix(public[384 * K :])
    y = [_ntt(_small(coins, index)) for index in range(K)]
    transposed = [[matrix[row][column] for row in range(K)] for column in range(K)]
    u = [_add(_inverse_ntt(_inner(transposed[index], y)), _small(coins, K + index)) for index in range(K)]
    noise = _add(_small(coins, 2 * K), _decompress(_unpack(message, 1), 1))
    v = _add(_inverse_ntt(_inner(t, y)), noise)
    return b"".join(_pack(_compress(poly, DU), DU) for poly in u) + _pack(_compress(v, DV), DV)


def _decrypt(secret: bytes, ciphertext: bytes) -> bytes:
    size = 32 * DU
    u = [_decompress(_unpack(ciphertext[size * index : size * (index + 1)], DU), DU) for index in range(K)]
    v = _decompress(_unpack(ciphertext[size * K :], DV), DV)
    s = [_unpack(secret[384 * index : 384 * (index + 1)], 12) for index in range(K)]
    product = _inverse_ntt(_inner(s, [_ntt(poly) for poly in u]))
    return _pack(_compress([(x - y) % Q for x, y in zip(v, product, strict=True)], 1), 1)


def encapsulate(public: bytes, message: bytes) -> tuple[bytes, bytes]:
    """A shared secret and its ciphertext for a public key, from 32 random bytes."""
    shared, coins = _g(message + _h(public))
    return shared, _encrypt(public, message, coins)


def decapsulate(keys: KeyPair, ciphertext: bytes) -> bytes:
    """The shared secret in a ciphertext; a forged one gives an unrelated secret, as the standard wants."""
    if len(ciphertext) != CIPHERTEXT_BYTES:
        raise ValueError(f"an ML-KEM-768 ciphertext has {CIPHERTEXT_BYTES} bytes, found {len(ciphertext)}")
    message = _decrypt(keys.secret, ciphertext)
    shared, coins = _g(message + _h(keys.public))
    if _encrypt(keys.public, message, coins) == ciphertext:
        return shared
    return hashlib.shake_256(keys.reject + ciphertext).digest(32)
