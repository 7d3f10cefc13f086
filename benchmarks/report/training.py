"""Tables of classifiers: training runs, systems on the same data, shares of the training set, Performers, shifts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import eq, gt
from statistics import mean, stdev
from typing import Any

from scipy.stats import binomtest

from .results import (
    BUDGET,
    ROOT,
    Run,
    accuracy,
    budget_cells,
    load_benchmark,
    load_runs,
    load_timings,
    table,
    thousands,
)


def training() -> str:
    """One row a training run: the best validation epoch, and the test set read once with it."""
    rows = []
    for name, run in load_runs("runs").items():
        results, config = run["results"], run["config"]
        cells = [f"{100 * results['val/accuracy']:.2f}"]
        for key in ("test/accuracy", "test/auroc"):
            cells.append(f"{100 * results[key]:.2f}" if key in results else "")
        minutes = run["fit_seconds"] / 60
        budget = f"{config['trainer']['max_epochs']} epochs, {minutes:.0f} min on {run['machine']['threads']} thread(s)"
        rows.append([name, thousands(run["parameters"]), *cells, budget, str(run["seed"]), run["commit"][:8]])
    return table(["run", "parameters", "validation %", "test %", "test AUROC %", "budget", "seed", "commit"], rows)


def systems_runs() -> dict[str, Run]:
    """The runs on rotated MNIST with one budget, the most accurate first."""
    return dict(sorted(load_runs("systems").items(), key=lambda item: -accuracy(item[1])))


def systems() -> str:
    """The systems of the literature on rotated MNIST."""
    rows = []
    for name, run in systems_runs().items():
        cells = [f"`{name}`", thousands(run["parameters"]), f"{run['flops'] / 1e6:,.0f}M"]
        cells += [f"{100 * run['results'][key]:.2f}" for key in ("val/accuracy", "test/accuracy")]
        rows.append([*cells, f"{run['results']['invariance_error']:.0e}", *budget_cells(run)])
    header = ["system", "parameters", "FLOPs an image", "validation %", "test %", "invariance error"]
    return table([*header, *BUDGET], rows)


DATA_SETS = {"pcam": "PatchCamelyon", "plankton": "plankton", "rotmnist": "rotated MNIST"}
"""Folders below benchmarks/results/learning and benchmarks/results/trials, and what the data are called."""
BUDGETS = {"": "", "_long": ", three times the epochs", "_all": ", the validation images trained on too"}
"""What stands behind the name of a folder of benchmarks/results/learning with all labels, and what it says."""
SHARES = {"_3": 0.03, "_tenth": 0.1, "_30": 0.3}
"""What stands behind the name of a folder with a share of the labels, and that share."""
OURS = {"pcam": "gcsa_pooled+shifts", "plankton": "gcsa_hybrid+shifts", "rotmnist": "gcsa_tiny"}
"""What the others are compared with, image by image."""


def load_seeds(folder: str) -> dict[str, list[Run]]:
    """File name without ending to the runs of that name, one for each folder seedN of a folder of benchmarks/results/."""
    by_name: dict[str, list[Run]] = {}
    for path in sorted((ROOT / "benchmarks/results" / folder).glob("seed*"), key=lambda path: int(path.name[4:])):
        for name, run in load_runs(f"{folder}/{path.name}").items():
            by_name.setdefault(name, []).append(run)
    return by_name


GAINS = (
    ("plankton", "_3"),
    ("plankton", "_tenth"),
    ("plankton", "_long"),
    ("rotmnist", "_3"),
    ("rotmnist", "_tenth"),
    ("rotmnist", ""),
    ("pcam", "_tenth"),
    ("pcam", "_long"),
)
"""Data and folder of each row of `gains`."""
KINDS = {
    "with a group": ("gcsa", "gcnn"),
    "without a group": ("c1",),
    "resnet18": ("resnet18",),
    "ViT": ("vit",),
}
"""Columns of `gains`, and how the names of their systems begin."""


def gains() -> str:
    """The accuracy of the best system of each kind on the validation split: on the test set where all of a row have read it."""
    rows = []
    for data, folder in GAINS:
        systems = load_seeds(f"learning/{data}{folder}")
        best: dict[str, list[Run]] = {}
        for kind, starts in KINDS.items():
            of_kind = [
                runs for name, runs in systems.items() if name.startswith(starts) and "val/accuracy" in runs[0]["curve"]
            ]
            if of_kind:
                best[kind] = max(of_kind, key=lambda runs: mean(run["curve"]["val/accuracy"][-1] for run in runs))
        on_test = all("test" in run for runs in best.values() for run in runs)
        values = {
            kind: [100 * (run["test"]["accuracy"] if on_test else run["curve"]["val/accuracy"][-1]) for run in runs]
            for kind, runs in best.items()
        }
        share = f"{100 * SHARES[folder]:.0f} %" if folder in SHARES else "all"
        cells = [spread_cell(values[kind]) if kind in values else "" for kind in KINDS]
        gain = f"{mean(values['with a group']) - mean(values['without a group']):+.1f}"
        rows.append([DATA_SETS[data], share, "test" if on_test else "validation", *cells, gain])
    return table(["data", "labels", "split", *KINDS, "gain of the group"], rows)


def validation_cells(runs: list[Run]) -> list[str]:
    """Accuracy of the best epoch, which a run keeps, then accuracy, AUROC and loss of the last validation, which nothing chose:
    means over the seeds, and the sample's standard deviation where there are several; "" without validation."""
    curves = [run["curve"] for run in runs]
    columns = [(100, 1, [max(curve["val/accuracy"]) for curve in curves if "val/accuracy" in curve])]
    for key, scale, digits in (("val/accuracy", 100, 1), ("val/auroc", 100, 1), ("val/loss", 1, 3)):
        columns.append((scale, digits, [curve[key][-1] for curve in curves if key in curve]))
    return [spread_cell([scale * value for value in values], digits) for scale, digits, values in columns]


