"""What veRL loads through the entry point `verl.plugins`: importing this makes the logger `stabilizer` known to it.

veRL reports a plugin that fails at debug level only, so one line is printed either way, by one process of a job.
"""

from __future__ import annotations

import os
import sys

from stabilizer.guests import verl

_ALONE = os.environ.get("RANK", "0") == "0" and os.environ.get("LOCAL_RANK", "0") == "0"
try:
    verl.install()
    _TEXT = "stabilizer: loaded as a plugin of veRL; add stabilizer to trainer.logger to watch this training"
except Exception as error:
    _TEXT = f"stabilizer: not loaded as a plugin of veRL ({type(error).__name__}: {error}); the training goes on"
if _ALONE:
    print(_TEXT, file=sys.stderr)
