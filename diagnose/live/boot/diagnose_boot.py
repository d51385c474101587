"""Loads the hook after `import torch`: found through PYTHONPATH by torch's entry points for device backends.

An exception here would abort `import torch`, so nothing may leave. The package is loaded from where this file lies,
without its site-packages: the training environment keeps its own versions of everything.
"""

import os
import sys


def autoload() -> None:
    """Entry point `torch.backends`."""
    try:
        _load(os.environ.get("DIAGNOSE_HOOK", "on"))
    except Exception as error:  # noqa: BLE001  see above
        print(f"diagnose: hook not loaded: {type(error).__name__}: {error}", file=sys.stderr)


def _load(mode: str) -> None:
    if mode == "off" or ("RANK" not in os.environ and not os.environ.get("DIAGNOSE_RUN")):
        return
    if "diagnose" not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
        start = os.path.join(home, "__init__.py")  # noqa: PTH118
        spec = spec_from_file_location("diagnose", start, submodule_search_locations=[home])
        assert spec is not None and spec.loader is not None
        sys.modules["diagnose"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
    from diagnose.live import _evidence

    _evidence.prepare()
    if mode == "guard":
        from diagnose.live import _guard

        _guard.install()
    else:
        from diagnose import live

        live.install()
