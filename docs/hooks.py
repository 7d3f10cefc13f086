"""What MkDocs adds to the pages of docs/: the cards of all weights, the notebooks with their outputs, and the decisions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]
WEIGHTS = sorted(path for path in (ROOT / "weights").iterdir() if path.is_dir())
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DECISIONS = sorted((ROOT / "docs/adr").glob("*.md"))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills the sections that mkdocs.yml leaves empty."""
    pages = {
        "Models": [f"models/{path.name}.md" for path in WEIGHTS],
        "Notebooks": [f"notebooks/{path.stem}.md" for path in NOTEBOOKS],
        "Decisions": [f"adr/{path.name}" for path in DECISIONS],
    }
    for section in config.nav or []:
        for title, names in pages.items():
            if title in section:
                section[title] = [*section[title], *names]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to weights as the repository has them, to their pages here."""
    cards = re.sub(r"\]\(\.\./weights/([^/)]+)/README\.md\)", r"](models/\1.md)", markdown)
    return cards.replace("](../weights/", "](models/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds files that stand elsewhere in the repository."""
    for path in WEIGHTS:
        card = (path / "README.md").read_text(encoding="utf-8")
        for picture in path.glob("*.png"):
            files.append(File.generated(config, f"models/{path.name}/{picture.name}", abs_src_path=str(picture)))
            card = card.replace(f"]({picture.name})", f"]({path.name}/{picture.name})")
        files.append(File.generated(config, f"models/{path.name}.md", content=card))
    for path in NOTEBOOKS:
        body, resources = MarkdownExporter().from_filename(str(path))
        for name, content in resources["outputs"].items():
            files.append(File.generated(config, f"notebooks/{path.stem}/{name}", content=content))
            body = body.replace(f"]({name})", f"]({path.stem}/{name})")
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=body))
    return files
