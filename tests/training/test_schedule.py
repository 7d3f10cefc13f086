import pytest

from gcsa.training.schedule import SCHEDULES, make_schedule


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_to_one_and_end_where_they_should(name: str) -> None:
    factor = make_schedule(name, total=100, warmup=0.2, final=0.05)
    values = [factor(step) for step in range(101)]
    assert values[:21] == sorted(values[:21])
    assert 0 < values[0] < 0.1
    assert values[20] == pytest.approx(1)
    assert values[20:] == sorted(values[20:], reverse=True)
    assert values[100] == pytest.approx(1.0 if name == "constant" else 0.05)


def test_short_runs_have_a_schedule_too() -> None:
    for name in SCHEDULES:
        assert all(0 < make_schedule(name, total=1, warmup=0.05, final=0.01)(step) <= 1 for step in range(3))
