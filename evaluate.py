"""Measure a model: `python evaluate.py model=.../best.ckpt data=rotmnist`; every option is in conf/evaluate.yaml."""

from gcsa_commands import evaluate

if __name__ == "__main__":
    evaluate()
