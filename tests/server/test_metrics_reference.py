from tools.metrics_reference import REFERENCE, reference


def test_reference_of_metrics_is_fresh() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run tools/metrics_reference.py"
