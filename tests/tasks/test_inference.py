"""Batches side by side: in order, with the cores divided, and nothing left behind."""

import threading
import time

import pytest
import torch

from regard.tasks.inference import side_by_side
from tests.refusals import refuses

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def six_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    yield
    torch.set_num_threads(before)


def threads_of_a_new_one():
    threads = []
    thread = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return threads[0]


@pytest.mark.parametrize(("items", "each"), [(1, 6), (2, 3), (3, 2), (50, 1)])
def test_the_cores_are_divided(items, each):
    pairs = [(n, n % 3) for n in range(items)]

    def work(item):
        torch.ones(8).sum()
        return *item, torch.get_num_threads()

    assert list(side_by_side(work, pairs, CPU)) == [(*item, each) for item in pairs]
    assert torch.get_num_threads() == threads_of_a_new_one() == 6


def test_those_who_come_meanwhile_have_all_cores():
    threads = []
    for count in side_by_side(lambda _: threads_of_a_new_one(), range(4), CPU):
        threads.append(count)
    assert threads == [6] * 4


def test_they_run_at_the_same_time():
    both = threading.Barrier(2, timeout=20)
    assert list(side_by_side(lambda _: both.wait() is not None, range(2), CPU)) == [True, True]


def test_other_devices_take_one_after_the_other():
    here = threading.get_ident()
    idents = side_by_side(lambda _: threading.get_ident(), range(3), torch.device("meta"))
    assert set(idents) == {here}


def test_an_error_ends_it():
    begun = []

    def work(item):
        begun.append(item)
        if item == 1:
            raise ValueError("no")
        time.sleep(0.001)  # so that a busy machine has the time to notice
        return item

    with refuses(ValueError, "no"):
        list(side_by_side(work, range(10_000), CPU))
    assert len(begun) < 10_000
    assert not [t for t in threading.enumerate() if t.name.startswith("regard-batch")]
    assert torch.get_num_threads() == threads_of_a_new_one() == 6
