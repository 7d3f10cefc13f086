"""benchmarks/learning: what a list of the queue names can run, what is kept of a run, and what is read of test sets."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from peft import get_peft_model
from PIL import Image

from benchmarks.learning import card, final, queue
from benchmarks.learning.queue import LISTS, Listed, collect, curve, read_list, work
from gcsa.adapters import lora_config
from gcsa.models.create import create_model
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.evaluate import measure
from gcsa.tasks.segmentation import Segmenter
from gcsa.testing import randomize
from gcsa.training.run import plain
from gcsa.weights import save_classifier
from tests.runs import composed

STAND_IN = """
import json, pathlib, sys
options = dict(argument.split("=", 1) for argument in sys.argv[1:])
folder = pathlib.Path(options["output_dir"].strip("'"))
(folder / "checkpoints").mkdir(exist_ok=True)
with open(folder / "arguments.txt", "a") as file:
    print(*sys.argv[1:], file=file)
if "ckpt_path" not in options:  # as if it were killed
    (folder / "checkpoints/last.ckpt").touch()
    sys.exit(143)
content = {"results": {"val/accuracy": 0.5}, "commit": "of the end", "config": {"data": {"path": "/somewhere/plankton"}}}
(folder / "results.json").write_text(json.dumps(content))
"""
"""A train.py that is stopped the first time and finishes when it is resumed."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository with a stand-in for train.py."""
    monkeypatch.setattr(queue, "ROOT", tmp_path)
    (tmp_path / "train.py").write_text(STAND_IN)
    return tmp_path


@cache
def create(options: str) -> None:
    """The network of a run, once, without its numbers: lists share most of theirs."""
    kwargs = json.loads(options)
    task = kwargs.pop("task", "classification")
    with torch.device("meta"):
        if task == "recognition":
            CTCRecognizer("ab", encoder=kwargs.pop("name"), **kwargs)
        else:
            Segmenter(**kwargs) if task == "segmentation" else create_model(**kwargs)


@pytest.mark.parametrize("name", LISTS)
def test_every_run_of_a_list_has_a_config_and_a_model(name: str, tmp_path: Path) -> None:
    runs = list(read_list(LISTS[name]))
    assert len({run.result for run in runs}) == len(runs) > 0
    for run in {run.name: run for run in runs}.values():  # seeds differ in nothing else
        config = plain(composed(tmp_path, *run.overrides), "output")
        # The runs of these are compared, or published, as they are.
        assert config["test"] is run.folder.startswith(
            ("performers/", "learning/nuclei", "learning/ocr_prints", "learning/ocr_french")
        )
        assert run.folder.endswith(f"/seed{config['seed']}")
        options = {key: value for key, value in config["model"].items() if value not in ("auto", None)}
        options.pop("pretrained", None)  # of the run, not of the network
        create(json.dumps(options))


def test_seeds_come_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(
        "{folder: a, seeds: [0, 3], common: [test=false], once: [two], runs: {one: [model=gcnn_tiny], two: []}}"
    )
    assert list(read_list(path)) == [
        Listed("a/seed0", "one", ("test=false", "model=gcnn_tiny", "seed=0")),
        Listed("a/seed0", "two", ("test=false", "seed=0")),
        Listed("a/seed3", "one", ("test=false", "model=gcnn_tiny", "seed=3")),
    ]


def test_lists_take_turns_by_seed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        path = root / f"{name}.yaml"
        path.write_text(f"{{folder: {name}, seeds: [9, 10], common: [], runs: {{run: []}}}}")
        monkeypatch.setitem(LISTS, name, path)
    monkeypatch.setattr(queue, "work", lambda run, threads: f"{run.folder} on {threads}")
    monkeypatch.setattr(sys, "argv", ["queue", "one", "two", "--threads", "3"])
    with pytest.raises(SystemExit, match="1"):  # as none of them has a result
        queue.main()
    order = ["one/seed9 on 3", "two/seed9 on 3", "one/seed10 on 3", "two/seed10 on 3"]
    assert capsys.readouterr().out.splitlines() == [f"{line} · 4 of 4 runs left" for line in order]


