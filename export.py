"""Write a model in another format: `python export.py MODEL --format onnx --output FILE`; --help lists the options."""

from gcsa.cli.export import main

if __name__ == "__main__":
    raise SystemExit(main())
