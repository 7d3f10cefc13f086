"""Importing gcsa, and predicting, need neither the training stack nor figures, and nothing needs PEFT before there is an adapter."""

import re
import subprocess
import sys

HEAVY = (
    "pytorch_lightning",
    "lightning",
    "lightning_fabric",
    "hydra",
    "omegaconf",
    "matplotlib",
    "torchmetrics",
    "h5py",
    "escnn",
    "lie_learn",
)
ABSENT = f"assert not (heavy := sorted(set(sys.modules) & set({HEAVY}))), heavy"
WEIGHTS = ("gcsa_tiny.rotmnist", "gcsa_ocr_tiny.fr17", "gcsa_unet_tiny.nuclei")


def test_imports_are_light() -> None:
    code = f"import sys, torch, timm, gcsa; gcsa.load; {ABSENT}; [gcsa.load(name) for name in {WEIGHTS}]; {ABSENT}"
    code += "; import gcsa.training, gcsa.evaluation, gcsa.tasks.recognition.trocr; assert 'peft' not in sys.modules"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    # The columns are microseconds in the module, microseconds with what it imports, and its name.
    (total,) = re.findall(r"^import time: +\d+ \| +(\d+) \| gcsa$", done.stderr, re.MULTILINE)
    print(f"import gcsa: {int(total) / 1e6:.2f} s beyond torch and timm")
