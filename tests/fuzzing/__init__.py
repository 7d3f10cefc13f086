"""Damaged and hostile files, and a sandbox to read them in.

`mutations`, `xml_mutations` and `json_mutations` give any number of variations of a good file, the same for a seed.
`sealed(folder)` is the sandbox: within it, a socket, another program, a file outside of `folder`, more memory or more
time than allowed is a `Leak`, also where the code under test catches it and calls it something else:

    with suppress(ValueError, FileNotFoundError), sealed(tmp_path):
        read(path)
"""

from .mutations import as_json, json_mutations, mutations, xml_mutations
from .sandbox import ROOT, Leak, sealed

__all__ = ["ROOT", "Leak", "as_json", "json_mutations", "mutations", "sealed", "xml_mutations"]
