"""The differentiable bank holds every op of the table once, and its docs say what it does."""

import doctest
import subprocess
import sys

import pytest

from ddas_gpu.ops import table
from ddas_gpu.ops.kornia import calls
from ddas_gpu.ops.kornia import entries as registry


def test_every_op_of_the_table_is_here_and_no_other():
    assert set(registry.BANK) == set(table.OPS)


def test_an_entry_belongs_to_the_op_it_is_filed_under():
    for name, entry in registry.BANK.items():
        assert entry.op is table.OPS[name]
        assert entry.function.__name__ in (name, "by_pillow_table")


def test_a_point_op_without_a_function_runs_by_pillows_table():
    written = {name for name, entry in registry.BANK.items() if entry.function.__name__ == name}
    others = set(table.OPS) - written
    assert others and all(table.OPS[name].is_point for name in others)
    for name in others:
        assert registry.BANK[name].image == registry.STRAIGHT_THROUGH


@pytest.mark.parametrize("decorate", [registry.moves, registry.changes])
def test_registering_twice_is_an_error(decorate):
    def Invert(images, call): ...

    with pytest.raises(ValueError, match="'Invert' is registered twice"):
        decorate()(Invert)


def test_registering_what_the_table_does_not_have_is_an_error():
    def Emboss(images, call): ...

    with pytest.raises(ValueError, match="unknown op 'Emboss'"):
        registry.moves()(Emboss)
    assert "Emboss" not in registry.BANK


def test_an_op_that_the_table_has_and_the_bank_has_not_is_named(monkeypatch):
    monkeypatch.delitem(registry.BANK, "Blur")
    with pytest.raises(ValueError, match="Blur has no differentiable form"):
        registry.find("Blur")


def test_the_gradient_table_has_every_op():
    rows = registry.gradient_table().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(table.OPS)


def test_examples_in_docstrings_run():
    results = doctest.testmod(calls)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_kornia_library_is_not_imported_until_used():
    code = "import sys, ddas_gpu.ops.kornia; sys.exit('kornia' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
