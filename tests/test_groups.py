import numpy as np
import pytest
import torch

from gcsa.groups import Group, group
from tests.errors import raises

NAMES = ("c1", "c2", "c3", "c4", "c6", "c8", "c12", "c16", "d1", "d2", "d3", "d4", "d5", "d6", "d8", "d12")


@pytest.fixture(params=NAMES)
def h(request: pytest.FixtureRequest) -> Group:
    return group(request.param)


def test_cayley_table_is_a_group(h: Group) -> None:
    table, elements = h.cayley, np.arange(h.order)
    assert np.array_equal(table[0], elements)
    assert np.array_equal(table[:, 0], elements)
    assert np.array_equal(table[table], table[elements[:, None, None], table[None]])  # (a b) c = a (b c)
    assert (np.sort(table, axis=0) == elements[:, None]).all()
    assert (np.sort(table, axis=1) == elements).all()


def test_inverse(h: Group) -> None:
    elements = np.arange(h.order)
    assert not h.cayley[elements, h.inverse].any()
    assert not h.cayley[h.inverse, elements].any()


def test_matrices_are_a_faithful_homomorphism(h: Group) -> None:
    matrices = np.stack([h.matrix(g) for g in range(h.order)])
    products = np.einsum("aij,bjk->abik", matrices, matrices)
    assert np.allclose(products, matrices[h.cayley], atol=1e-12)
    assert len({tuple(np.round(m.ravel(), 6)) for m in matrices}) == h.order
    assert np.allclose(np.linalg.det(matrices), [-1 if g >= h.rotations else 1 for g in range(h.order)])


def test_agrees_with_escnn(h: Group) -> None:
    space = h.gspace()
    elements = space.fibergroup.elements
    assert len(elements) == h.order
    for a, x in enumerate(elements):
        assert np.allclose(space.basespace_action(x), h.matrix(a), atol=1e-7)
        assert elements[h.inverse[a]] == ~x
        for b, y in enumerate(elements):
            assert elements[h.cayley[a, b]] == x @ y


def test_regular_representation_is_escnns(h: Group) -> None:
    space = h.gspace()
    x = torch.randn(h.order, 3, dtype=torch.float64)
    for g, element in enumerate(space.fibergroup.elements):
        expected = torch.from_numpy(space.regular_repr(element)) @ x
        assert torch.allclose(h.act_on_fibre(x, g, dim=0), expected, atol=1e-6)


def test_exact_elements_are_the_integer_matrices(h: Group) -> None:
    integer = [g for g in range(h.order) if np.allclose(h.matrix(g), np.round(h.matrix(g)))]
    assert list(h.exact_elements) == integer


@pytest.mark.parametrize(("rotations", "exact"), [(1, 1), (2, 2), (3, 1), (5, 1), (6, 2), (8, 4), (12, 4)])
def test_exact_elements_are_those_that_take_pixels_to_pixels(rotations: int, exact: int) -> None:
    """Of even and of odd squares, by the positions of their pixels; a reflection for each rotation."""
    assert (len(Group(rotations).exact_elements), len(Group(rotations, True).exact_elements)) == (exact, 2 * exact)
    h = Group(rotations, True)
    for size in (4, 5):
        axis = np.arange(size) - (size - 1) / 2
        pixels = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
        positions = {tuple(pixel) for pixel in pixels}
        moved = [{tuple(pixel) for pixel in (pixels @ h.matrix(g).T).round(9)} for g in range(h.order)]
        assert h.exact_elements == tuple(g for g in range(h.order) if moved[g] == positions)


@pytest.mark.parametrize(("wide", "narrow"), [("d4", "c4"), ("d4", "d2"), ("d8", "c4"), ("c8", "c2"), ("d1", "c1")])
def test_a_group_covers_another(wide: str, narrow: str) -> None:
    assert group(wide).covers(group(narrow))
    assert not group(narrow).covers(group(wide))


def test_groups_of_the_same_exact_elements_cover_each_other() -> None:
    assert group("c4").covers(group("c8"))
    assert not group("c8").covers(group("d1"))