def test_what_is_left_and_how_long_it_takes(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three seeds of two runs, two of the first are done."""
    path = root / "digits.yaml"
    path.write_text('{folder: digits, seeds: [0, 1, 2], common: [], runs: {"a [1]": [], b: []}}')
    monkeypatch.setitem(LISTS, "digits", path)
    for seed, seconds in ((0, 100.0), (2, 200.0)):
        result = root / f"benchmarks/results/digits/seed{seed}/a [1].json"
        result.parent.mkdir(parents=True)
        result.write_text(json.dumps({"fit_seconds": seconds}))
    monkeypatch.setattr(sys, "argv", ["queue", "digits", "--left"])
    queue.main()
    *runs, last = capsys.readouterr().out.splitlines()
    assert runs == ["digits/seed0/b", "digits/seed1/a [1]", "digits/seed1/b", "digits/seed2/b"]
    assert last == "4 of 6 runs left, 1 of them 0:02:30 as with other seeds"


def test_a_stopped_run_is_resumed_and_a_finished_one_left(root: Path) -> None:
    run = Listed("trials/seed0", "a, b", ("model=x",))
    assert "stopped with status 143" in work(run, 1)
    assert not run.result.exists()
    assert "{'val/accuracy': 0.5}" in work(run, 1)
    assert work(run, 1).endswith("done before")
    first, second = (run.output / "arguments.txt").read_text().splitlines()
    assert first == f"model=x threads=1 output_dir='{run.output}'"
    assert second == f"{first} ckpt_path=last"


def test_what_is_kept_names_commits_and_no_path(root: Path) -> None:
    run = Listed("trials/seed0", "name", ())
    run.output.mkdir(parents=True)
    content = {"results": {}, "commit": "c", "config": {"data": {"root": "/at/home/data", "path": None}}}
    (run.output / "results.json").write_text(json.dumps(content))
    (run.output / "commits.txt").write_text("a\nb\nb\n")
    collect(run)
    kept = json.loads(run.result.read_text())
    assert kept["config"]["data"] == {"root": "data", "path": None}
    assert kept["commit"] == "a b"


def test_the_curve_goes_on_where_a_run_was_resumed(tmp_path: Path) -> None:
    def write(version: int, *lines: str) -> None:
        folder = tmp_path / f"csv/version_{version}"
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text("\n".join(["epoch,step,train/loss,val/loss,lr", *lines]))

    write(0, "0,9,,,0.1", "0,10,,0.5,", "0,10,0.625,,", "1,20,,0.4,")  # stopped behind the second validation
    write(10, "2,30,,0.2,", "2,30,0.25,,", "4,50,,0.1,")  # killed behind the validation: its loss was never written
    write(9, "1,20,,0.3,", "1,20,0.375,,", "3,40,0.125,,")  # an epoch without validation
    assert curve(tmp_path) == {"val/loss": [0.5, 0.3, 0.2], "train/loss": [0.625, 0.375, 0.25]}


def test_nothing_is_kept_of_validation_images_that_were_trained_on(root: Path) -> None:
    run = Listed("learning/seed0", "name", ())
    folder = run.output / "csv/version_0"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("epoch,train/loss,val/loss\n0,0.5,\n1,,0.25\n1,0.125,\n")
    both = {"train/loss": [0.125], "val/loss": [0.25]}  # of the second epoch, the only one that was validated
    for trained_on, kept in ((True, {"train/loss": [0.5, 0.125]}), (False, both)):
        content = {"results": {}, "config": {"data": {"train_on_val": trained_on}}}
        (run.output / "results.json").write_text(json.dumps(content))
        (run.output / "commits.txt").write_text("a\n")
        collect(run)
        assert json.loads(run.result.read_text())["curve"] == kept


@pytest.mark.parametrize("group", ["c4", "c1"])
def test_the_test_set_is_read_once(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(final, "ROOT", tmp_path)
    monkeypatch.setattr(final, "RESULTS", tmp_path / "benchmarks/results")
    monkeypatch.setattr(final, "TURNED_IMAGES", 40)
    model = randomize(timm.create_model("gcsa_tiny", group=group, num_classes=10, in_chans=1, fields=4, depth=1))
    save_classifier(model, tmp_path / "outputs/queue/learning/digits/seed0/a, rate 0.1/weights")
    result = tmp_path / "benchmarks/results/learning/digits/seed0/a, rate 0.1.json"
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"seed": 0, "config": {"data": {"name": "digits", "batch_size": 100, "root": None}}}))
    monkeypatch.setattr(sys, "argv", ["final", "digits", "a, rate 0.1", "--threads", str(torch.get_num_threads())])
    final.main()
    found = json.loads(result.read_text())["test"]
    assert found["images"] == 359
    assert round(found["accuracy"] * found["images"], 6).is_integer()
    assert 0 <= found["accuracy"] < 0.5
    assert len(found["wrong"]) == round(359 * (1 - found["accuracy"]))
    assert sum(found["reliability"]["images"]) == 359
    assert found["turns"]["images"] == 40
    assert found["changed_by_turns"] == 0 if group == "c4" else found["changed_by_turns"] > 0.1
    monkeypatch.setattr(final, "create_datamodule", pytest.fail)
    final.main()
    assert json.loads(result.read_text())["test"] == found


@pytest.mark.parametrize("adapter", [False, True])
def test_what_a_model_card_says_of_lines_is_measured(
    adapter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "data/ocr_lines/script"
    lines.mkdir(parents=True)
    rows = [("train", 1, "ab"), ("test", 2, "ba"), ("test", 3, "a")]
    (lines / "manifest.tsv").write_text(
        "\n".join(["split\tfile\tdocument\ttext", *(f"{split}\t{i}.png\tbook\t{text}" for split, i, text in rows)])
    )
    for _, i, text in rows:
        Image.fromarray(np.random.default_rng(i).integers(256, size=(40, 60), dtype="uint8")).save(lines / f"{i}.png")
        (lines / f"{i}.gt.txt").write_text(text)
    model = CTCRecognizer("ab", "gcsa_ocr_tiny", hidden=8, fields=4, depth=1, num_heads=1)
    name = "reader.script"
    model.save_pretrained(tmp_path / name)
    if adapter:
        name = "reader.script.other"
        model.extend("abc")
        get_peft_model(model, lora_config(model, 2)).save_pretrained(tmp_path / name)
        model.save_charset(tmp_path / name)
    monkeypatch.setenv("GCSA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(card, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(card, "list_weights", lambda: [name])
    monkeypatch.setattr(card, "list_models", lambda: ["reader.script"])
    monkeypatch.setattr(card, "published", lambda name: tmp_path / name)
    measured = []
    monkeypatch.setattr(
        card, "measure", lambda predictor, lines: measured.append(predictor.network) or measure(predictor, lines)
    )
    monkeypatch.setattr(sys, "argv", ["card", name, "script"])
    card.main()
    assert [model.charset.characters for model in measured] == ["abc" if adapter else "ab"]
    found = json.loads((tmp_path / f"results/{name}.json").read_text())
    assert (found["model"], found["data"], found["lines"]) == (name, "script", 2)
    rates = {"cer", "cer_interval", "wer", "cer_any", "orientation_found", "same_when_rotated"}
    assert found["results"].keys() >= rates
    assert (tmp_path / name / "mistakes.png").read_bytes().startswith(b"\x89PNG")
