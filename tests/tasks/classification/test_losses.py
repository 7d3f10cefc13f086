"""Losses, weights of classes, mixed images and balanced batches, against torch and torchvision."""

import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pytorch_lightning import Trainer
from torch.utils.data import DataLoader, TensorDataset
from torchvision.ops import sigmoid_focal_loss

from gcsa.data.loaders import EpochSampler
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.losses import balancing_weights, bce, cross_entropy, focal, info_nce, view_divergence
from gcsa.tasks.classification.module import Classifier
from gcsa.tasks.classification.targets import Classes
from tests.errors import raises
from tests.runs import TINY, composed, train

LOGITS = 3 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CONSTANT = {"name": "constant", "warmup": 0.0, "final": 0.0}
LABELS = torch.tensor([0, 1, 2, 1, 1, 0])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_values(weight: torch.Tensor | None) -> None:
    hard = Classes().wanted(LABELS, 3).double()
    torch.testing.assert_close(cross_entropy(LOGITS, hard, weight), F.cross_entropy(LOGITS, LABELS, weight))
    if weight is None:  # torch weighs what smoothing spreads, too, but divides by the weights of the labels alone
        soft = Classes().wanted(LABELS, 3, 0.1).double()
        torch.testing.assert_close(
            cross_entropy(LOGITS, soft, None), F.cross_entropy(LOGITS, LABELS, label_smoothing=0.1)
        )
    expected = F.binary_cross_entropy_with_logits(LOGITS, hard, weight)
    torch.testing.assert_close(bce(LOGITS, hard, weight), expected)


def test_focal_loss_of_two_classes_is_that_of_torchvision() -> None:
    targets = F.one_hot(LABELS.clamp(max=1), 2).double()
    expected = sigmoid_focal_loss(LOGITS[:, 1] - LOGITS[:, 0], targets[:, 1], alpha=-1, gamma=2, reduction="mean")
    torch.testing.assert_close(focal(LOGITS[:, :2], targets, None), expected)


def test_losses_of_two_views() -> None:
    """Nothing where the views agree; else the divergence of torch, and the cross-entropy of picking the other view."""
    same = LOGITS[:3].repeat(2, 1)
    assert view_divergence(same).item() == 0
    p, q = (part.log_softmax(1) for part in LOGITS.float().chunk(2))
    both = [F.kl_div(b, a, log_target=True, reduction="batchmean") for a, b in ((p, q), (q, p))]
    torch.testing.assert_close(view_divergence(LOGITS), both[0] + both[1])
    features = 5 * torch.eye(4)
    assert info_nce(features.repeat(2, 1)).item() == pytest.approx(math.log(1 + 3 * math.exp(-10)), rel=1e-3)
    assert info_nce(torch.cat([features, features.roll(1, 0)])).item() == pytest.approx(10, rel=1e-3)


def test_weights_that_balance() -> None:
    weights = balancing_weights(LABELS, 3)
    assert weights.tolist() == pytest.approx([1.0, 2 / 3, 2.0])
    assert weights[LABELS].mean().item() == pytest.approx(1)


