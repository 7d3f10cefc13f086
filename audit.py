"""Is a network rotation-invariant? `python audit.py timm:resnet18 --images FOLDER`; --help lists the options."""

from gcsa.cli.audit import main

if __name__ == "__main__":
    raise SystemExit(main())
