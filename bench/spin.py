"""Says how often a loop goes round in so many CPU seconds: the median of a few tries."""

import statistics
import sys
import time


def spin(rounds: int) -> float:
    """Go round, and return the CPU seconds it took."""
    before = time.thread_time()
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return time.thread_time() - before


if __name__ == "__main__":
    tries = [200_000 / spin(200_000) for _ in range(15)]
    print(round(statistics.median(tries) * float(sys.argv[1])))
