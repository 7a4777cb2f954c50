"""The report of a run and the comparison of several, as self-contained web pages."""

from ddas_gpu.reporting.comparison import comparison_page
from ddas_gpu.reporting.kinds import load_run, pages_for
from ddas_gpu.reporting.page import report_page
from ddas_gpu.reporting.run import Run
from ddas_gpu.reporting.training_page import training_page

__all__ = ["Run", "comparison_page", "load_run", "pages_for", "report_page", "training_page"]
