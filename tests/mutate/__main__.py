"""Put small mistakes into the code, one at a time, run the quick tests of it, and count the caught.

Nothing on disk is changed: a mistake lives in the memory of one process, or in a copy of `csrc`.
"""

import argparse
import random
import sys

from tests.mutate.trials import TRIALS


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.mutate", description=__doc__)
    parser.add_argument("subject", choices=list(TRIALS))
    parser.add_argument("--mutants", type=int, default=50, help="how many (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--skip", type=int, default=0, help="as many were tried before")
    parser.add_argument("--files", nargs="*", default=[], help="only those with this in their name")
    arguments = parser.parse_args()
    trial = TRIALS[arguments.subject]()
    if not arguments.skip and trial.outcome(None) != "survived":
        sys.exit("the tests fail without any mistake")
    mutants = [m for m in trial.mutants() if not arguments.files or m.path.stem in arguments.files]
    random.Random(arguments.seed).shuffle(mutants)
    counts = dict.fromkeys(("caught", "survived"), 0)
    for mutant in mutants[arguments.skip :]:
        if sum(counts.values()) == arguments.mutants:
            break
        outcome = trial.outcome(mutant)
        if outcome in counts:  # else it does not compile
            counts[outcome] += 1
            print(f"{outcome}  {mutant}", flush=True)
    print(f"{counts['caught']} of {sum(counts.values())} caught, {len(mutants)} possible")
    return 0


if __name__ == "__main__":
    sys.exit(main())
