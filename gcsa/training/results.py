"""results.json: what a run reached, and everything needed to repeat it."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import timm
import torch

from gcsa._utils.published import PACKAGE


def machine() -> dict[str, Any]:
    """Processor, its widest instructions that torch uses, cores, threads, device and versions of this machine, as plain JSON values."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "timm": timm.__version__,
        "lightning": pl.__version__,
    }


def git_commit() -> str | None:
    """The checked-out commit of this file's repository, "-dirty" if files differ; None outside git."""
    if not (PACKAGE.parent / ".git").exists():  # installed, where any repository around it is another one
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        run = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None
