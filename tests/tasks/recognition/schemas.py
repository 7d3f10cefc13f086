"""PAGE-XML and ALTO against their schemas, which are in the folder of data."""

import os
from pathlib import Path
from typing import Any

from lxml import etree

PAGES = Path(os.environ.get("GCSA_DATA", Path(__file__).parents[3] / ".." / "shared" / "data")) / "pages"


def check(file: Path, schema: str) -> None:
    class Here(etree.Resolver):  # the schema of ALTO names that of XLink by its address
        def resolve(self, url: str, public: str, context: Any) -> Any:
            return self.resolve_filename(str(PAGES / "xlink.xsd"), context) if "xlink" in url else None

    parser = etree.XMLParser()
    parser.resolvers.add(Here())
    valid = etree.XMLSchema(etree.parse(PAGES / schema, parser))
    assert valid.validate(etree.parse(file)), valid.error_log
