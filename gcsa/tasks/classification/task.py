"""What train.py and gcsa evaluate do with the task of this package; see `gcsa.training.task`."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from gcsa._utils.errors import UserError
from gcsa._utils.paths import expanded
from gcsa._utils.validation import listed
from gcsa.evaluation.audit import invariance_error
from gcsa.evaluation.cost import count_flops
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.unlabelled import Unlabelled
from gcsa.tasks.classification.evaluate import AUDIT_IMAGES, draw_sample, evaluate, summarize
from gcsa.tasks.classification.module import METRICS, Classifier, build_metrics
from gcsa.tasks.classification.options import ClassificationOptions
from gcsa.tasks.classification.predict import with_features
from gcsa.tasks.classification.pretrained import load_pretrained, normalisation_of
from gcsa.tasks.classification.targets import Classes
from gcsa.tasks.classification.teacher import Teacher, TeacherOptions
from gcsa.tasks.ood import MOST_IMAGES, OODScorer
from gcsa.training.task import data_options, make_data, model_options, task_options
from gcsa.weights import read, save_classifier

TOGETHER = 32
"""Images that are looked at together: a batch of training may be large, and this runs on the CPU."""


class Task:
    """The task of data sets whose images have a class, several labels or numbers; see `Task`."""

    module = Classifier
    options = ClassificationOptions

    @property
    def monitored(self) -> dict[str, str]:
        """The metrics that are known by now: a module of `imports` may add some."""
        makers = {name: mode for kind in METRICS for name, (_, mode) in METRICS[kind].items()}
        return {f"val/{name}": mode for name, mode in makers.items()} | {"val/loss": "min"}

    def build_data(self, cfg: dict[str, Any]) -> Any:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options it refuses."""
        options = data_options(cfg)
        make = partial(make_data, partial(create_datamodule, options["name"]))
        data = make(
            {**options}
        )  # tells what is wrong with the data before weights are read, of which `normalisation` is
        if own := normalisation(cfg):
            data = make({**options, **own})
        task = ClassificationOptions.from_config(task_options(cfg))
        if task.teacher.sources:
            data.teach(find_teacher(task.teacher, data, Path(cfg["output_dir"])))
            if task.class_weights is not None:
                raise UserError(
                    "task.class_weights weighs labels, and a teacher answers in their place: leave one out",
                    "class_weights.teacher",
                )
        elif data.unlabelled is not None or isinstance(data, Unlabelled):
            raise UserError(
                "images without labels need a teacher, which says what they show: set task.teacher.source",
                "data.unlabelled_teacher",
            )
        if task.makes_encoder or isinstance(data, Unlabelled):
            if cfg["monitor"]["metric"] != "val/loss":
                raise UserError(
                    "no image has a label to measure by: set monitor.metric=val/loss monitor.mode=min",
                    "monitor.no_classes",
                )
            if cfg.get("test"):
                raise UserError("there are no labels to test by: set test=false", "test.no_labels")
        if task.makes_encoder:
            return data
        kind, metric = data.target.kind, cfg["monitor"]["metric"]
        if kind == Classes.kind:
            if data.num_classes < 2:
                raise UserError(
                    f"data={data.name} has one class, {data.class_names[0]}: there is nothing to tell apart",
                    "data.one_class",
                )
            if metric == "val/auroc" and data.num_classes != 2:
                raise UserError(
                    f"monitor.metric=val/auroc needs two classes, but {data.name} has {data.num_classes}",
                    "monitor.two_classes",
                )
        elif "rank" in (cfg.get("adapter") or {}):
            raise UserError(
                f"an adapter is for classes, and data.target is {kind}: take adapter=full, or train without one",
                "adapter.target",
            )
        known = {f"val/{name}" for name in build_metrics(data.num_classes, kind)} | {"val/loss"}
        if metric not in known and metric in self.monitored:
            raise UserError(
                f"monitor.metric={metric} is not measured for data.target={kind}: choose one of {listed(sorted(known))}",
                "monitor.target",
            )
        return data

    def build_module(self, cfg: dict[str, Any], data: Any) -> Classifier:
        """The classifier of `cfg`, sized for `data`; `img_size: auto` becomes the data's.

        Raises ValueError for arguments the model refuses and for an image size that would break its equivariance.
        """
        options = task_options(cfg)
        for key in ("consistency", "instance_loss"):
            if options.get(key) and cfg["data"].get("views") != 2:
                raise UserError(
                    f"task.{key}={options[key]} compares two views of each image: set data.views=2", "data.views"
                )
        model = model_options(cfg)
        pretrained = model.pop("pretrained", False)
        if model.get("img_size") == "auto":
            model["img_size"] = data.image_size
        optimizer = dict(cfg["optimizer"])
        classifier = Classifier(
            model=model,
            schedule=optimizer.pop("schedule"),
            optimizer=optimizer,
            num_classes=data.num_classes,
            in_chans=data.in_chans,
            options=options,
            teacher_width=0 if data.teacher is None else data.teacher.width,
            preprocessing=data.preprocessing,
        )
        if pretrained:
            load_pretrained(
                classifier.model, {**model, "num_classes": data.num_classes, "in_chans": data.in_chans}, pretrained
            )
        check_input_size = getattr(classifier.model, "check_input_size", None)
        if callable(check_input_size):
            check_input_size(data.image_size, data.image_size)
        return classifier

    def export(self, classifier: Classifier, data: Any, folder: Path) -> str:
        """Writes the weights into `folder`; returns how timm names them."""
        about = {"data": data.name, "group": str(getattr(classifier.model, "group", "c1"))}
        ood_scorer = None if classifier.options.makes_encoder else fit_ood_scorer(classifier.model, data)
        entry = None if ood_scorer is None else ood_scorer.entry()
        written = save_classifier(classifier.model, folder, about, ood_score=entry, **data.preprocessing)
        return f"local-dir:{written}"

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """Accuracy, calibration, rotations, shifts and cost of a classifier, see `gcsa.tasks.classification.evaluate.evaluate`."""
        return evaluate(config, output_dir)

    def count_flops(self, classifier: Classifier, data: Any) -> int:
        """FLOPs of one image."""
        return count_flops(classifier.model, torch.zeros(data.in_chans, data.image_size, data.image_size))

    def measure(
        self, classifier: Classifier, data: Any, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the best model reaches beyond the `scores` of the test loop, and lines for the screen."""
        if classifier.options.makes_encoder or not isinstance(data.target, Classes):
            error = invariance_error(classifier.model, draw_sample(data, "val").first(AUDIT_IMAGES))
            shown = {
                f"test {name}": f"{scores[f'test/{name}']:.4g}"
                for name in METRICS[data.target.kind]
                if f"test/{name}" in scores
            }
            return {"invariance_error": error}, shown | {"invariance error": f"{error:.1e}"}
        summary = summarize(classifier.model, data, output_dir)
        error = summary["invariance_error"]
        lines = {
            "test accuracy": f"{scores['test/accuracy']:.4f}",
            "invariance error": f"{error:.1e}",
            "figure": str(summary["figure"]),
        }
        return {"invariance_error": error}, lines


def find_teacher(options: TeacherOptions, data: Any, output_dir: Path) -> Teacher:
    """The teacher of a run in `output_dir`. Raises UserError for one that cannot teach these data, or that the run would write."""
    for source in options.sources:
        if (output_dir.resolve() / "weights") in (path := Path(source).resolve(), *path.parents):
            raise UserError(
                f"task.teacher.source={source} is where this run writes its own weights: set another output_dir",
                "teacher.own_weights",
            )
    if not isinstance(data.target, Classes):
        raise UserError(f"a teacher is for data.target=class, not {data.target.kind}", "teacher.target")
    file = expanded(options.answers) if options.answers is not None else output_dir / "teacher.safetensors"
    return Teacher(options, None if options.of == "features" else data.class_names, file)


def fit_ood_scorer(model: Any, data: Any) -> OODScorer | None:
    """The scorer of images that are unlike those of training, whose limit the validation images set; None for networks of others, and
    for too few images."""
    both = with_features(model)
    if both is None:
        return None
    weight, splits = next(model.parameters()), []
    with evaluation_mode(both):
        for split in ("train", "val"):
            batches = (part for images, _ in draw_sample(data, split, MOST_IMAGES) for part in images.split(TOGETHER))
            splits.append(torch.cat([both(part.to(weight)).float().cpu() for part in batches])[:, model.num_classes :])
    return OODScorer.fit(*splits)


def normalisation(cfg: dict[str, Any]) -> dict[str, Any]:
    """The mean and standard deviation of the weights that the run starts from, of timm or in `cfg["adapter"]["base"]`."""
    base = (cfg.get("adapter") or {}).get("base")
    if not isinstance(base, str):
        return normalisation_of(cfg["model"]["name"]) if cfg["model"].get("pretrained") else {}
    return {key: value for key, value in read(base).preprocessing.items() if key in ("mean", "std")}
