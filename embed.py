"""Embed images: `python embed.py WEIGHTS IMAGES... --output features.parquet`; --help lists the options."""

from gcsa.cli.embed import main

if __name__ == "__main__":
    raise SystemExit(main())
