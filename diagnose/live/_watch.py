"""The launcher's watch: looks at the rings now and then, and captures when they look wrong."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.live import capturing, ranks, watching
from diagnose.live.anomaly import Anomalies

LOOK_S = 5.0


class Watch:
    """A thread of the launcher; ends with it."""

    def __init__(self, run: Path, sockets: Path) -> None:
        self.run, self.sockets = run, sockets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="diagnose-watch")
        self._thread.start()

    def stop(self) -> None:
        """The job has ended."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _look(self) -> None:
        anomalies = Anomalies()
        while not self._stop.wait(LOOK_S):
            found = ranks.of_run(self.run)
            reason = anomalies.look(watching.rows(found))
            if reason:
                self._capture(found, reason)

    def _capture(self, found: ranks.Found, reason: str) -> None:
        try:
            wish = capturing.Wish(ranks="slowest,0" if reason.startswith("rank") else "")
            folder, outcome = capturing.capture(self.run, found, self.sockets, wish, prefix="auto-")
            (folder / "why.txt").write_text(reason + "\n", "utf-8")
            said = f"captured {len(outcome.files)} ranks in {folder}"
        except (DiagnoseError, OSError) as error:
            said = f"no capture ({error})"
        print(f"diagnose: {reason}; {said}", file=sys.stderr)
