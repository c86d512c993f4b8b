"""The first signal is a request, the second an order."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from lingpipe.runtime.interruption import Interruption
from tests.micro_run import environment


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_noted_by_name(number: signal.Signals) -> None:
    with Interruption() as interruption:
        assert interruption.name == ""
        signal.raise_signal(number)
        assert interruption.name == number.name


def test_the_second_one_acts_at_once() -> None:
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert interruption.name == "SIGTERM"


def test_the_second_sigterm_ends_the_process() -> None:
    program = (
        "import signal\n"
        "from lingpipe.runtime.interruption import Interruption\n"
        "with Interruption() as interruption:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print(interruption.name, flush=True)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('still here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "SIGTERM\n")


def test_handlers_come_back_whatever_happened() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(ZeroDivisionError), Interruption():
        raise ZeroDivisionError
    with Interruption():
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_wakes_whoever_waits_for_another_thread() -> None:
    """Training waits for the threads of the stages; the request must be noted meanwhile."""
    noted: list[str] = []
    with Interruption() as interruption:

        def send_and_see() -> None:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            for _ in range(500):
                if interruption.name:
                    break
                time.sleep(0.01)
            noted.append(interruption.name)

        thread = threading.Thread(target=send_and_see)
        thread.start()
        thread.join()
    assert noted == ["SIGTERM"]


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    inside: list[object] = []

    def look() -> None:
        with Interruption():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert inside == [before]
