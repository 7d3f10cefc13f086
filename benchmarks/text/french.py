"""Puts both sets of French print into one folder with one convention, for `data.path=` of train.py.

    python -m benchmarks.text.french FOLDER

Lines are links to those of `$GCSA_DATA/ocr_lines`; their texts are written anew: the apostrophe is ’ in both, as in
fr17_roman_print. The validation and test lines of each set stay in their splits.
"""

import argparse
import csv
import os
from pathlib import Path

SETS = ("fr17_roman_print", "fr17_18_gallicorpora")
SAME = str.maketrans({"'": "\u2019"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True)
    rows = []
    for name in SETS:
        source = (Path(os.environ["GCSA_DATA"]) / "ocr_lines" / name).resolve()
        with open(source / "manifest.tsv", encoding="utf-8", newline="") as table:
            lines = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
        for line in lines:
            image = folder / f"{name}_{line['file']}"
            image.symlink_to(source / line["file"])
            text = (source / line["file"]).with_suffix(".gt.txt").read_text(encoding="utf-8")
            image.with_suffix(".gt.txt").write_text(text.translate(SAME), encoding="utf-8")
            rows.append((line["split"], image.name, f"{name}/{line['document']}"))
    with open(folder / "manifest.tsv", "w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
        writer.writerows([("split", "file", "document"), *rows])


if __name__ == "__main__":
    main()
