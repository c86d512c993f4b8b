"""Importing without the lines that TensorFlow writes to stderr before its log can be set.

While it is being imported, TensorFlow's C++ code tells of machines without a GPU, before it has
looked at TF_CPP_MIN_LOG_LEVEL. The lines go straight to file descriptor 2, so that is where they
are kept back. A user who sets TF_CPP_MIN_LOG_LEVEL=0 sees them, and the rest of that log.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from types import ModuleType

LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # 0 shows all, 3 only what ends the process.


def import_quietly(name: str) -> ModuleType:
    """Imports a module; what is written to stderr meanwhile is shown only if that fails.

    Args:
      name: full name of the module.

    Raises:
      whatever importing the module raises.
    """
    # Without a stderr (2>&-) there is nothing to keep quiet.
    if os.environ.setdefault(LEVEL, "3") == "0" or sys.stderr is None:
        return importlib.import_module(name)
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            return importlib.import_module(name)
        except Exception:
            sys.stderr.flush()
            kept.seek(0)
            os.write(stderr, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
