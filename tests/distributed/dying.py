"""The command line, in processes of which one dies in its first life."""

import os
import signal
import sys

from tensus_tn import cli
from tensus_tn.tasks import Trainer

if __name__ == "__main__":
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        step = Trainer.step

        def die(self):
            if self.epoch == 3:
                print("the second process dies", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            return step(self)

        Trainer.step = die
    sys.exit(cli.main())
