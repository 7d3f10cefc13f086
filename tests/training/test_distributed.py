"""Two processes train as one with the same global batch does: data parallel, sharded, with accumulated gradients."""

import contextlib
import copy
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from gcsa.training.distributed import members, shard
from tests.runs import composed, train
from tests.two_processes import record

ROOT = Path(__file__).parents[2]
SMALL = (
    "model=gcsa_tiny",
    "model.group=c4",
    "model.fields=8",
    "model.num_heads=2",
    "model.depth=2",
    "data.limit_train=64",
    "data.augment.degrees=0",
    "data.augment.translate=0",
    "data.augment.scale=[1,1]",
    "optimizer/schedule=constant",  # so that a run of one epoch is the first half of one of two
    "optimizer.schedule.warmup=0",
    "trainer.log_every_n_steps=1",
    "logger=csv",
    "test=false",
    "threads=1",
)
CPU = ("trainer.accelerator=cpu", "trainer.precision=32-true")
DDP = ("trainer=ddp_external", "trainer.devices=2", *CPU)
FSDP = ("trainer=fsdp2", *CPU, "callbacks=no_ema")
EPS = "+optimizer.eps=1e-4"
"""With AdamW's usual 1e-8, a gradient that is zero but for rounding makes steps of the full learning rate."""
ONE = "trainer.max_epochs=1"
TWO = "trainer.max_epochs=2"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def together(runs: list[tuple[Path, tuple[str, ...]]]) -> None:
    """Makes the runs in two processes, started as torchrun does; each has a port of its own, or one process could meet
    the other's last run."""
    shared = dict(WORLD_SIZE="2", MASTER_ADDR="localhost", TORCHELASTIC_RUN_ID="test", GROUP_RANK="0")
    command = [sys.executable, str(ROOT / "tests" / "two_processes.py")]
    ports = free_ports(len(runs))
    command.append(json.dumps([[str(path), port, more] for (path, more), port in zip(runs, ports, strict=True)]))
    processes = [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(600) for process in processes] == [0, 0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs: `one` and `one_plain` (no average) in this process, the others in two."""
    root, common = tmp_path_factory.mktemp("distributed"), (*SMALL, EPS)
    for name, more in (("one", ()), ("one_plain", ("callbacks=no_ema",))):
        losses = record(composed(root / name, *common, TWO, "data.batch_size=16", *more), root / name)
        (root / name / "losses-0.json").write_text(json.dumps(losses))
    half, quarter = "data.batch_size=8", "data.batch_size=4"
    together(
        [
            (root / "ddp", (*common, *DDP, TWO, half, "test=true")),
            (root / "ddp_accumulated", (*common, *DDP, TWO, quarter, "trainer.accumulate_grad_batches=2")),
            (root / "fsdp", (*common, *FSDP, TWO, half, "test=true")),
            (root / "fsdp_resumed", (*common, *FSDP, ONE, half)),
            (root / "fsdp_resumed", (*common, *FSDP, TWO, half, "ckpt_path=last")),
        ]
    )
    return root


def losses(folder: Path) -> Tensor:
    """The loss of every batch, of each process alone: (processes, batches)."""
    return torch.tensor([json.loads(file.read_text()) for file in sorted(folder.glob("losses-*.json"))])


def weights(folder: Path, key: str = "state_dict") -> dict[str, Tensor]:
    """What training ends with."""
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)[key]


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    assert first.keys() == second.keys()
    return max((first[name].double() - second[name].double()).abs().max().item() for name in first)


def logged(folder: Path) -> list[dict[str, float]]:
    """What the logger has of each epoch's training and validation."""
    rows = (folder / "csv/version_0/metrics.csv").read_text().splitlines()
    names = rows[0].split(",")
    found = [{k: float(v) for k, v in zip(names, row.split(","), strict=True) if v} for row in rows[1:]]
    return [row for row in found if "train/loss" in row or "val/loss" in row]


@pytest.mark.slow  # three processes that each import torch and train: a minute or two on two cores
class TestTwoProcesses:
    @pytest.mark.parametrize(("one", "two"), [("one", "ddp"), ("one_plain", "fsdp")])
    def test_losses_are_those_of_one_process_with_the_whole_batch(self, folders: Path, one: str, two: str) -> None:
        whole, shares = losses(folders / one), losses(folders / two)
        assert (whole.shape, shares.shape) == ((1, 8), (2, 8))
        assert (shares.mean(0) - whole[0]).abs().max() < 1e-5
        assert (shares - whole).abs().amax(1).min() > 1e-2, "each process has a share of its own"
        for mine, theirs in zip(logged(folders / one), logged(folders / two), strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)

    @pytest.mark.parametrize(("one", "two"), [("one", "ddp"), ("one_plain", "fsdp")])
    def test_weights_are_those_of_one_process(self, folders: Path, one: str, two: str) -> None:
        assert apart(weights(folders / one), weights(folders / two)) < 1e-5
        if two == "ddp":  # above are the averages
            key = "current_model_state"
            assert apart(weights(folders / one, key), weights(folders / two, key)) < 1e-5

    def test_accumulation_over_processes(self, folders: Path) -> None:
        parts = losses(folders / "ddp_accumulated")
        assert (parts.mean(0).view(-1, 2).sum(1) - losses(folders / "one")[0]).abs().max() < 1e-5
        assert apart(weights(folders / "one"), weights(folders / "ddp_accumulated")) < 1e-5

    def test_other_losses_are_found(self, folders: Path) -> None:
        """Negative control: without an average of weights other weights are stored."""
        assert apart(weights(folders / "one"), weights(folders / "fsdp")) > 1e-4

    def test_sharded_runs_resume(self, folders: Path) -> None:
        """The losses of the second epoch, with the weights and the optimizer's state of a checkpoint in one file."""
        resumed = losses(folders / "fsdp_resumed")
        assert (resumed - losses(folders / "fsdp")[:, 4:]).abs().max() < 1e-6
        assert apart(weights(folders / "fsdp"), weights(folders / "fsdp_resumed")) < 1e-6

    def test_the_first_process_reports(self, folders: Path) -> None:
        for name in ("ddp", "fsdp"):
            results = json.loads((folders / name / "results.json").read_text())
            assert results["best_step"] % 4 == 0
            assert 0 < results["results"]["invariance_error"] < 1e-5
            assert results["results"]["test/accuracy"] > 0
            assert (folders / name / "weights/model.safetensors").is_file()

    def test_another_basis_is_refused_on_resume(self, folders: Path) -> None:
        path = folders / "fsdp/checkpoints/last.ckpt"
        stored = torch.load(path, weights_only=True)
        fingerprint = next(name for name in stored["state_dict"] if name.endswith("_extra_state"))
        stored["state_dict"][fingerprint] += 1
        other = path.with_name("other.ckpt")
        torch.save(stored, other)
        with pytest.raises(ValueError, match="another kernel basis"):
            train(composed(folders / "fsdp", *SMALL, TWO, f"ckpt_path={other}"), folders / "fsdp")


@pytest.mark.slow  # two processes that each import torch
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_the_command_starts_its_processes(trainer: str, tmp_path: Path) -> None:
    more = ["data.batch_size=32", ONE, "callbacks=no_ema", "test=true", f"trainer={trainer}", *CPU]
    done = subprocess.run(
        [sys.executable, "train.py", *SMALL, *more, f"output_dir={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "results.json").read_text())["best_step"] == 1


def test_members_of_sequences() -> None:
    first, second, third = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
    nested = nn.Sequential(nn.Sequential(first, second), third)
    assert list(members(nested)) == [first, second, third]


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    torch.distributed.destroy_process_group()


def test_shards_give_the_same_scores_gradients_and_state(mesh: DeviceMesh) -> None:
    plain = timm.create_model("gcsa_linear_tiny", in_chans=1, depth=2)
    sharded, images = copy.deepcopy(plain), torch.randn(2, 1, 28, 28)
    shard(sharded, mesh)
    assert all(isinstance(parameter, DTensor) for parameter in sharded.parameters())
    assert not any(isinstance(buffer, DTensor) for buffer in sharded.buffers())
    logits = [model(images) for model in (plain, sharded)]
    torch.testing.assert_close(*logits)
    for each in logits:
        each.square().mean().backward()
    for mine, theirs in zip(plain.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad.full_tensor())
    state = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    assert apart(plain.state_dict(), state) == 0
    assert any(name.endswith("_extra_state") for name in state)


def test_without_a_mesh_nothing_is_sharded() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    shard(model, None)
    assert type(model[0].weight) is nn.Parameter
