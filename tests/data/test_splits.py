import pytest
import torch

from gcsa.data.splits import check_split, hold_out, limited, stratified_order
from tests.errors import raises

LABELS = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[torch.randperm(100, generator=torch.manual_seed(0))]


@pytest.mark.parametrize("count", [10, 20, 50, 100])
def test_prefixes_are_balanced(count: int) -> None:
    order = stratified_order(LABELS, 0)
    assert sorted(order.tolist()) == list(range(100))
    found = torch.bincount(LABELS[order[:count]], minlength=3)
    assert (found - count * torch.tensor([0.6, 0.3, 0.1])).abs().max() <= 1


def test_order_depends_on_the_seed() -> None:
    assert torch.equal(stratified_order(LABELS, 1), stratified_order(LABELS, 1))
    assert not torch.equal(stratified_order(LABELS, 1), stratified_order(LABELS, 2))


def test_absent_classes_do_no_harm() -> None:
    assert sorted(stratified_order(torch.tensor([5, 5, 9]), 0).tolist()) == [0, 1, 2]


def test_hold_out_is_a_partition() -> None:
    kept, held = hold_out(LABELS, 0.2)
    assert torch.bincount(LABELS[held]).tolist() == [12, 6, 2]
    assert sorted(kept.tolist() + held.tolist()) == list(range(100))
    assert kept.tolist() == sorted(kept.tolist())


def test_limit_is_a_fraction_or_a_count() -> None:
    assert len(limited(LABELS, 1.0, 0)) == 100
    assert len(limited(LABELS, 0.25, 0)) == 25
    assert len(limited(LABELS, 1, 0)) == 1
    assert len(limited(LABELS, 1e-9, 0)) == 1
    with raises("limit_train.too_many"):
        limited(LABELS, 101, 0)


@pytest.mark.parametrize(
    ("images", "labels", "key"),
    [
        (torch.zeros(2, 1, 4, 4), torch.tensor([0, 3]), "split.label"),
        (torch.zeros(2, 1, 4, 4), torch.tensor([-1, 0]), "split.label"),
        (torch.zeros(3, 1, 4, 4), torch.tensor([0, 1]), "split.counts"),
        (torch.zeros(0, 1, 4, 4), torch.tensor([], dtype=torch.long), "split.counts"),
        (torch.tensor([0.0, float("nan")]).view(2, 1, 1, 1), torch.tensor([0, 1]), "split.not_finite"),
        (torch.tensor([float("inf"), 0.0]).view(2, 1, 1, 1), torch.tensor([0, 1]), "split.not_finite"),
        (torch.tensor([0.0, 255.0]).view(2, 1, 1, 1), torch.tensor([0, 1]), "split.range"),
    ],
)
def test_bad_data_are_named(images: torch.Tensor, labels: torch.Tensor, key: str) -> None:
    with raises(key):
        check_split(images, labels, 3, "file.x")
