"""What the commands that Hydra starts share: where its configurations are, and `user_errors` for them: its errors in one
sentence, and its folder removed again."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import shipped
from gcsa._utils.validation import listed
from gcsa.cli.cleanup import remove_leftovers
from gcsa.cli.errors import FULL_ERROR, USERS, Parser, one_sentence, user_errors

UNKNOWN_CHOICE = re.compile(r"Could not find '(\S+)/(\S+)' Available options in '\S+': (.*?)( Config search path.*)?$")
HYDRA_USERS = (*USERS, HydraException, OmegaConfBaseException)


def conf_folder() -> Path:
    """The folder of train.yaml. Raises FileNotFoundError where there is none, as in a broken installation."""
    folder = shipped("conf")
    if not (folder / "train.yaml").is_file():
        raise FileNotFoundError(f"there is no {folder / 'train.yaml'}: install gcsa again")
    return folder


def check_keys(cfg: DictConfig, name: str) -> None:
    """Raises UserError for a key of the composed conf/`name`.yaml that nothing reads, however it came there.

    A group's options go to what they are for: the model, the data module, the optimizer and each `_target_` refuse those that
    they do not take. What is left is checked here: keys beside the groups, and options of a callback or a logger without a
    `_target_`, which an experiment may set for a choice that was replaced, but not the command line.
    """
    file = OmegaConf.load(conf_folder() / f"{name}.yaml")
    groups = [
        str(key).removeprefix("override ").strip("/") for entry in file.defaults if entry != "_self_" for key in entry
    ]
    known = {*groups, *map(str, file)} - {"defaults", "hydra", "experiment", "sweep"}
    for key in cfg:
        if key not in known:
            raise UserError(
                f"unknown key {key!r}: {_suggest(str(key), cfg) or f'choose one of {listed(sorted(known))}'}",
                "config.unknown_key",
            )
    for key in cfg.get("monitor", {}):
        if key not in file.monitor:
            raise UserError(f"unknown key 'monitor.{key}': choose one of {listed(file.monitor)}", "monitor.unknown_key")
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    typed = {override.split("=")[0].lstrip("+~") for override in overrides}
    for group in ("callbacks", "logger"):
        for choice, options in cfg.get(group, {}).items():
            if options is not None and "_target_" not in options and any(f"{group}.{choice}" in key for key in typed):
                raise UserError(
                    f"{group}.{choice} is not in use, and its options have no effect: choose it with {group}=",
                    "config.not_in_use",
                )


def _suggest(key: str, cfg: DictConfig) -> str:
    options: dict[str, Any] = OmegaConf.to_container(cfg)  # type: ignore[assignment]
    close = [f"{group}.{key}" for group, values in options.items() if isinstance(values, dict) and key in values]
    return f"did you mean {' or '.join(close)}?" if close else ""


def explain(error: BaseException) -> str:
    """The message of `error` on one line; Hydra's errors are shortened to the bad key or choice and the good ones."""
    message = one_line(error, limit=None)
    cause = error.__cause__
    if match := re.match(r"Could not override '([^']+)'", message):
        parent = cause.parent_node if isinstance(cause, OmegaConfBaseException) else None
        known = f": choose one of {', '.join(map(str, parent))}" if isinstance(parent, dict | DictConfig) else ""
        return f"unknown key {match[1]!r}{known}"
    if match := re.match(r"Could not append to config. An item is already at '([^']+)'", message):
        return f"{match[1]!r} is a key already: write it without +"
    if match := re.search(r"Missing mandatory value: .* full_key: (\S+)", message):
        return f"{match[1]} is missing: give {match[1]}=..."
    if match := re.match(r"Error parsing override '(.*)' missing EQUAL", message):
        return f"{match[1]!r} is no option: write KEY=VALUE, such as model={match[1]}"
    if message.startswith("mismatched input '='"):
        return "a value with = in it needs quotes within quotes, such as 'output_dir=\"a=b\"'"
    if match := re.search(r"Could not find 'data/(\S*/\S*)'", message):
        return (
            f"data={match[1]} is a path: write data=image_folder data.path={match[1]}, or another choice in conf/data"
        )
    if match := UNKNOWN_CHOICE.search(message):
        return f"unknown {match[1]} {match[2]!r}: choose one of {', '.join(match[3].split())}"
    if isinstance(error, InstantiationException) and cause is not None:
        return explain(cause)
    return one_sentence(error)


@contextmanager
def task_errors(folder: Path) -> Iterator[None]:
    """`user_errors` around the task of a Hydra program with the output folder `folder`; where the task is refused, what
    Hydra wrote there beforehand goes again. In a sweep Hydra is told of the error, and goes on with the other runs."""
    several = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    with user_errors(folder, HYDRA_USERS, explain, lambda: remove_leftovers(folder), several):
        yield


@contextmanager
def composition_errors() -> Iterator[None]:
    """`user_errors` around the whole of a Hydra program, for what fails before its task starts, and for the first run of
    a sweep that failed."""
    os.environ[FULL_ERROR] = "1"  # makes Hydra raise its errors to us instead of printing them itself
    before = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = Parser.error  # type: ignore  # Hydra makes the parser itself
    try:
        with user_errors(None, HYDRA_USERS, explain):
            _check_groups(sys.argv[1:])
            yield
    finally:
        argparse.ArgumentParser.error = before  # type: ignore


def _check_groups(arguments: Iterable[str]) -> None:
    """Raises UserError for `adapter=null` and the like, of which Hydra says neither the group nor what would work."""
    for argument in arguments:
        group, _, value = argument.partition("=")
        folder = conf_folder() / group
        if value == "null" and group and folder.is_dir():
            choices = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
            raise UserError(f"{argument} chooses nothing: leave it out, or choose one of {choices}", "config.group")
