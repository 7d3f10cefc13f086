"""Embed images: `gcsa embed gcsa_pooled_small.pcam patches/ --output features.h5`.

The output has one row of features for each image, with its name. They stay the same when an image rotates or reflects by an
element of the model's group that maps the pixel grid onto itself. An .h5 file has the datasets `features` (N, D) and
`files`, with the weights' name and the normalisation as attributes; a .parquet file has the columns `file` and `features`,
and the same as metadata.

`gcsa embed gcsa_pooled_small.pcam slides/ --patches --output features/` embeds the patches of slides: a file for each (`gcsa.cli.patches`).

Exit codes: 0, all images; 1, some images could not be read, which are listed on stderr, and the others are in the file (no
file if there are none); 2, wrong arguments, before anything is read; 130, interrupted, with no file.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.cli import patches
from gcsa.cli.arguments import NETWORKS, add_hardware, add_images, add_symmetry, device, find_images, symmetrized
from gcsa.cli.batches import answer_all
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.running import running
from gcsa.images.folders import SLIDES, SUFFIXES, ZARR
from gcsa.integrations.networks import open_subject

FORMATS = (".parquet", ".h5")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa embed",
        description="Computes features of images that stay the same when the images rotate.",
        epilog="Exit code 1 if an image could not be read: it is listed on stderr, and the others are embedded. A file .pt or .pt2 "
        "and a function run the code that they hold.",
    )
    add_images(parser, "embedded", NETWORKS)
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="ends in .parquet or .h5; written whole or not at all. With --patches a folder",
    )
    patches.add_options(parser)
    add_symmetry(parser)
    add_hardware(parser)
    return parser.parse_intermixed_args(argv)


def _check_output(name: str, images: Sequence[Path]) -> None:
    suffix = Path(name).suffix
    if suffix not in FORMATS:
        raise UserError(f"--output {name} must end in {' or '.join(FORMATS)}")
    if suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:  # newer ones cannot be imported beside an older NumPy
            raise MissingExtraError(
                f"a .parquet file needs pyarrow ({one_line(error)}): pip install gcsa-vit[parquet], or name an .h5 file"
            ) from error
    target = check_writable(name)
    if any(path.resolve() == target for path in images):
        raise UserError(f"--output {name} is one of the images, and would be overwritten: name another file")


def _write(path: Path, features: Array, names: Sequence[str], about: dict[str, Any]) -> None:
    if path.suffix == ".h5":
        buffer = io.BytesIO()  # where a disk is full, HDF5's own writer ends the process
        with h5py.File(buffer, "w") as file:
            file["features"] = features
            file.create_dataset("files", data=list(names), dtype=h5py.string_dtype())
            file.attrs.update(about)
        path.write_bytes(buffer.getbuffer())
        return
    import pyarrow
    from pyarrow import parquet

    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(features.ravel()), features.shape[1])
    table = pyarrow.table({"file": pyarrow.array(names, pyarrow.string()), "features": column})
    parquet.write_table(table.replace_schema_metadata({key: json.dumps(value) for key, value in about.items()}), path)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(args.threads):
        patches.check_options(args)
        images = find_images(args.inputs, recursive=True, suffixes=(*SUFFIXES, *SLIDES, ZARR))
        if args.patches:
            patches.check_output(args.output, images)
        else:
            _check_output(args.output, images)
        heat = patches.heat_of(args)
        chosen = device(args.device)
        subject = open_subject(args.model, "embedding", adapter=args.adapter)
        network = symmetrized(subject.network, args, subject.group).to(chosen)
        if len(subject.group.exact_elements) == 1 and args.symmetry is None:
            print(f"{args.model} has no group of rotations: its features change when an image rotates", file=sys.stderr)
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for a name that cannot be printed
        prepare = subject.prepare
        about = {"weights": args.model, "size": prepare.size, "mean": prepare.mean, "std": prepare.std}
        about |= {} if args.adapter is None else {"adapter": args.adapter}
        about |= {} if args.symmetry is None else {"symmetry": f"{args.symmetry}, {args.group or 'd4'}"}
        about |= {} if args.rotations is None else {"rotations": args.rotations}
        if args.patches:
            failed = patches.embed(network, prepare, images, about, args, heat)
            tell_failed(failed, len(images), "embedded")
            return 1 if failed else 0
        rows, names, failed = answer_all(network, prepare, images, args.batch_size, "--patches embeds its patches")
        if names:
            features = np.concatenate(rows)
            with replacing(args.output) as part:
                _write(part, features, names, about)
            print(f"{args.output}: {len(names)} images, {features.shape[1]} features each")
        tell_failed(failed, len(images), "embedded")
    return 1 if failed else 0
