"""`python -S -E tests/fakes …`: the scripted engine as a program, with the standard library only."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.fakes.fake_process import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
