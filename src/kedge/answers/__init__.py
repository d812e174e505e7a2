# SPDX-License-Identifier: BSD-3-Clause
"""What a user asks: explain, recommend, search, diagnose, doctor; and the pages that show it."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "data_update",
    "doctor.containers",
    "doctor.diagnosis",
    "doctor.doctor",
    "doctor.image_check",
    "doctor.surroundings",
    "explain",
    "failed_logs",
    "here",
    "image_diff",
    "image_size",
    "own_origin",
    "pages.bench_plot",
    "pages.doctor_page",
    "pages.explain_page",
    "pages.size_page",
    "recommend",
    "report",
    "search",
    "tags",
    "targets",
)
