"""Memory that is freed is kept, told by the page faults of a process that takes and frees large blocks."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gcsa._utils import memory

ROOT = Path(__file__).parents[2]

PROGRAM = """
import resource, sys
import numpy
from gcsa._utils.memory import keep_freed_memory

told = keep_freed_memory() if sys.argv[1] == "keep" else False
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [numpy.ones(2**22, "float32") for _ in range(16)]  # of 16 MiB, freed at once
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")


def faults(mode: str) -> tuple[bool, int]:
    """Whether the library was told, and the faults of the third time."""
    environment = {"PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    told, count = run.stdout.split()
    return told == "True", int(count)


@glibc
def test_freed_memory_is_kept() -> None:
    assert faults("leave")[1] > 50  # large pages count once
    told, count = faults("keep")
    assert told
    assert count < 20


GAPS = """
import resource
import numpy
from gcsa._utils.memory import give_back_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

keep_freed_memory()
kept = [numpy.ones(2**20, "float32") for _ in range(64)]  # of 4 MiB
del kept[::2]
before = resident()
give_back_memory()
print(before - resident())
"""


@glibc
def test_freed_memory_is_given_back() -> None:
    """Also from the gaps between blocks that are in use."""
    run = subprocess.run([sys.executable, "-c", GAPS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(run.stdout) > 100 << 20


@pytest.mark.parametrize("name", memory.OF_THE_USER)
def test_settings_of_the_user_are_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert memory.keep_freed_memory() is False


def test_other_libraries_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert memory.keep_freed_memory() is False


def test_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1")  # so that it is put back as it was
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    memory.keep_compiled_kernels()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "2048"
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1")
    memory.keep_compiled_kernels()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "1"
