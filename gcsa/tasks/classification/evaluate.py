"""The evaluation of a classifier: what is measured on a split, the table on the screen, and the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import published
from gcsa._utils.validation import check_bool, check_choice, check_int
from gcsa.data.loaders import BatchIndices, ImageSet
from gcsa.data.splits import strata, stratified_order
from gcsa.evaluation.audit import (
    StageError,
    group_of,
    invariance_error,
    invariance_errors,
    smooth_rotation_error,
    stage_errors,
)
from gcsa.evaluation.cost import Cost, images_per_second, measure_cost
from gcsa.evaluation.figures import (
    attention_figure,
    mistakes_figure,
    polar_figure,
    reliability_figure,
    save,
    shift_figure,
)
from gcsa.evaluation.metrics import Mistake, Reliability, Scores, predict, reliability, score, worst_mistakes
from gcsa.evaluation.poses import EXACT
from gcsa.evaluation.rotations import ANGLES, Curve, RotatedCopies, rotation_curve, shift_curve
from gcsa.groups import group as make_group
from gcsa.models.create import check_name, create_model
from gcsa.models.folding import fold
from gcsa.models.pose import symmetrize
from gcsa.symmetry import SymmetryOptions
from gcsa.tasks import load
from gcsa.tasks.classification.columns import AUDIT_IMAGES, add_cost, measure_columns, table as column_table
from gcsa.tasks.classification.data import GCSADataModule, create_datamodule
from gcsa.tasks.classification.targets import Classes
from gcsa.tasks.evaluating import check_config, chosen_device
from gcsa.training.task import data_options

SPLITS = {"test": "test", "val": "validate", "train": "fit"}
"""What can be measured on, and the stage of `GCSADataModule.setup` that reads it."""
RESULT = "evaluation.json"


@dataclass(frozen=True)
class Sample:
    """Iterates over batches (images float32 (B, C, H, W), labels int64 (B,)) of `rows` of `images`."""

    images: ImageSet
    rows: Tensor
    batch_size: int

    def __len__(self) -> int:
        """Number of images."""
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in self.rows.split(self.batch_size):
            yield self.images[BatchIndices(rows.tolist(), ())]

    def pick(self, chosen: Sequence[int]) -> Tensor:
        """The images (len(chosen), C, H, W) of these numbers, at least one."""
        return self.images[BatchIndices(self.rows[list(chosen)].tolist(), ())][0]

    def first(self, count: int) -> Tensor:
        """The first `count` images (count, C, H, W), or all of them."""
        return self.pick(range(min(count, len(self))))


def draw_sample(datamodule: GCSADataModule, split: str, limit: int | None = None) -> Sample:
    """`limit` images (None: all) of the split "test", "val" or "train", balanced over the classes and not augmented.

    The same in every run; reads no other split. Raises UserError for another split or a limit below 1.
    """
    check_choice("split", split, SPLITS)
    if limit is not None:
        check_int("limit", limit, 1)
    datamodule.setup(SPLITS[split])
    images = datamodule.images(split)
    balanced = strata(images.labels)
    rows = torch.arange(len(images)) if limit is None else stratified_order(balanced, 0)[:limit].sort().values
    return Sample(images, rows, datamodule.batch_size)


@dataclass(frozen=True)
class Report:
    """The result of `measure`; the class or function of each entry explains it. `averaged` are the scores of `copies`
    `RotatedCopies`, None for one."""

    scores: Scores
    copies: int
    averaged: Scores | None
    reliability: Reliability
    mistakes: list[Mistake]
    rotation: Curve
    shift_x: Curve
    shift_y: Curve
    invariance: dict[str, float]
    smooth_rotation_45: float
    stages: list[StageError]
    cost: Cost


def measure(
    model: nn.Module,
    datamodule: GCSADataModule,
    split: str = "test",
    limit: int | None = None,
    curve_images: int = 1000,
    cyclic: bool = False,
    copies: int = 1,
) -> Report:
    """Measures a timm model on `limit` images (None: all) of a split.

    `curve_images` of them rotate and shift; with `copies` above 1, the mean over rotated copies is scored too. Works on
    the model's device and leaves the model as it was; scores, curves and speed are of the folded model.

    Raises:
        UserError: an unknown split, numbers of images below 1, scores that are not finite, an adapter that is not
            merged; what `datamodule.setup` raises for missing or damaged data.
    """
    folded = fold(model)
    sample = draw_sample(datamodule, split, limit)
    curves = draw_sample(datamodule, split, min(curve_images, len(sample)))
    audit = curves.first(AUDIT_IMAGES)
    logits, labels = predict(folded, sample)
    invariance = invariance_errors(model, audit)
    rotated = RotatedCopies(folded, copies, invariant=invariance.get("90 deg", 1.0) < EXACT)
    averaged = score(*predict(rotated, sample)) if copies > 1 else None
    return Report(
        scores=score(logits, labels),
        copies=copies,
        averaged=averaged,
        reliability=reliability(logits, labels),
        mistakes=worst_mistakes(logits, labels),
        rotation=rotation_curve(folded, curves),
        shift_x=shift_curve(folded, curves, "x", cyclic),
        shift_y=shift_curve(folded, curves, "y", cyclic),
        invariance=invariance,
        smooth_rotation_45=smooth_rotation_error(model, datamodule.in_chans, datamodule.image_size),
        stages=stage_errors(model, audit),
        cost=measure_cost(model, sample.first(datamodule.batch_size)),
    )


def summarize(
    model: nn.Module, datamodule: GCSADataModule, output_dir: str | Path, seconds: float = 30.0
) -> dict[str, Any]:
    """Invariance error and polar figure on the validation set, or on as many of its images as take about `seconds`, but at
    least 64.

    Returns `invariance_error`, a float, and `figure`, the path of rotation.png in `output_dir`. Raises OSError where
    that cannot be written.
    """
    images = draw_sample(datamodule, "val").first(AUDIT_IMAGES)
    count = int(images_per_second(model, images, repeats=3) * seconds / len(ANGLES))
    curve = rotation_curve(model, draw_sample(datamodule, "val", max(64, count)))
    figure = polar_figure({f"{curve.images} validation images": curve})
    path = save(figure, Path(output_dir) / "rotation.png")
    return {"invariance_error": invariance_error(model, images), "figure": path}


def evaluate(config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
    """Measures `config["model"]` on `config["data"]`, prints the table, writes PNG figures into `output_dir`.

    Returns the results as JSON-ready values. Raises UserError or FileNotFoundError, before any data is read, for a
    configuration, a model or an overlay that cannot work.
    """
    check_config(
        config, SPLITS, options=("adapter", "symmetry", "symmetry_group", "curve_images", "cyclic", "copies", "overlay")
    )
    check_int("curve_images", config["curve_images"])
    check_int("copies", config["copies"], 1, 360)
    check_bool("cyclic", config["cyclic"])
    overlay = [read_curve(folder) for folder in config["overlay"]]
    torch.manual_seed(config["seed"])
    create_datamodule(
        **data_options(config)
    ).prepare_data()  # tells what is wrong with the data before weights are read
    model, data, trained = model_and_data(str(config["model"]), data_options(config), config["adapter"])
    model = _symmetrized(model, config).to(chosen_device(config))
    label = str(config["label"] or getattr(model, "pretrained_cfg", {}).get("architecture", config["model"]))
    labels = [label, *(name for name, _ in overlay)]
    if twice := [name for name in labels if labels.count(name) > 1]:
        raise UserError(
            f"two curves of one figure are called {twice[0]}: set another label= in one of the evaluations",
            "evaluation.label",
        )

    if not isinstance(data.target, Classes) and (config["copies"] > 1 or overlay):
        raise UserError(
            f"copies and overlay are for classes, and data={data.name} has target={data.target.kind}: leave them out",
            "evaluation.target",
        )
    data.prepare_data()
    print(f"evaluating {label} on the {config['split']} split of {data.name}", file=sys.stderr, flush=True)
    sample = draw_sample(data, config["split"], config["limit"])
    heading = f"{label} on {data.name}, {config['split']} split"
    about = {
        "model": str(config["model"]),
        "label": label,
        "trained": trained,
        "data": data.name,
        "split": config["split"],
    }
    if not isinstance(data.target, Classes):
        columns = measure_columns(model, sample, data.target, data.class_names, sample.first(data.batch_size))
        Console().print(column_table(columns, heading, trained))
        return about | asdict(columns)
    options = {key: config[key] for key in ("split", "limit", "curve_images", "cyclic", "copies")}
    report = measure(model, data, **options)
    shifts = {"x (to the right)": report.shift_x, "y (down)": report.shift_y}
    figures = {
        "rotation": polar_figure({label: report.rotation, **dict(overlay)}),
        "calibration": reliability_figure({label: report.reliability}, "Probability and accuracy of answers"),
        "shifts": shift_figure(shifts, f"{label} when the images shift"),
        "attention": attention_figure(model, draw_sample(data, config["split"], 1).first(1)[0]),
    }
    if report.mistakes:
        mean, std = (torch.tensor(values)[:, None, None] for values in (data.mean, data.std))
        images = sample.pick([mistake.image for mistake in report.mistakes]) * std + mean
        title = f"The worst mistakes of {label}"
        figures["mistakes"] = mistakes_figure(images, report.mistakes, data.class_names, title)
    paths = {key: str(save(figure, output_dir / f"{key}.png")) for key, figure in figures.items() if figure}
    console = Console()
    console.print(table(report, model, heading, trained))
    console.print("\n".join(paths.values()), highlight=False, soft_wrap=True)
    if "attention" not in paths:
        console.print("attention maps: not available for this model")
    return about | asdict(report) | {"figures": paths}


def _symmetrized(model: nn.Module, config: dict[str, Any]) -> nn.Module:
    """`model` as `symmetry` and `symmetry_group` say. Raises UserError where they do not fit it."""
    if config["symmetry"] is None and config["symmetry_group"] is None:
        return model
    options = SymmetryOptions(symmetry=config["symmetry"], symmetry_group=config["symmetry_group"])
    options.check_needed(config["model"], make_group(getattr(model, "group", "c1")))
    check_choice(
        "symmetry", options.symmetry, ("averaged", "canonical")
    )  # a chooser that has learned is in the weights
    return symmetrize(model, config["symmetry"], str(options.group))


def read_curve(folder: str) -> tuple[str, Curve]:
    """Label and rotation curve of an earlier evaluation in `folder`.

    Raises FileNotFoundError if there is none and UserError if it is damaged.
    """
    path = Path(folder) / RESULT
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path} to overlay: name the output_dir of an earlier evaluation")
    try:
        content = json.loads(path.read_text())
        return content["label"], Curve(**content["rotation"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}): evaluate that model again", "curve.damaged"
        ) from error


def model_and_data(
    source: str, options: dict[str, Any], adapter: str | None = None
) -> tuple[nn.Module, GCSADataModule, bool]:
    """The timm model that `source` names, the data module of `options`, and whether the model is trained.

    `source` is anything that `gcsa.load` takes: the data module then prepares images as the weights say. Or it is another
    name in timm, for random weights of the sizes of the data.

    Raises:
        FileNotFoundError: a missing file.
        UserError: an unknown name, a damaged file, and a model, an image size or class names that do not fit the data.
    """
    folder = source.startswith(("local-dir:", "hf-hub:")) or Path(source).is_dir()
    if not (folder or source.endswith(".ckpt") or published(source)):
        if adapter is not None:
            raise UserError(
                f"adapter={adapter} needs trained weights, but {source} is random: name them by model=",
                "adapter.random",
            )
        data = create_datamodule(**options)
        return random_model(source, data), data, False
    predictor: Any = load(source, adapter, task="classification")
    prepare, names = predictor.preprocess, predictor.class_names
    # Of images of any shape, the weights also say how they become squares, and of which size and channels.
    own = {"pad": prepare.pad, "image_size": prepare.size, "in_chans": len(prepare.mean)}
    own = {key: value for key, value in own.items() if key in options}
    data = create_datamodule(**{**options, "mean": prepare.mean, "std": prepare.std, **own})
    if data.image_size != prepare.size:
        raise UserError(
            f"{source} was trained on images of {prepare.size} x {prepare.size} and data={data.name} has {data.image_size} "
            f"x {data.image_size}: set data.image_size={prepare.size}, or choose other data",
            "data.image_size",
        )
    if predictor.target.kind != data.target.kind:
        raise UserError(
            f"{source} was trained for target={predictor.target.kind} and data={data.name} has target={data.target.kind}: set "
            f"data.target={predictor.target.kind}",
            "data.target",
        )
    data.target = predictor.target  # with its scale
    if names != tuple(data.class_names):
        raise UserError(
            f"{source} has the {len(names)} classes {_listed(names)} and data={data.name} the {len(data.class_names)} "
            f"{_listed(data.class_names)}: name the classes alike, or choose the data that it was trained on",
            "data.class_names",
        )
    return predictor.network, data, True


def random_model(name: str, data: GCSADataModule) -> nn.Module:
    """The model that timm calls `name`, with random weights, for `data`. Raises UserError for an unknown name, and for a
    model that does not take the images."""
    fixed = getattr(timm.get_pretrained_cfg(check_name(name)), "fixed_input_size", False)
    sizes = {"img_size": data.image_size} if fixed else {}
    model = create_model(name, num_classes=data.num_classes, in_chans=data.in_chans, **sizes).eval()
    shape = (data.in_chans, data.image_size, data.image_size)
    try:
        with torch.no_grad():
            model(torch.zeros(1, *shape))
    except UserError:
        raise
    except (RuntimeError, AssertionError, ValueError) as error:
        images = " x ".join(map(str, shape))
        raise UserError(
            f"{name} does not take the {images} images of data={data.name}: {one_line(error)}", "model.data"
        ) from error
    return model


def table(report: Report, model: nn.Module, title: str, trained: bool) -> Table:
    """The report on one screen; the last column holds the errors for smooth images rotated by 45 degrees."""
    group, kind = group_of(model)
    screen = Table(title=title)
    screen.add_column("measure")
    screen.add_column("value", justify="right", no_wrap=True)
    screen.add_column("at 45\N{DEGREE SIGN}", justify="right", no_wrap=True)
    if not trained:
        screen.add_row("[bold red]weights", "[bold red]untrained: random", end_section=True)
    scores, rotation = report.scores, report.rotation
    screen.add_row(f"accuracy, {scores.images} images [95 %]", _with_interval(scores))
    if report.averaged is not None:
        screen.add_row(f"  of the mean over {report.copies} rotated copies", _with_interval(report.averaged))
    if scores.auroc is not None:
        screen.add_row("AUROC", f"{scores.auroc:.4f}")
    screen.add_row("expected calibration error", f"{scores.calibration_error:.4f}", end_section=True)
    worst = min(range(len(rotation.positions)), key=rotation.accuracy.__getitem__)
    mean = sum(rotation.accuracy) / len(rotation.accuracy)
    screen.add_row(f"all rotations, {rotation.images} images: mean accuracy", f"{mean:.2%}")
    position = f"{rotation.positions[worst]:g}\N{DEGREE SIGN}"
    screen.add_row("  worst accuracy", f"{rotation.accuracy[worst]:.2%} at {position}")
    screen.add_row("  largest logit change", f"{max(rotation.logit_change):.1e}")
    for axis, curve in (("x", report.shift_x), ("y", report.shift_y)):
        screen.add_row(f"shifts to {max(curve.positions)} px in {axis}: worst accuracy", f"{min(curve.accuracy):.2%}")
    screen.add_section()
    elements = f"exact elements of {group.name}" if getattr(model, "group", None) == group else "quarter rotations"
    exact, at_45 = f"{max(report.invariance.values()):.1e}", f"{report.smooth_rotation_45:.1e}"
    screen.add_row(f"invariance error, {elements}", exact, at_45, end_section=True)
    screen.add_row("equivariance error of features" + ("" if kind == "regular" else " as scalar fields"))
    for stage in report.stages:
        at_45 = "" if stage.at_45 is None else f"{stage.at_45:.1e}"
        screen.add_row(f"  stage {stage.stage} ({' x '.join(map(str, stage.shape))})", f"{stage.exact:.1e}", at_45)
    screen.add_section()
    add_cost(screen, report.cost)
    return screen


def _with_interval(scores: Scores) -> str:
    low, high = scores.interval
    return f"{scores.accuracy:.2%} [{low:.2%}, {high:.2%}]"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
