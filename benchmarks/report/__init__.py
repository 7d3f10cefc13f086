"""The program that writes the tables of README.md and docs/, the model cards, and the figures of both.

`python -m benchmarks.report` writes them, `python -m benchmarks.report --check` compares them with the results and exits with 1 where they
differ. Every number comes from a JSON file under benchmarks/results/, which holds seed, configuration,
machine and commit. A training result is the results.json of a run, copied into the folder of its comparison:
`runs/`, `systems/`, `shares/SHARE/`, `ocr/SCRIPT/`, or `performers/DATA/seedN/`, `learning/DATA/seedN/` and
`trials/DATA/seedN/`.
"""
