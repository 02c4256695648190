"""Random cases without end: `python -m tests.fuzz --minutes 60`; a minute of them in the tests."""
