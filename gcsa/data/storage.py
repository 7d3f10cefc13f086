"""Data on disk: the root, downloads that are whole or absent, and errors about missing and damaged files."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.paths import expanded
from gcsa._utils.program import train_command

log = logging.getLogger(__name__)


def data_root(root: str | os.PathLike[str] | None) -> Path:
    """The data folder: the argument, else the environment variable GCSA_DATA, else ./data."""
    return expanded(root or os.environ.get("GCSA_DATA") or "data")


def fetch_command(name: str) -> str:
    """What to type to download the data set called `name`."""
    return train_command(f"data={name}", "data.download=true")


def missing(path: Path, name: str, size: str) -> FileNotFoundError:
    """The error for a data set that is not on this machine."""
    return FileNotFoundError(
        f"{path} not found: run `{fetch_command(name)}` to download it ({size}), "
        "or point data.root or GCSA_DATA to the folder that holds it"
    )


def damaged(path: Path, why: object, name: str) -> UserError:
    """The error for a file that is there but cannot be what it should be."""
    reason = one_line(str(why), 300)
    return UserError(f"{path} is damaged ({reason}): remove it and run `{fetch_command(name)}`", "data.damaged")


def check_readable(path: Path, name: str) -> None:
    """Raise a ValueError for a file of the data set called `name` that cannot be opened or is empty."""
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except OSError as error:
        raise damaged(path, error.strerror, name) from error
    if not first:
        raise damaged(path, "it is empty", name)


def download_into(root: Path, fetch: Callable[[Path], None]) -> None:
    """Run `fetch(folder)` on a new folder inside `root`, then move the files it left to the same places in
    `root`.

    A download that fails or is killed leaves nothing that looks finished.

    Raises:
        ValueError: `root` cannot be written to; ConnectionError: the download failed.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".download-", dir=root))
    except OSError as error:
        raise UserError(f"cannot download into {root} ({error}): choose a writable data.root", "data.root") from error
    try:
        fetch(staging)
        for file in sorted(path for path in staging.rglob("*") if path.is_file()):
            target = root / file.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
            log.info("wrote %s", target)
    except (OSError, RuntimeError) as error:
        raise ConnectionError(f"the download into {root} failed, nothing was kept: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
