"""The wall clock as messages state it."""

import time


def now_ms() -> int:
    """Unix time in whole milliseconds."""
    return time.time_ns() // 1_000_000