def test_a_balanced_epoch_draws_every_class_as_often() -> None:
    labels = torch.tensor([0] * 900 + [1] * 100)
    weights = balancing_weights(labels, 2)[labels]
    drawn = [
        torch.tensor(
            [row for rows in EpochSampler(1000, 50, shuffle=True, seed=seed, weights=weights) for row in rows.rows]
        )
        for seed in (0, 0, 1)
    ]
    assert len(drawn[0]) == 1000
    assert 420 < int((labels[drawn[0]] == 1).sum()) < 580
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_run_with_all_of_them(tmp_path: Path) -> None:
    """Also that a resumed run mixes the same images: the last epoch is repeated bit for bit."""
    options = (
        *TINY,
        "task.loss=focal",
        "task.class_weights=auto",
        "task.mixup=0.2",
        "task.cutmix=1.0",
        "data.balance=true",
        "trainer.max_epochs=2",
        "optimizer/schedule=constant",
    )
    for name in ("whole", "resumed"):
        train(
            composed(tmp_path / name, *options, *(["trainer.max_epochs=1"] if name == "resumed" else [])),
            tmp_path / name,
        )
    train(composed(tmp_path / "resumed", *options, "ckpt_path=last"), tmp_path / "resumed")
    states = [torch.load(tmp_path / name / "checkpoints/last.ckpt", weights_only=True) for name in ("whole", "resumed")]
    assert states[0]["hyper_parameters"]["options"]["loss"] == "focal"
    assert all(torch.equal(tensor, states[1]["state_dict"][name]) for name, tensor in states[0]["state_dict"].items())


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ({"loss": "hinge"}, "loss"),
        ({"class_weights": [1, 2]}, "class_weights.count"),
        ({"class_weights": [1, -2]}, "class_weights"),
        ({"class_weights": "balanced"}, "class_weights"),
        ({"mixup": -1.0}, "mixup"),
        ({"cutmix": "yes"}, "cutmix"),
        ({"consistency": -1}, "consistency"),
        ({"instance_loss": 1, "mixup": 0.2}, "mixup.views"),
        ({"consistency": 1, "compile": True}, "compile.views"),
    ],
)
def test_wrong_values(option: dict[str, object], key: str) -> None:
    with raises(key):
        Classifier({"name": "test_efficientnet"}, {"opt": "adamw", "lr": 0.1}, {"name": "constant"}, 10, 1, option)  # type: ignore[arg-type]


def test_the_losses_of_views_join_that_of_the_classes() -> None:
    batch = torch.rand(8, 1, 32, 32), torch.arange(4).repeat(2) % 2
    found = {}
    for consistency, instance in ((0, 0), (1, 0), (0, 1), (2, 3)):
        torch.manual_seed(0)
        options = dict(consistency=consistency, instance_loss=instance)
        module = Classifier({"name": "gcsa_tiny"}, {"opt": "adamw", "lr": 0.1}, CONSTANT, 2, 1, options).eval()
        found[consistency, instance] = module.training_loss(batch)
    maps = module.model.forward_features(batch[0])
    unlike, apart = view_divergence(module.model.forward_head(maps)), info_nce(module.model.forward_head(maps, True))
    assert min(unlike, apart) > 0
    for (consistency, instance), loss in found.items():
        torch.testing.assert_close(loss, found[0, 0] + consistency * unlike + instance * apart)


def test_a_network_that_cannot_be_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Linear(2, 2)
    network.in_chans = network.num_features = network.num_classes = 2  # type: ignore[assignment]
    monkeypatch.setattr("gcsa.tasks.classification.module.create_model", lambda **_: network)
    with raises("model.features"):
        Classifier({"name": "own"}, {"opt": "adamw", "lr": 0.1}, CONSTANT, 2, 1, {"consistency": 1})


@pytest.mark.filterwarnings("ignore")
def test_weights_are_counted_in_data_modules_of_gcsa() -> None:
    loader = DataLoader(TensorDataset(torch.rand(8, 1, 32, 32), torch.arange(8) % 2), batch_size=4)
    for weights in ("auto", [1, 2]):
        module = Classifier(
            {"name": "test_efficientnet"}, {"opt": "adamw", "lr": 0.1}, CONSTANT, 2, 1, {"class_weights": weights}
        )
        trainer = Trainer(fast_dev_run=1, accelerator="cpu", logger=False, enable_progress_bar=False)
        with raises("class_weights.auto") if weights == "auto" else nullcontext():
            trainer.fit(module, loader)
    assert module.weights is not None
    assert module.weights.tolist() == [1, 2]


def test_balance_is_a_truth_value() -> None:
    with raises("balance", value="auto"):
        create_datamodule("digits", balance="auto")
