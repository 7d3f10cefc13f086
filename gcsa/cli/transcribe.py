"""Read text: `gcsa transcribe gcsa_ocr_tiny.fr17 page.jpg lines/ page.xml > text.txt`.

Text is written without file names, as kraken and tesseract write it: a line of output for every line of input, empty where that
could not be read. JSON is an object a line, with "error" instead of "text" there. PAGE-XML, ALTO and hOCR also hold the positions
of lines and words, in one file a page, and so does PDF, which shows the page; as PAGE-XML or ALTO, an XML file that is read comes back with the text in it. All output is
UTF-8.

A page is written as soon as it is read. In a folder each has a file of its own; a run that was stopped goes on by the same
command.

Exit codes: 0, all read; 1, something could not be read, listed on stderr; 2, wrong arguments, before anything is read;
130, interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gcsa._utils.errors import visible
from gcsa._utils.importing import check_peft
from gcsa._utils.memory import keep_compiled_kernels
from gcsa._utils.published import ADAPTER_CONFIG, published
from gcsa.cli.arguments import add_hardware, add_run, check_exists, count, device
from gcsa.cli.errors import Parser
from gcsa.cli.output import SCREEN, part_of, written
from gcsa.cli.running import check_run, compute_on, how, mark, running, settings
from gcsa.tasks.recognition.choices import FINDERS, FORMATS, FORMS, ORIENTATIONS, PAGE_FORMATS, is_folder

LEDGER = "gcsa_transcribe.ledger"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa transcribe",
        usage="%(prog)s [options] MODEL [ADAPTER] IMAGES...",
        description="Reads pages and text lines.",
        epilog="Exit code 1 if something could not be read: it is listed on stderr, everything else is transcribed.",
    )
    parser.add_argument("model", metavar="MODEL", help="published weights, a folder of weights, or a .ckpt of train.py")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="IMAGES",
        help=f"images of lines or pages, PAGE-XML or ALTO files, and folders of these; the first may be an adapter, a folder with {ADAPTER_CONFIG}",
    )
    parser.add_argument(
        "--adapter", metavar="FOLDER", help="adapter that is added to the weights: a folder or a published name"
    )
    parser.add_argument(
        "--orientation",
        choices=ORIENTATIONS,
        default="any",
        help="any: lines and pages may be rotated by any multiple of 90 degrees (default; an encoder without these rotations reads a line in "
        "a pass for each); upright: none is rotated, which is faster",
    )
    parser.add_argument(
        "--lines",
        choices=FINDERS,
        default=FINDERS[0],
        help="what finds the lines on images of pages: the text detector of PP-OCRv6 (default), or kraken's segmentation (extra kraken)",
    )
    parser.add_argument(
        "--beams", type=count(1000), default=1, help="beams of the search (default 1, which is greedy and fastest)"
    )
    parser.add_argument(
        "--batch-size",
        type=count(10_000),
        default=16,
        metavar="LINES",
        help="lines that are read together (default 16)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="format of the text (default text); json: an object for each line, with words, confidence and orientation; page, alto: XML of pages; such a file comes back with "
        "the text in it; hocr: of pages; pdf: searchable, the image of a page with invisible text",
    )
    parser.add_argument(
        "--normalize",
        type=_forms,
        metavar="FORM[,FORM...]",
        help="forms of the text: NFC (default) or NFD, letters and accents apart; ligatures, as letters; long-s, as s; words, whole that a hyphen divides "
        "at the end of a line; modern, these three; apostrophes, all as '; hyphens, all as -; spaces, none before a sign of punctuation",
    )
    parser.add_argument(
        "--output",
        default="-",
        metavar="FILE",
        help="file to write, whole or not at all; - is stdout (default). For a folder, or a name with a / at its end: a file in it for each "
        "page, which is written as soon as the page is read",
    )
    parser.add_argument(
        "--any-image", action="store_true", help="let PAGE and ALTO files name images outside of their folder"
    )
    parser.add_argument(
        "--precision",
        choices=("32", "bf16"),
        default="32",
        help="precision of the numbers; bf16 is faster on processors with AMX, and reads one line in fifty differently",
    )
    add_run(parser)
    add_hardware(parser)
    args = parser.parse_intermixed_args(argv)
    first = published(args.inputs[0]) or Path(args.inputs[0])
    args.weights = args.model
    if args.adapter is not None:
        args.weights += f" and the adapter {args.adapter}"
        args.adapter = published(args.adapter) or args.adapter
    elif (first / ADAPTER_CONFIG).is_file():
        args.weights += f" and the adapter {args.inputs[0]}"
        args.adapter = first
        if not args.inputs[1:]:
            parser.error("nothing to read: give images behind the adapter")
        del args.inputs[0]
    return args


def _forms(text: str) -> str | None:
    """The forms of a list, always in one order, since a run is told from others by them; None where they change nothing."""
    names = text.split(",")
    if unknown := [name for name in names if name not in FORMS]:
        raise argparse.ArgumentTypeError(f"unknown form {unknown[0]!r}: choose from {', '.join(FORMS)}")
    if {"NFC", "NFD"} <= {*names}:
        raise argparse.ArgumentTypeError("NFC and NFD exclude each other: choose one")
    return ",".join(name for name in FORMS if name in names and name != "NFC") or None


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    as_pages = args.format in PAGE_FORMATS
    with running() as stack:
        for name in args.inputs:
            check_exists(name, "line images, PAGE-XML or ALTO files, or folders of them")
        check_run(args, map(Path, args.inputs))
        if args.adapter is not None:
            check_peft()
        shown = args.output != SCREEN or not sys.stdout.isatty()  # the bar would mix with text on the same terminal
        going = how(stack, args, _work, shown)
        from gcsa.batch import Run
        from gcsa.tasks.recognition.folder import Told
        from gcsa.tasks.recognition.pages.inputs import find_sources, images_left_out
        from gcsa.tasks.recognition.pages.layout import finder_of
        from gcsa.tasks.recognition.pages.output import check_output, check_pages

        sources = find_sources(args.inputs)
        finder_of(args.lines, sources)  # which must be installed
        if as_pages:
            check_pages(sources, args.format, args.output, args.beams)
        if args.output != SCREEN:
            check_output(args.inputs, sources, args.format, args.output)
        work = _work(args)
        if left_out := images_left_out(args.inputs):
            names = visible(", ".join(map(str, left_out)))
            print(
                f"{len(left_out)} files beside XML pages are named by none of these, and are left out: {names}; name a file to read it",
                file=sys.stderr,
            )
        in_folder = is_folder(args.output)
        ledger = Path(args.output) / LEDGER if in_folder else part_of(args.output)
        with (
            Run(sources, work, ledger, going, in_folder=in_folder) as run,
            written(SCREEN) if args.output == SCREEN else nullcontext(None) as stream,
        ):
            told = Told(work.wanted, stream)
            outcome = run.do(told.add)
            if not (in_folder or as_pages or stream is not None):
                with written(args.output) as file:
                    file.writelines(result.values.get("text") or "\n" for _, result in run.results())
        told.tell(len(sources))
        return outcome.tell("read")


def _work(args: argparse.Namespace) -> Any:
    """What is done with a page or a line, in this process or another."""
    from gcsa.tasks import load
    from gcsa.tasks.recognition.folder import ReadWork, Wanted

    keep_compiled_kernels()
    compute_on(args.threads)
    predictor: Any = load(args.model, args.adapter, "recognition").to(device(args.device))
    mark(args, predictor)
    wanted = Wanted(
        args.orientation,
        args.beams,
        args.batch_size,
        args.format,
        tuple(args.normalize.split(",")) if args.normalize else (),
        args.output,
        args.weights,
        args.any_image,
        args.precision == "bf16",
        args.lines,
    )
    return ReadWork(predictor.fold(), wanted, settings(args), apart=bool(args.workers or args.scheduler))