def test_act_is_a_group_action(h: Group) -> None:
    x = torch.randn(2, 4, 4, h.order, 3)
    assert torch.equal(h.act(x, 0), x)
    for a in h.exact_elements:
        for b in h.exact_elements:
            assert torch.equal(h.act(h.act(x, b), a), h.act(x, int(h.cayley[a, b])))


@pytest.mark.parametrize("size", [3, 4])
def test_grid_action_turns_coordinates(h: Group, size: int) -> None:
    """The field f(p) = p becomes [g f](p) = g^-1 p, with x to the right and y upwards."""
    axis = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    coordinates = torch.stack(torch.meshgrid(axis, -axis, indexing="xy"))
    for g in h.exact_elements:
        matrix = torch.from_numpy(h.matrix(int(h.inverse[g])))
        expected = torch.einsum("ij,jyx->iyx", matrix, coordinates)
        assert torch.allclose(h.act_on_grid(coordinates, g), expected, atol=1e-12)


def test_grid_action_on_other_axes() -> None:
    x = torch.randn(2, 4, 5, 3)
    moved = group("d4").act_on_grid(x, 5, dims=(1, 2))
    assert torch.equal(moved.permute(0, 3, 1, 2), group("d4").act_on_grid(x.permute(0, 3, 1, 2), 5))


@pytest.mark.parametrize("name", ["c0", "d0", "x4", "c-1", "", "c", "4", "C4", "c4 ", "c04", "c4.0", None, 4])
def test_unknown_name(name: object) -> None:
    with raises("group"):
        group(name)  # type: ignore[arg-type]


def test_name_and_identity(h: Group) -> None:
    assert group(h.name) == h
    assert group(h) is h
    assert str(h) == h.name


@pytest.mark.parametrize(("name", "g"), [("c8", 1), ("d6", 1), ("c4", 4), ("c4", -1)])
def test_inexact_element(name: str, g: int) -> None:
    with raises("group.element_off_grid"):
        group(name).act_on_grid(torch.zeros(4, 4), g)


@pytest.mark.parametrize("g", [-1, 8])
def test_element_out_of_range(g: int) -> None:
    with raises("group.element"):
        group("d4").matrix(g)


@pytest.mark.parametrize("name", ["c65", "d100", "c100000", "c" + "9" * 5000])
def test_too_many_rotations(name: str) -> None:
    with raises("group.rotations"):
        group(name)
    assert group("c64").order == 64


def test_a_group_made_directly_is_bounded_too() -> None:
    for rotations in (0, 65):
        with raises("group.rotations"):
            Group(rotations)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("c1", "the identity only, 1 of 1 elements"),
        ("c3", "the identity only, 1 of 3 elements"),
        ("c4", "rotations by 90 degrees, 4 of 4 elements"),
        ("c6", "rotation by 180 degrees, 2 of 6 elements"),
        ("c8", "rotations by 90 degrees, 4 of 8 elements"),
        ("d3", "left-right reflection, 2 of 6 elements"),
        ("d5", "left-right reflection, 2 of 10 elements"),
        ("d6", "rotation by 180 degrees and left-right and up-down reflections, 4 of 12 elements"),
        ("d8", "rotations by 90 degrees and reflections, 8 of 16 elements"),
        ("d12", "rotations by 90 degrees and reflections, 8 of 24 elements"),
    ],
)
def test_exactness_in_words(name: str, words: str) -> None:
    h = group(name)
    assert h.exactness == words
    image = torch.arange(12.0).reshape(3, 4)
    seen = [h.act_on_grid(image, g) for g in h.exact_elements]
    shown = {"rotation by 180": image.flip((0, 1)), "left-right": image.flip(1), "up-down": image.flip(0)}
    shown |= {"rotations by 90": torch.rot90(image), " and reflections,": image.flip(1)}
    for word, moved in shown.items():
        assert (word not in words) or any(torch.equal(moved, other) for other in seen)
