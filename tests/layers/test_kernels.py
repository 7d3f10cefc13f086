import numpy as np
import pytest
import torch

from gcsa.groups import group
from gcsa.layers.kernels import LARGER, SIZES, count_functions, fingerprint, planar_tables, steering_matrices

NAMES = ("c1", "c2", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d4", "d6", "d8")
C8 = group("c8")


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


@pytest.mark.parametrize("kernel_size", [*SIZES, *LARGER])
def test_functions_are_counted_without_them(kernel_size: int) -> None:
    for basis in ("band", "full"):
        assert count_functions(kernel_size, basis) == planar_tables(group("c4"), kernel_size, basis).shape[1]


@pytest.mark.parametrize(("name", "kernel_size"), [("c4", 3), ("c8", 5), ("d4", 4), ("d6", 7)])
def test_steering_matrices_are_the_least_squares(name: str, kernel_size: int) -> None:
    h = group(name)
    tables = planar_tables(h, kernel_size)
    functions, count = tables.reshape(*tables.shape[:2], -1).swapaxes(1, 2), tables.shape[1]
    for g, found in enumerate(steering_matrices(h, kernel_size, "band")):
        turned = functions[h.cayley[:, g]].reshape(-1, count)
        expected = np.linalg.lstsq(functions.reshape(-1, count), turned, rcond=None)[0].T
        assert np.allclose(found, expected, atol=1e-13)


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