VALIDATION = ("best epoch %", "last %", "AUROC %", "loss")
"""The header of `validation_cells`."""


TEST = ("test %", "95 %", "test AUROC %", "calibration error %", "a quarter turn changes %")
"""The header of `test_cells`."""


def test_cells(runs: list[Run]) -> list[str]:
    """What the test set says of the epoch that each run kept, where all of them have read it: accuracy, its interval for so
    many images (Wilson's, of the mean over the seeds), AUROC, calibration error, and the share of the images whose class a
    quarter turn changes."""
    tests = [run["test"] for run in runs if "test" in run]
    if not tests or len(tests) < len(runs):
        return [""] * len(TEST)
    images, share = tests[0]["images"], mean(test["accuracy"] for test in tests)
    bounds = binomtest(round(share * images), images).proportion_ci(method="wilson")
    interval = f"{100 * bounds.low:.1f} to {100 * bounds.high:.1f}"
    columns = [[test.get(key) for test in tests] for key in ("accuracy", "auroc", "changed_by_turns")]
    bins = [test.get("reliability") for test in tests]
    columns.insert(2, [None if each is None else calibration_error(**each) for each in bins])
    cells = ["" if None in column else spread_cell([100 * value for value in column]) for column in columns]
    return [cells[0], interval, *cells[1:]]


def calibration_error(images: list[int], probability: list[float], accuracy: list[float]) -> float:
    """The expected calibration error (Guo et al. 2017, arXiv:1706.04599) of what `test` keeps of each bin."""
    bins = zip(images, probability, accuracy, strict=True)
    return sum(count * abs(sure - right) for count, sure, right in bins) / sum(images)


def spread_cell(values: Sequence[float], digits: int = 1) -> str:
    """The mean, and the sample's standard deviation where there are several values; "" where there is none."""
    cell = f"{mean(values):.{digits}f}" if values else ""
    return f"{cell} ± {stdev(values):.{digits}f}" if len(values) > 1 else cell


