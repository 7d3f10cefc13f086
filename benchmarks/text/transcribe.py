"""Lines a second from file to text: `python -m benchmarks.text.transcribe --threads 2 [--kraken /other/venv/bin/python]`.

256 training lines of fr17_roman_print, read by `gcsa.ocr.transcribe` in batches of 16 with random weights: images
decoded, resized, recognised, decoded greedily. Beside it, in a process of its own on the same files, kraken's default
recogniser through kraken's own `predict`, also in batches of 16 with random weights; it is larger, wants lines 120
pixels high and needs an environment of its own, because kraken pins its dependencies. Needs GCSA_DATA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import CPU, alternate, save
from gcsa.commands.memory import keep_freed_memory
from gcsa.data.files import data_root
from gcsa.ocr.data.charset import Charset
from gcsa.ocr.data.lines import list_lines
from gcsa.ocr.recognizers.ctc import CTCRecognizer
from gcsa.ocr.transcribe import find_lines, transcribe

SCRIPT, LINES, BATCH = "fr17_roman_print", 256, 16
SIDES = {
    "gcsa_ocr_tiny, upright": ("gcsa_ocr_tiny", {}, "upright"),
    "gcsa_ocr_tiny, any": ("gcsa_ocr_tiny", {}, "any"),
    "crnn, upright": ("crnn", {"upsample": 1}, "upright"),
}
KRAKEN = Path(__file__).parent / "transcribe_kraken.py"


def kraken(python: str | None, files: list[Path], classes: int, threads: int, repeats: int) -> dict[str, Any]:
    """What `transcribe_kraken.py` measures in the environment of `python`, or why it did not."""
    if python is None:
        return {"not measured": "--kraken was not given: it needs an environment of its own"}
    request = json.dumps(
        {"files": list(map(str, files)), "classes": classes, "batch": BATCH, "threads": threads, "repeats": repeats}
    )
    done = subprocess.run([python, str(KRAKEN)], input=request, capture_output=True, encoding="utf-8")
    if done.returncode:
        return {"not measured": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each side")
    parser.add_argument("--kraken", metavar="PYTHON", help="of an environment with kraken")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    torch.manual_seed(0)
    lines = list_lines(data_root(None) / "ocr_lines" / SCRIPT, ("train",))[:LINES]
    files = [line.image for line in lines]
    charset = Charset.from_texts(line.text for line in lines)
    models = {
        name: CTCRecognizer(charset.characters, encoder, **options).eval()
        for name, (encoder, options, _) in SIDES.items()
    }

    def run(name: str) -> None:
        transcripts = list(transcribe(models[name], find_lines(files), SIDES[name][2], batch_size=BATCH))
        assert all(transcript.reading is not None for transcript in transcripts)

    timings = alternate({name: partial(run, name) for name in SIDES}, args.repeats, warm_up=1)
    content: dict[str, Any] = {"lines": len(files), "batch": BATCH, "threads": args.threads}
    for name, times in timings.items():
        speed = len(files) / times["median_ms"] * 1e3
        parameters = sum(p.numel() for p in models[name].parameters())
        content[name] = {"parameters": parameters, **times, "lines_per_second": speed}
    content["kraken"] = kraken(args.kraken, files, len(charset), args.threads, args.repeats)
    save("transcribe", content, CPU)


if __name__ == "__main__":
    main()
