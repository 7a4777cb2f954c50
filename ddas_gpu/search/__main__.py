"""`python -m ddas_gpu.search`: find the augmentation policy that helps a data set most."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.cli import shell as commands
from ddas_gpu.cli.shell import exit_code, leave, prepare, stopped
from ddas_gpu.runs.progress import top_candidates
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    from ddas_gpu.search.algorithm import Search

PROGRAM = "python -m ddas_gpu.search"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code.

    0 the policy is there, 2 something was wrong and one sentence said what, 128 + n signal n came
    and the run can be resumed.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    return exit_code(PROGRAM, lambda: run(parse(argv)))


def parse(argv: list[str]) -> SearchSettings:
    """The flags over the preset's defaults or, with --resume, over the run's settings."""
    first = commands.first_look(argv, sanity_check=str, space=Path)

    def fresh() -> SearchSettings:
        defaults = preset(first.data, first.sanity_check, first.scale)
        if first.space is not None:
            defaults = defaults.replace(levels=(), depth=SearchSpace.load(first.space).depth)
        return defaults

    def of_run(folder: Path) -> SearchSettings:
        from ddas_gpu.runs.search_folder import read_settings

        return read_settings(folder)

    return commands.parse(PROGRAM, argv, first, fresh, of_run)


def run(settings: SearchSettings) -> int:
    """Build everything, and only then touch the run folder; search; tell what was found."""
    space = settings.search_space()
    device = prepare(settings.run)
    # Everything below needs torch, which takes seconds to import.
    from ddas_gpu.data import proxy_sets
    from ddas_gpu.distributed.agreement import require_same_start
    from ddas_gpu.distributed.ranks import joined
    from ddas_gpu.report.writing import write_report
    from ddas_gpu.runs.folder import check_free
    from ddas_gpu.runs.runner import carry_out
    from ddas_gpu.runs.search_folder import SearchFolder
    from ddas_gpu.runs.shared_folder import open_for_all
    from ddas_gpu.search.algorithm import Search

    out, resume = settings.run.out, settings.run.resume

    def open_folder() -> SearchFolder:
        if resume:
            return SearchFolder(out)
        return SearchFolder.create(settings, search.train, search.validation)

    with joined(device, settings.run.timeout) as ranks:
        with ranks.together():
            if ranks.first and out is not None and not resume:
                check_free(out)
            sets = proxy_sets(settings.data, settings.run.seed, device.type)
            search = Search(settings, space, *sets, device, ranks)
        require_same_start(ranks, settings, search.fingerprints)
        with open_for_all(ranks, open_folder, SearchFolder, new=not resume) as folder:
            if ranks.first:
                print(
                    f"searching {len(space)} candidates in {search.total_steps} steps: "
                    f"{folder.path}",
                    file=sys.stderr,
                )
            received = carry_out(search, folder)
            if received is not None:
                return stopped(PROGRAM, received, folder.path, search.steps)
            if ranks.first:
                _tell(search, folder.path, write_report(folder.path))
    return 0


def _tell(search: Search, folder: Path, report: Path) -> None:
    p_o = search.parameters.op_probabilities
    print(f"probability to augment: {search.parameters.apply_probability:.3f}")
    print(f"most probable:  {top_candidates(search.space, p_o, 5)}  (1.00× is uniform)")
    print(f"least probable: {top_candidates(search.space, -p_o, 5)}")
    print(f"policy: {folder / 'policy.json'}")
    print(f"report: {report}")


if __name__ == "__main__":
    leave(main())
