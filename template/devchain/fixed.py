"""The chain's fixed-point numbers as Python integers.

A value is an I32F32: a whole number of 2^-32. Products round down, quotients
round towards zero, and division by zero gives zero, as the runtime does.
"""

from collections.abc import Sequence

FRAC_BITS = 32
ONE = 1 << FRAC_BITS
U16_MAX = 65535


def mul(a: int, b: int) -> int:
    """Product of two I32F32, rounded down."""
    return (a * b) >> FRAC_BITS


def div(a: int, b: int) -> int:
    """Quotient of two non-negative I32F32, rounded down; zero when b is zero."""
    return (a << FRAC_BITS) // b if b else 0


def ratio(a: int, b: int) -> int:
    """The I32F32 nearest below a/b for whole numbers; zero when b is zero."""
    return (a << FRAC_BITS) // b if b else 0


def normalize(values: Sequence[int]) -> list[int]:
    """Values over their sum; unchanged when the sum is zero."""
    total = sum(values)
    return [div(value, total) for value in values] if total else list(values)


def to_u16(value: int) -> int:
    """A proportion as 0..65535, rounded down and clamped."""
    return min(U16_MAX, max(0, (value * U16_MAX) >> FRAC_BITS))


def exp(value: int) -> int:
    """e to the value, by the runtime's truncated Taylor series."""
    if value == 0:
        return ONE
    size = abs(value)
    result, term = size + ONE, size
    for index in range(2, FRAC_BITS):
        term = mul(term, size) // index
        result += term
    return div(ONE, result) if value < 0 else result
