import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from escnn import gspaces, nn as enn

from gcsa.groups import group
from gcsa.layers import basis
from gcsa.layers.basis import fingerprint, planar_tables

NAMES = ("c1", "c2", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d4", "d6", "d8")
C8 = group("c8")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and nothing remembered by this process."""
    monkeypatch.setenv("GCSA_CACHE", str(tmp_path / "cache"))
    basis._planar_tables.cache_clear()
    return tmp_path / "cache"


def rebuilt() -> np.ndarray:
    basis._planar_tables.cache_clear()
    return planar_tables(C8, 3)


def no_building(*_: object) -> None:
    raise AssertionError("the tables were built although the cache holds them")


@pytest.mark.parametrize("kernel_size", [1, 3, 4, 5, 7])
@pytest.mark.parametrize("name", NAMES)
def test_exact_elements_move_the_tables_to_the_last_bit(name: str, kernel_size: int) -> None:
    h = group(name)
    tables = torch.from_numpy(planar_tables(h, kernel_size))
    for t in h.exact_elements:
        for g in range(h.order):
            assert torch.equal(h.act_on_grid(tables[g], t), tables[int(h.cayley[t, g])])


@pytest.mark.parametrize("kernel_size", [1, 3, 4, 5, 7])
def test_functions_are_independent_and_of_unit_energy(kernel_size: int) -> None:
    tables = planar_tables(C8, kernel_size)
    assert np.allclose(np.square(tables).sum((2, 3)).mean(0), 1)
    assert np.linalg.matrix_rank(tables[0].reshape(len(tables[0]), -1), tol=1e-3) == tables.shape[1]


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
def test_functions_are_escnns(kernel_size: int) -> None:
    """Up to sign and scale, each function of the identity is one filter of escnn's own plain convolution."""
    space = gspaces.trivialOnR2()
    field = enn.FieldType(space, [space.trivial_repr])
    conv = enn.R2Conv(field, field, kernel_size, bias=False, initialize=False)
    unit_vectors = torch.eye(conv.weights.numel())
    filters = torch.stack([conv.basisexpansion(e).flatten() for e in unit_vectors]).double()
    tables = torch.from_numpy(planar_tables(group("c1"), kernel_size))[0].flatten(1)
    cosines = torch.nn.functional.normalize(tables) @ torch.nn.functional.normalize(filters).T
    assert tables.shape == filters.shape
    assert torch.allclose(cosines.abs().amax(1), torch.ones(len(tables), dtype=torch.float64), atol=1e-6)
    assert cosines.abs().argmax(1).unique().numel() == len(tables)


def test_the_functions_are_turned_not_resampled() -> None:
    """The table of a 45 degree turn of c8 is that of c16, where the same turn has another number."""
    assert np.allclose(planar_tables(C8, 5)[1], planar_tables(group("c16"), 5)[2], atol=1e-12)
    assert not np.allclose(planar_tables(C8, 5)[1], planar_tables(C8, 5)[0])


def test_caller_cannot_change_the_tables() -> None:
    planar_tables(C8, 3)[:] = 0
    assert planar_tables(C8, 3).any()


def test_fingerprint_names_the_functions() -> None:
    prints = {fingerprint(group(name), k) for name in NAMES for k in (3, 4, 5, 7)}
    assert len(prints) == len(NAMES) * 4
    assert all(0 <= number < 2**48 for number in prints)


def test_fingerprint_is_the_same_on_every_machine() -> None:
    """Checkpoints hold these numbers: a change makes every earlier checkpoint unreadable."""
    found = [f"{fingerprint(group(name), k):012x}" for name, k in (("c4", 3), ("c8", 5), ("d4", 4))]
    assert found == ["b4d7fa6e3d8c", "92c4909e260a", "a48ea5961056"]


def test_build_is_deterministic(cache: Path) -> None:
    assert np.array_equal(basis._build(C8, 5), basis._build(C8, 5))


def test_cache_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = planar_tables(C8, 3)
    (file,) = cache.iterdir()  # nothing but the table: no temporary file
    assert "c8-k3" in file.name
    monkeypatch.setattr(basis, "_build", no_building)
    assert np.array_equal(rebuilt(), built)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "foreign"])
def test_damaged_file_is_built_again(cache: Path, damage: str) -> None:
    built = planar_tables(C8, 3)
    (file,) = cache.iterdir()
    intact = file.read_bytes()
    flipped = bytearray(intact)
    flipped[-9] ^= 1
    file.write_bytes({"flipped": bytes(flipped), "truncated": intact[:-8], "empty": b"", "foreign": b"x" * 999}[damage])
    assert np.array_equal(rebuilt(), built)
    assert file.read_bytes() == intact


def test_unwritable_folder_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GCSA_CACHE", str(tmp_path / "file" / "cache"))
    assert rebuilt().any()


def test_failed_write_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert rebuilt().any()
    assert list(cache.iterdir()) == []


def test_read_only_cache_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = planar_tables(C8, 3)
    cache.chmod(0o500)
    monkeypatch.setattr(basis, "_build", no_building)
    assert np.array_equal(rebuilt(), built)
    cache.chmod(0o700)


def test_folder_without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCSA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert basis.cache_folder() == Path("/somewhere/gcsa")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert basis.cache_folder() == Path.home() / ".cache" / "gcsa"


def test_a_user_without_a_home_has_no_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user number has no entry in /etc/passwd."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    built = planar_tables(C8, 3)
    monkeypatch.delenv("GCSA_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert basis.cache_folder() is None
    assert np.array_equal(rebuilt(), built)


def test_writers_and_readers_do_not_meet(cache: Path) -> None:
    tables = planar_tables(C8, 7)
    (file,) = cache.iterdir()
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(basis._write, file, tables) for _ in range(20)]
        readers = [pool.submit(basis._read, file) for _ in range(60)]
    assert all(writer.exception() is None for writer in writers)
    assert all(np.array_equal(reader.result(), tables) for reader in readers)
    assert list(cache.iterdir()) == [file]


@pytest.mark.slow  # each process imports torch, timm and escnn
def test_processes_may_write_at_once(cache: Path) -> None:
    code = "from gcsa.groups import group; from gcsa.layers.basis import planar_tables; planar_tables(group('c8'), 3)"
    writers = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", code]) for _ in range(2)]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    (file,) = cache.iterdir()
    assert basis._read(file) is not None


def test_warm_process_does_not_import_escnn(cache: Path) -> None:
    for kernel_size in range(1, 8):
        planar_tables(C8, kernel_size)
    code = (
        "import sys, timm, torch, gcsa; model = timm.create_model('gcsa_tiny_c8'); model(torch.zeros(1, 1, 28, 28));"
        "sys.exit('escnn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=300).returncode == 0
