"""The report of a run and the comparison of several, as self-contained web pages."""

from ddas_gpu.reporting.comparison import comparison_page
from ddas_gpu.reporting.page import report_page
from ddas_gpu.reporting.run import Run, load_run

__all__ = ["Run", "comparison_page", "load_run", "report_page"]
