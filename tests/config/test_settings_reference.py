from tools.settings_reference import REFERENCE, reference


def test_the_reference_page_is_fresh() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run tools/settings_reference.py"


def test_every_setting_is_described_with_a_sentence() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert all(". |" in row or ". | `" in row for row in rows)
