"""The entry points of train.py and evaluate.py, a module beside gcsa: importing gcsa from here loads no model and no torch,
so that `--help`, `--cfg job` and tab completion answer at once."""


def train() -> None:
    """The command line of train.py."""
    from gcsa.cli.train import main

    main()


def evaluate() -> None:
    """The command line of evaluate.py."""
    from gcsa.cli.evaluate import main

    main()
