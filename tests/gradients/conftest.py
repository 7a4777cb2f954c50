import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """These models are tiny: a second thread gains nothing and waits for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
