"""Running the commands in this process, in an empty folder."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from gcsa.__main__ import main

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs `gcsa NAME ARGUMENTS` in an empty folder: its exit code, and what it printed on stdout and stderr."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else a busy machine adds a line of log

    def run_command(name: str, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gcsa", name, *map(str, arguments)])
        code: object = 0
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
        assert code is None or isinstance(code, int)
        return code or 0, *capsys.readouterr()

    yield run_command
    # What gcsa evaluate registers with Hydra would hide conf/ from the tests of train.py.
    for name in ("evaluate.yaml", "data", "task"):
        ConfigStore.instance().repo.pop(name, None)
