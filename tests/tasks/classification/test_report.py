import io

import pytest
import timm
from gcsa.tasks.classification.report import measure, summarize, table
from rich.console import Console

from gcsa.tasks.classification import report as report_module
from gcsa.tasks.classification.data import create_datamodule
from gcsa.testing import randomize


def text(report, model, trained):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(report, model, "title", trained))
    return console.export_text()


def test_summary_reads_validation_images_only(tmp_path, monkeypatch):
    data = create_datamodule("digits")
    monkeypatch.setattr(data, "read_test", lambda: pytest.fail("the test split was read"))
    model = timm.create_model("gcsa_tiny_c4", num_classes=10, in_chans=1, depth=1, fields=4)
    summary = summarize(model, data, tmp_path, seconds=1)
    assert 0 < summary["invariance_error"] < 1e-5
    assert summary["figure"] == tmp_path / "rotation.png"
    assert summary["figure"].stat().st_size > 10_000
    assert (
        summarize(timm.create_model("resnet10t", num_classes=10, in_chans=1), data, tmp_path, 0)["invariance_error"]
        > 1e-3
    )


def test_report_of_a_plain_network_says_what_it_is():
    model = timm.create_model("resnet10t", num_classes=10, in_chans=1)
    report = measure(model, create_datamodule("digits"), "val", limit=40, curve_images=8, copies=2)
    assert (report.scores.images, report.rotation.images, report.shift_x.images) == (40, 8, 8)
    assert report.rotation.logit_change[0] == 0
    assert max(report.rotation.logit_change) > 1e-3
    printed = text(report, model, trained=False)
    expected_words = ("untrained", "quarter turns", "as scalar fields", "4,927,186", "accuracy, 40 images [95 %]")
    for expected in (*expected_words, "of the mean over 2 turned copies"):
        assert expected in printed
    assert "untrained" not in text(report, model, trained=True)


@pytest.mark.parametrize(("group", "computed"), [("c4", [0, 45]), ("c1", list(range(0, 360, 45)))])
def test_of_copies_that_are_the_same_one_is_computed(
    group: str, computed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    predicted = report_module.predict
    monkeypatch.setattr(report_module, "predict", lambda model, sample: seen.append(model) or predicted(model, sample))
    model = randomize(timm.create_model("gcsa_tiny", group=group, num_classes=10, in_chans=1, fields=4, depth=1))
    report = measure(model, create_datamodule("digits"), "val", limit=10, curve_images=2, copies=8)
    assert seen[1].angles == computed
    assert report.copies == 8


def test_report_of_scalar_fields_names_the_group():
    small = dict(fields=4, scalar_fields=8, depth=1, stem_strides=(2, 2), stem_fields=(4,), stem_separable=False)
    model = timm.create_model("gcsa_pooled_small", num_classes=10, in_chans=1, **small)
    report = measure(model, create_datamodule("digits"), "val", limit=8, curve_images=8)
    printed = text(report, model, trained=True)
    for expected in ("exact elements of d4", "as scalar fields"):
        assert expected in printed
    assert report.averaged is None
    assert "turned copies" not in printed
