"""Which layout would be better, and by how much: predict a job's memory and step time, calibrate, search.

Pure and fast: no torch, no tables, no files. A prediction without a measured run is an interval, never a point.
"""

from diagnose.planner.calibrate import calibrate
from diagnose.planner.feasibility import why_illegal, why_too_large
from diagnose.planner.job import Job
from diagnose.planner.prediction import Calibration, Prediction, predict
from diagnose.planner.search import Candidate, SearchResult, search

__all__ = [
    "Calibration",
    "Candidate",
    "Job",
    "Prediction",
    "SearchResult",
    "calibrate",
    "predict",
    "search",
    "why_illegal",
    "why_too_large",
]
