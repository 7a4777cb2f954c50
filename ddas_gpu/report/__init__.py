"""The report of a run and the comparison of several, as self-contained web pages."""

from ddas_gpu.report.comparison import comparison_page
from ddas_gpu.report.kinds import load_run, pages_for
from ddas_gpu.report.page import report_page
from ddas_gpu.report.run import Run
from ddas_gpu.report.training_page import training_page

__all__ = ["Run", "comparison_page", "load_run", "pages_for", "report_page", "training_page"]