def split_cells(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Accuracy and AUROC, each of the splits "val" and "test": `spread_cell` of what several `runs` reached; "" where one has none."""
    cells = []
    for key, scale, digits in (("accuracy", 100, 1), ("auroc", 1, 3)):
        for split in ("val", "test"):
            values = [run[key] for run in runs[split]]
            cells.append("" if None in values else spread_cell([scale * value for value in values], digits))
    return cells


SPLIT_CELLS = ("validation accuracy %", "test accuracy %", "validation AUROC", "test AUROC")
"""The header of `split_cells`."""


def paired(runs: list[Run], ours: list[Run]) -> str:
    """The p value of the exact sign-flip test: of the sum, over the test images, of how many more of the seeds that both have
    are right in ours, if each image's difference had either sign equally often. Of one seed it is McNemar's exact test
    (doi:10.1007/BF02295996). "" where a run did not keep which are wrong, and for ours itself."""
    by_seed = [{run["seed"]: run.get("test", {}).get("wrong") for run in each} for each in (runs, ours)]
    pairs = [(by_seed[0][seed], by_seed[1][seed]) for seed in sorted(by_seed[0].keys() & by_seed[1].keys())]
    if runs is ours or not pairs or any(wrong is None for pair in pairs for wrong in pair):
        return ""
    better: Counter[int] = Counter()
    for theirs, mine in pairs:
        better.update(theirs)
        better.subtract(mine)
    differences = [abs(count) for count in better.values() if count]
    sums = Counter({0: 1})  # of the differences so far: a sum to how many choices of their signs have it
    for difference in differences:
        longer: Counter[int] = Counter()
        for total, ways in sums.items():
            longer[total + difference] += ways
            longer[total - difference] += ways
        sums = longer
    seen = abs(sum(better.values()))
    p = sum(count for total, count in sums.items() if abs(total) >= seen) / 2 ** len(differences)
    return f"{p:.2g}" if p > 1e-99 else "< 1e-99"


def seeds_cells(runs: list[Run]) -> list[str]:
    """Minutes, epochs, seeds and commits."""
    minutes, epochs, *_ = zip(*map(budget_cells, runs), strict=True)
    commits = dict.fromkeys(commit[:8] for run in runs for commit in run["commit"].split())
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return [" ".join(dict.fromkeys(minutes)), " ".join(dict.fromkeys(epochs)), seeds, " ".join(commits)]


def step_ratio(data: str, name: str) -> float:
    """The time of a training step over that of the ViT, on the machine where that is longest, of a system such as
    "resnet18+turns": augmentation is free. Raises ValueError for a system that no machine timed."""
    system = name.partition("+")[0]
    machines = [content.get(data, {}) for content in load_timings("pace", str).values()]
    machines = [times for times in machines if system in times]
    if not machines:
        raise ValueError(f"pace.json lacks {system} on {data}: run python -m benchmarks.learning.pace --threads 1")
    return max(times[system]["median_ms"] / times["vit"]["median_ms"] for times in machines)


def learning() -> str:
    """Systems on real images, with the computing that each got."""
    return learning_table(BUDGETS)


def best_systems() -> str:
    """What the systems with three times the epochs reach on the test set, the best of each data set first, in few columns."""
    rows = []
    for data in DATA_SETS:
        systems = load_seeds(f"learning/{data}_long")
        tested = [(name, runs) for name, runs in systems.items() if all("test" in run for run in runs)]
        tested.sort(key=lambda item: -mean(run["test"]["accuracy"] for run in item[1]))
        for name, runs in tested:
            accuracy, interval, _, _, changed = test_cells(runs)
            cost = [thousands(runs[0]["parameters"]), f"{runs[0]['flops'] / 1e6:,.0f}M", str(len(runs))]
            rows.append([DATA_SETS[data], f"`{name}`", *cost, accuracy, interval, changed])
    header = ["data", "system", "parameters", "FLOPs an image", "seeds", *TEST[:2], TEST[-1]]
    return table(header, rows)


def few_labels() -> str:
    """The same with a share of the labels."""
    titles = {folder: f", {100 * share:.0f} %" for folder, share in SHARES.items()}
    return learning_table(
        {name + more: title + said for name, title in titles.items() for more, said in BUDGETS.items()}
    )


def learning_table(folders: Mapping[str, str]) -> str:
    """The systems of each data set; `folders`: what stands behind a folder's name to what the table says of it."""
    rows = []
    for data, folder in itertools.product(DATA_SETS, folders):
        title = DATA_SETS[data] + folders[folder]
        systems = load_seeds(f"learning/{data}{folder}")
        for name, runs in systems.items():
            step = step_ratio(data, name)
            time = f"{step * runs[0]['config']['trainer']['max_epochs']:.0f}"
            cost = [thousands(runs[0]["parameters"]), f"{runs[0]['flops'] / 1e6:,.0f}M", f"{step:.2f} x", time]
            tests = [*test_cells(runs), paired(runs, systems.get(OURS[data], runs))]
            rows.append([title, f"`{name}`", *cost, *validation_cells(runs), *tests, *seeds_cells(runs)])
    cost_header = ["parameters", "FLOPs an image", "a step, of the ViT's", "time, in epochs of the ViT"]
    header = ["data", "system", *cost_header, *VALIDATION, *TEST, "p", *BUDGET]
    filled = [any(column) for column in zip(*rows, strict=True)]
    header, *rows = (list(itertools.compress(line, filled)) for line in [header, *rows])
    return table(header, rows)


TEACHING = {"plankton_3": "3 %", "plankton_10": "10 %", "plankton_all": "all", "pcam_10": "10 %", "pcam_all": "all"}
"""Chains of `benchmarks.learning.teach`, and the labels of their teachers."""
RIVALS = {
    "student": ("the student", "the teacher's probabilities"),
    "student of four views": ("the same", "the same, also of three rotated copies of each image"),
    "hard answers": ("the same", "the teacher's first answer alone"),
    "no group": ("the same layers without a group, on rotated and reflected images", "the teacher's probabilities"),
    "FixMatch": ("the student, by FixMatch (arXiv:2001.07685)", "112 labels, and its own answers where it is sure"),
}
"""What a rival is, and what it learns from."""


def teaching() -> str:
    """Teachers and their students (`benchmarks.learning.teach`): means over the seeds; and their rates (`benchmarks.learning.teach_rate`)."""
    rows = []
    (rates,) = load_timings("teach_rate", lambda content: content["threads"]).values()
    for chain, labels in TEACHING.items():
        data = {"plankton": "plankton", "pcam": "tissue"}[chain.partition("_")[0]]
        runs = [*load_teaching(chain), *load_teaching(f"{chain}_steady")]
        for kind in ("teacher, one pose", "teacher, averaged", "student", "steady student"):
            found = [run[kind] for run in runs if kind in run]
            if not found:
                continue
            cells = split_cells({split: [one[split] for one in found] for split in ("val", "test")})
            # On plankton the steady student is the same network; on tissue its stem costs more.
            rate = rates["images_per_second"][data].get(
                "student" if (data, kind) == ("plankton", "steady student") else kind
            )
            passes = "8" if kind.endswith("averaged") else "1"
            rows.append([data, labels, kind, passes, f"{rate:.0f}" if rate else "", *cells])
    return table(["data", "labels", "network", "passes", "images a second", *SPLIT_CELLS], rows)


def teaching_rivals() -> str:
    """What else learns plankton with 3 % of the labels, beside the student of the same seed."""
    rows = []
    for run in load_runs("teach", "plankton_3*_seed0").values():
        for kind in RIVALS.keys() & run["networks"].keys():
            (epochs,) = (
                one.partition("=")[2] for one in run["overrides"][kind] if one.startswith("trainer.max_epochs=")
            )
            scores = (f"{100 * run['networks'][kind][split]['accuracy']:.1f}" for split in ("val", "test"))
            rows.append([*RIVALS[kind], epochs, f"{run[f'{kind}, seconds'] / 60:.0f}", *scores])
    order = [*RIVALS.values()]
    rows.sort(key=lambda row: order.index((row[0], row[1])))
    return table(["network", "learns from", "epochs", "minutes of training", "validation %", "test %"], rows)


def load_teaching(chain: str) -> list[dict[str, Any]]:
    """What the networks of a chain reached, a dictionary a seed."""
    return [run["networks"] for run in load_runs("teach", f"{chain}_seed*").values()]


def teaching_features() -> str:
    """Students of a teacher's features that saw no label: a linear probe and the nearest neighbour, by a share of the training labels."""
    rows = []
    for name, run in load_runs("teach", "*_features_seed*").items():
        data = {"plankton": "plankton", "pcam": "tissue"}[name.partition("_")[0]]
        for kind, found in run["networks"].items():
            cells = [
                f"{100 * found[f'{probe}, {share}, {split}']:.1f}"
                for probe in ("linear", "nearest")
                for share in ("1%", "10%")
                for split in ("val", "test")
            ]
            rows.append([data, kind, "8" if kind.endswith("averaged") else "1", *cells, str(run["seed"])])
    header = [
        f"{probe}, {share} of the labels, {split} %"
        for probe in ("linear probe", "nearest neighbour")
        for share in ("1 %", "10 %")
        for split in ("validation", "test")
    ]
    return table(["data", "features of", "passes", *header, "seed"], rows)


def ceiling() -> str:
    """Unlike networks on the 50,000 test images of rotated MNIST, and how many of their mistakes all of them make."""
    runs = {
        name: runs[0] for name, runs in load_seeds("learning/rotmnist").items() if name.startswith(("gcsa", "gcnn"))
    }
    runs |= {f"{name}, all 12,000": runs[0] for name, runs in load_seeds("learning/rotmnist_all").items()}
    runs |= {f"{name}, all 12,000": run for name, run in load_runs("ceiling").items()}
    runs = {name: run for name, run in runs.items() if "test" in run}
    wrong = {name: set(run["test"]["wrong"]) for name, run in runs.items()}
    shared = len(set.intersection(*wrong.values()))
    rows = []
    for name, run in runs.items():
        images, mistakes = run["test"]["images"], len(wrong[name])
        bounds = binomtest(images - mistakes, images).proportion_ci(method="wilson")
        cells = [f"`{name}`", thousands(run["parameters"]), str(run["config"]["trainer"]["max_epochs"])]
        cells += [f"{100 - 100 * mistakes / images:.2f}", f"{100 * bounds.low:.2f} to {100 * bounds.high:.2f}"]
        rows.append([*cells, str(mistakes), f"{shared / mistakes:.0%}"])
    header = ["network, trained on 10,000 images or all 12,000", "parameters", "epochs", "test %", "95 %", "mistakes"]
    votes = Counter(itertools.chain.from_iterable(wrong.values()))
    lost, tied = (sum(compare(2 * found, len(runs)) for found in votes.values()) for compare in (gt, eq))
    vote = f"A vote of the {len(runs)} is wrong on {lost} images and tied on {tied}: {100 - (lost + tied) / images * 100:.2f} to "
    vote += f"{100 - lost / images * 100:.2f} %."
    return table([*header, "of these, made by every network here"], rows) + f"\n\n{vote}"


def trials() -> str:
    """One row a trial, on the validation split."""
    rows = []
    for data, title in DATA_SETS.items():
        for name, runs in load_seeds(f"trials/{data}").items():
            rows.append([title, name, thousands(runs[0]["parameters"]), *validation_cells(runs), *seeds_cells(runs)])
    return table(["data", "trial", "parameters", *VALIDATION, *BUDGET], rows)


def is_drawn(data: str, system: str) -> bool:
    """Whether the figures show the system: of digits those that were not bent, of other images those that were shifted."""
    return not system.endswith("+bends") if data == "rotmnist" else system.endswith("+shifts")


def learning_curves(data: str) -> dict[str, dict[float, float]]:
    """Time in epochs of the ViT to validation accuracy, the mean over the seeds, of the systems that are drawn."""
    curves = {}
    for name, runs in load_seeds(f"learning/{data}").items():
        if not is_drawn(data, name):
            continue
        epochs = zip(*(run["curve"]["val/accuracy"] for run in runs), strict=True)
        curves[name] = {step_ratio(data, name) * i: mean(accuracies) for i, accuracies in enumerate(epochs, 1)}
    return curves


def few_labels_curves(data: str) -> dict[str, dict[float, float]]:
    """Share of the labels to validation accuracy of the last epoch, the mean over the seeds, of the systems that are drawn and
    were trained on several shares."""
    curves: dict[str, dict[float, float]] = {}
    for folder, share in {**SHARES, "": 1.0}.items():
        for name, runs in load_seeds(f"learning/{data}{folder}").items():
            if is_drawn(data, name):
                curves.setdefault(name, {})[share] = mean(run["curve"]["val/accuracy"][-1] for run in runs)
    return {name: line for name, line in curves.items() if len(line) > 2}  # a line of two points hides its bend


MOST_DRAWN = 3
"""How many systems the figures of turns and of calibration show."""


def tested(folder: str, what: str) -> dict[str, Any]:
    """System to what was kept of its test, "turns" or "reliability", of the first seed of a folder of benchmarks/results: of the
    systems that are best on the validation split, at the last epoch."""
    systems = {name: runs for name, runs in load_seeds(folder).items() if what in runs[0].get("test", {})}
    best = sorted(systems, key=lambda name: -mean(run["curve"]["val/accuracy"][-1] for run in systems[name]))
    return {name: systems[name][0]["test"][what] for name in best[:MOST_DRAWN]}


def shares_runs() -> dict[str, dict[float, Run]]:
    """System to share of the training set to run; the whole set is the run of `systems_runs`."""
    folders = sorted((ROOT / "benchmarks/results/shares").glob("*"), key=lambda folder: float(folder.name))
    runs = {float(folder.name): load_runs(f"shares/{folder.name}") for folder in folders} | {1.0: systems_runs()}
    names = sorted(set.intersection(*(set(by_name) for by_name in runs.values())))
    return {name: {share: by_name[name] for share, by_name in runs.items()} for name in names}


def shares() -> str:
    """Test accuracy by the share of the training set."""
    systems = shares_runs()
    rows = [[f"`{name}`", *(f"{100 * accuracy(run):.2f}" for run in runs.values())] for name, runs in systems.items()]
    columns = []
    for share, run in next(iter(systems.values())).items():
        columns.append(f"{share:.0%} of the training set, {run['config']['trainer']['max_epochs']} epochs: test %")
    return table(["system", *columns], rows)


def performers() -> str:
    """Performers and other baselines: means over the seeds, and the sample's standard deviation where there are several."""
    rows = []
    for data, title in {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}.items():
        for name, runs in load_seeds(f"performers/{data}").items():
            tests = [100 * accuracy(run) for run in runs]
            cell = spread_cell(tests, 2)
            images = f"{runs[0]['config']['data']['limit_train']:,}"
            rows.append([title, images, f"`{name}`", thousands(runs[0]["parameters"]), cell, *seeds_cells(runs)])
    return table(["data", "images", "system", "parameters", "test %", *BUDGET], rows)


def shifts() -> str:
    """Accuracy under shifts along x."""
    results = load_benchmark("shifts")
    rows = []
    for data in ("mnist", "fashion_mnist"):
        for name, curve in results[data]["curves"].items():
            accuracies = curve["accuracy"]
            in_place = accuracies[curve["positions"].index(0)]
            cells = [f"{100 * value:.1f}" for value in (in_place, accuracies[0], accuracies[-1])]
            spread = f"{100 * (max(accuracies) - min(accuracies)):.1f}"
            rows.append([data, f"`{name}`", str(curve["images"]), *cells, spread])
    header = ["data", "system", "images", "in place %", "8 px to the left %", "8 px to the right %", "range, points"]
    return table(header, rows)
