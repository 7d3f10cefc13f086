"""Puts both sets of French print into one folder with one convention, for `data.path=` of train.py.

    python -m benchmarks.text.french FOLDER [--ocr17 OCR17]

Images of lines are links; their texts are written anew: the apostrophe is ’ in both, as in fr17_roman_print. The validation and test lines of
each set stay in their splits. fr17_roman_print has 75 lines of each book of OCR17 (Gabay 2020, doi:10.5281/zenodo.3826894, CC-BY 4.0). With a clone of
https://github.com/e-ditiones/OCR17, all lines of its training books come instead, 22,248 for 2,100, and the 1,239 of the 16th, 18th and 19th
century, which OCR17 keeps to test with, are training lines too.
"""

import argparse
import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gcsa._utils.errors import UserError

SETS = ("fr17_roman_print", "fr17_18_gallicorpora")
OTHER_CENTURIES = ("XVI", "XVIII", "XIX")
SAME = str.maketrans({"'": "\u2019"})


def of_set(name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The images of a set and their rows in its manifest."""
    folder = (Path(os.environ["GCSA_DATA"]) / "ocr_lines" / name).resolve()
    with open(folder / "manifest.tsv", encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield folder / row["file"], row


def whole_books(lines: list[tuple[Path, dict[str, Any]]], ocr17: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """`lines`, and instead of the training lines all lines of their books and of other centuries in a clone of OCR17."""
    yield from ((image, row) for image, row in lines if row["split"] != "train")
    books = {Path(row["source_path"]).parent: row["document"] for _, row in lines if row["split"] == "train"}
    books |= {Path("Testing_data") / century: century for century in OTHER_CENTURIES}
    for book, document in sorted(books.items()):
        images = sorted((ocr17.resolve() / book).glob("*.png"))
        if not images:
            raise UserError(f"{ocr17} has no lines in {book}: name a clone of e-ditiones/OCR17", "ocr17")
        yield from ((image, {"split": "train", "document": document}) for image in images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ocr17", type=Path, help="a clone of e-ditiones/OCR17")
    args = parser.parse_args()
    sets = {name: list(of_set(name)) for name in SETS}
    if args.ocr17:
        sets["fr17_roman_print"] = list(whole_books(sets["fr17_roman_print"], args.ocr17))
    args.folder.mkdir(parents=True)
    rows = []
    for name, lines in sets.items():
        for number, (source, row) in enumerate(lines):
            image = args.folder / f"{name}_{number:05}.png"
            image.symlink_to(source)
            text = source.with_suffix(".gt.txt").read_text(encoding="utf-8")
            image.with_suffix(".gt.txt").write_text(text.translate(SAME), encoding="utf-8")
            rows.append((row["split"], image.name, f"{name}/{row['document']}"))
    with open(args.folder / "manifest.tsv", "w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
        writer.writerows([("split", "file", "document"), *rows])


if __name__ == "__main__":
    main()
