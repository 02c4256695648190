"""Do the tests notice? Small mistakes in the code, one at a time: `python -m tests.mutate`."""
