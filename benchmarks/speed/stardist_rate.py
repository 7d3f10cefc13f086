"""Images a second of StarDist's network (Schmidt et al. 2018, arXiv:1806.03535), for `benchmarks.speed.inference`.

It runs in an environment of its own, that of `benchmarks.dense.stardist_peer`, whose network this is, with random weights. Prints a line of
JSON: images a second as a graph of TensorFlow, and compiled by XLA.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.dense.stardist_peer import use_threads


def rate(run: Callable[[], object], batch: int, repeats: int) -> float:
    times = []
    for i in range(3 + repeats):
        start = time.perf_counter()
        run()
        if i >= 3:
            times.append(time.perf_counter() - start)
    return batch / statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("threads", "batch", "side", "repeats"):
        parser.add_argument(name, type=int)
    args = parser.parse_args()
    use_threads(args.threads)
    import tensorflow as tf
    from stardist.models import Config2D, StarDist2D

    images = tf.constant(np.random.default_rng(0).normal(size=(args.batch, args.side, args.side, 3)).astype(np.float32))
    with TemporaryDirectory() as folder:
        config = Config2D(n_rays=32, grid=(2, 2), n_channel_in=3)
        network = StarDist2D(config, name="random", basedir=folder).keras_model
        rates = {}
        for way, compiled in (("eager", False), ("compiled", True)):
            graph = tf.function(lambda x: network(x, training=False), jit_compile=compiled)
            rates[way] = rate(lambda graph=graph: [part.numpy() for part in graph(images)], args.batch, args.repeats)
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
