"""Keeps freed memory and compiled kernels in the process, for reuse, or gives memory back."""

from __future__ import annotations

import ctypes
import os
import platform

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's mallopt(3)."""
OLDER_LIMIT = 2**25
"""The largest MMAP_THRESHOLD that older versions take: larger blocks are given back there."""
KEPT = 2**30
"""Bytes of the largest block that is kept."""
OF_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory(largest: int = KEPT) -> bool:
    """Tells the C library to keep freed blocks of up to `largest` bytes for the next use; returns whether it was told.

    glibc gives large blocks back to the system at once and asks for them anew, whose every page costs a fault when it is
    first written. Networks with large maps take and free such blocks in every layer: for gcsa_pooled_small this was
    nearly a fifth of a training step (docs/adr/0019). The process then stays as large as it ever was, and
    blocks of many sizes leave gaps: tiles of gcsa segment took twice the memory with all blocks kept. Other C libraries, and
    settings of the user's own, are left as they are.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in OF_THE_USER):
        return False
    libc = ctypes.CDLL(None)
    kept = libc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
    return bool((libc.mallopt(MMAP_THRESHOLD, largest) or libc.mallopt(MMAP_THRESHOLD, OLDER_LIMIT)) and kept)


def give_back_memory() -> None:
    """Tells the C library to give all that is free back to the system: between pages, whose blocks of many sizes leave gaps, so that a
    process grew by 30 MB a page."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def keep_compiled_kernels() -> None:
    """Lets oneDNN, which compiles each convolution for each size of image, keep 2,048 of them instead of 1,024. Lines of text
    come in so many sizes that it compiled the same ones again and again. More gained nothing, and each takes 0.13 MB (ADR 20). To be
    called before anything is computed; a setting of the user's own is left."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "2048")
