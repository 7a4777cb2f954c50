"""The comparison of benchmark runs sees a ratio fall, and nothing else."""

import json

import compare
import pytest


def run(tmp_path, name, **ratios):
    benchmarks = [
        {"fullname": key, "extra_info": {} if value is None else {"ratio": value}}
        for key, value in ratios.items()
    ]
    file = tmp_path / name
    file.write_text(json.dumps({"benchmarks": benchmarks}))
    return str(file)


@pytest.mark.parametrize(("after", "code"), [(10.0, 0), (8.6, 0), (8.4, 1), (30.0, 0)])
def test_a_fall_by_more_than_15_percent_fails(tmp_path, capsys, after, code):
    old = run(tmp_path, "old.json", rotate=10.0, blur=2.0, untimed=None)
    new = run(tmp_path, "new.json", rotate=after, blur=2.0, other=0.1)
    assert compare.main([old, new]) == code
    printed = capsys.readouterr().out
    assert "rotate" in printed
    assert "other" not in printed


def test_what_cannot_be_compared_is_said(tmp_path):
    old = run(tmp_path, "old.json", rotate=1.0)
    with pytest.raises(SystemExit, match="nothing in common|no benchmark"):
        compare.main([old, run(tmp_path, "new.json", blur=1.0)])
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(SystemExit, match="bad.json is not a file of pytest-benchmark"):
        compare.main([old, str(tmp_path / "bad.json")])
