"""The character error rates of published recognisers on the test lines of several scripts. Rows of other recognisers stay.

python -m benchmarks.text.test_lines gcsa_ocr_tiny.print gcsa_ocr_tiny.french --scripts fr17_roman_print fr17_18_gallicorpora
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import gcsa
from benchmarks.learning.queue import ROOT
from gcsa._utils.atomic import write_json
from gcsa.data.storage import data_root
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import measure
from gcsa.training.results import git_commit, machine

RESULT = ROOT / "benchmarks/results/ocr/test_lines.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--scripts", nargs="+", required=True, help="folders in ocr_lines")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(RESULT.read_text())["rows"] if RESULT.is_file() else []
    about = {"commit": git_commit(), "machine": machine()}
    for script in args.scripts:
        lines = list_lines(data_root(None) / "ocr_lines" / script, ("test",))
        for name in args.models:
            row = {"model": name, "script": script, "lines": len(lines), **measure(gcsa.load(name), lines), **about}
            rows = [*(other for other in rows if (other["model"], other["script"]) != (name, script)), row]
            print(row, flush=True)
    print(write_json(RESULT, {"rows": sorted(rows, key=lambda row: (row["script"], -row["cer_any"]))}))


if __name__ == "__main__":
    main()
