"""Try random cases until the time is over, and say how many held.

A finding stops its subject; its seed is printed with the command that shows it again.
"""

import argparse
import random
import sys

from tests.fuzz.loop import fuzz
from tests.fuzz.subjects import SUBJECTS


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all subjects (default: 1)")
    parser.add_argument("--seed", type=int, help="of the first case (default: random)")
    parser.add_argument("--only", nargs="*", choices=list(SUBJECTS), default=list(SUBJECTS))
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    seconds, findings = 60 * arguments.minutes / len(arguments.only), 0
    for name in arguments.only:
        print(f"{name}: from seed {seed}", flush=True)
        try:
            cases = fuzz(name, SUBJECTS[name], seed=seed, seconds=seconds)
            print(f"{name}: {cases} cases held", flush=True)
        except AssertionError as finding:
            findings += 1
            print(finding, flush=True)
    return min(findings, 1)


if __name__ == "__main__":
    sys.exit(main())
