"""What saves memory changes nothing: gradients accumulated over parts of a batch, activations computed again."""

from pathlib import Path

import pytest
import torch

from tests.errors import raises
from tests.runs import TINY, composed, train
from tests.two_processes import record

from .test_distributed import SMALL, TWO, apart, weights

RUN = (*SMALL, TWO, "trainer.precision=64-true", "trainer.limit_val_batches=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A run in float64 with batches of 16, and its losses."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, record(composed(folder, *RUN, "data.batch_size=16"), folder)


def test_accumulated_gradients_make_the_same_steps(whole: tuple[Path, list[float]], tmp_path: Path) -> None:
    options = ("data.batch_size=4", "trainer.accumulate_grad_batches=4")
    losses = torch.tensor(record(composed(tmp_path, *RUN, *options), tmp_path), dtype=torch.float64)
    torch.testing.assert_close(losses.view(-1, 4).sum(1).tolist(), whole[1], rtol=0, atol=1e-10)
    for key in ("state_dict", "current_model_state"):
        assert apart(weights(whole[0], key), weights(tmp_path, key)) < 1e-10


def test_without_accumulation_they_are_others(whole: tuple[Path, list[float]], tmp_path: Path) -> None:
    """Negative control."""
    train(composed(tmp_path, *RUN, "data.batch_size=8"), tmp_path)
    assert apart(weights(whole[0]), weights(tmp_path)) > 1e-3


def test_checkpointed_activations_change_no_loss(whole: tuple[Path, list[float]], tmp_path: Path) -> None:
    forwards = []
    options = ("checkpoint_activations=true", "data.batch_size=16")
    with pytest.MonkeyPatch.context() as patch:
        from gcsa.layers.blocks import Block

        forward = Block.forward
        patch.setattr(Block, "forward", lambda *args: forwards.append(torch.is_grad_enabled()) or forward(*args))
        losses = record(composed(tmp_path, *RUN, *options), tmp_path)
    assert losses == pytest.approx(whole[1], abs=1e-10)
    assert apart(weights(whole[0]), weights(tmp_path)) < 1e-10
    assert forwards.count(True) == 2 * 2 * len(losses), "each of two blocks runs twice a step"


def test_models_that_cannot_checkpoint_are_named(tmp_path: Path) -> None:
    with raises("checkpoint_activations"):
        train(composed(tmp_path, *TINY[3:], "model=alexnet", "checkpoint_activations=true"), tmp_path)
