"""Tell how pages lie: `python orient.py IMAGES... --output orientations.csv --fix upright/`; --help lists the options."""

from gcsa.cli.orient import main

if __name__ == "__main__":
    raise SystemExit(main())
