"""The reference figures that the simulation is held against (the design's sections 8 and 9), as numbers. Rates are fractions.

`PUBLISHED` replications: 2000 for rollbacks of identical canaries, 300 for the others. None where nothing was published.
"""

Row = tuple[float | None, ...]
NULL_REPS, OTHER_REPS = 2000, 300

WORLDS = ("iid", "drift", "ramp", "arm05", "arm15")
FALSE_ROLLBACK: dict[str, Row] = {
    "tolerated 0, v=0": (0.005, 0.003, 0.003, 0.048, 0.472),
    "tolerated 5 %, v=0": (0.001, 0.001, 0.001, 0.003, 0.234),
    "tolerated 0, fitted": (0.004, 0.001, 0.001, 0.004, 0.0),
    "tolerated 5 %, fitted": (0.001, 0.001, 0.001, 0.001, 0.0),
    "Argo-like 1 min": (1.0, 1.0, 1.0, 1.0, 1.0),
    "Argo-like 5 min": (0.405, 0.732, 0.656, 0.791, 0.925),
    "Argo-like 4 in a row": (0.605, 0.680, 0.579, 0.718, 0.868),
    "Flagger-like": (0.999, 0.998, 0.915, 0.997, 0.998),
    "Kayenta-like": (0.029, 0.001, 0.005, 0.005, 0.039),
    "Argo-like 1 min, calibrated": (0.011, 0.028, 0.059, 0.033, 0.070),
    "Argo-like 5 min, calibrated": (0.013, 0.067, 0.082, 0.076, 0.284),
    "Argo-like 4 in a row, calibrated": (0.007, 0.011, 0.021, 0.013, 0.049),
    "Flagger-like, calibrated": (0.013, 0.543, 0.451, 0.542, 0.598),
}

CHANGES = ("+10 %", "+20 %", "+50 %", "x2", "tail", "errors 1 %", "errors 5 %")
# power, then median canary requests (None: below one half, or not printed)
DETECT: dict[str, tuple[tuple[float, float | None], ...]] = {
    "tolerated 0, v=0": ((1.0, 629), (1.0, 178), (1.0, 48), (1.0, 33), (0.99, 1160), (1.0, 772), (1.0, 101)),
    "tolerated 5 %, v=0": ((0.80, 2557), (1.0, 327), (1.0, 60), (1.0, 35), (0.89, 1746), (1.0, 968), (1.0, 105)),
    "tolerated 0, fitted": ((0.99, 1510), (1.0, 335), (1.0, 62), (1.0, 36), (0.95, 1707), (1.0, 772), (1.0, 101)),
    "tolerated 5 %, fitted": ((0.21, None), (1.0, 676), (1.0, 77), (1.0, 38), (0.61, 3397), (1.0, 968), (1.0, 105)),
    "Argo-like 1 min": ((1.0, 379), (1.0, 275), (1.0, 188), (1.0, 153), (1.0, 238), (1.0, 529), (1.0, 191)),
    "Argo-like 5 min": ((0.98, 911), (1.0, 560), (1.0, 399), (1.0, 394), (1.0, 485), (0.78, 2188), (1.0, 213)),
    "Argo-like 4 in a row": ((0.95, 1022), (1.0, 519), (1.0, 204), (1.0, 153), (1.0, 347), (0.76, 1840), (1.0, 254)),
    "Flagger-like": ((1.0, 996), (1.0, 942), (1.0, 666), (1.0, 495), (1.0, 717), (1.0, 546), (1.0, 310)),
    "Kayenta-like": ((0.14, None), (0.91, 940), (1.0, 382), (1.0, 332), (0.79, 2214), (0.21, None), (1.0, 361)),
    "Argo-like 1 min, calibrated": ((0.12, None), (0.20, None), (0.92, 1888), (1.0, 387), (0.86, 1849), (0.01, None), (0.68, 2545)),
    "Argo-like 5 min, calibrated": ((0.31, None), (0.77, 1759), (1.0, 573), (1.0, 394), (0.99, 755), (0.06, None), (0.17, None)),
    "Argo-like 4 in a row, calibrated": ((0.03, None), (0.12, None), (0.77, 1723), (1.0, 275), (0.56, 3312), (0.01, None), (0.34, None)),
    "Flagger-like, calibrated": ((0.71, 2591), (0.83, 2141), (0.99, 1183), (1.0, 679), (0.97, 1304), (0.53, 3754), (0.74, 2686)),
}
KAYENTA_20 = 940.0

# promoted, rolled back
RACE: dict[str, tuple[float, float]] = {
    "identical": (0.998, 0.0),
    "+5 %": (0.986, 0.0),
    "+10 %": (0.768, 0.230),
    "+20 %": (0.0, 1.0),
    "+50 %": (0.0, 1.0),
    "x2": (0.0, 1.0),
    "tail 3 % x6": (0.208, 0.752),
    "tail 6 % x6": (0.010, 0.990),
    "errors 1 %": (0.058, 0.938),
    "errors 5 %": (0.0, 1.0),
    "arm05": (0.998, 0.002),
    "arm15": (0.854, 0.146),
    "+20 %, arm15": (0.108, 0.892),
}
RACE_REQUESTS = {"identical": 798.0, "+5 %": 922.0}  # canary requests to promote, median

# power (None: not printed), median minutes
LOW_TRAFFIC: dict[str, tuple[float | None, float | None]] = {
    "+20 %": (0.63, None),
    "+50 %": (None, 10.5),
    "x2": (None, 4.5),
    "tail": (0.02, None),
    "errors 1 %": (0.07, None),
}
LATE_MINUTES: dict[str, float] = {
    "+20 %, plain": 13.0,
    "+20 %, restarts each 15 min": 3.5,
    "+50 %, plain": 5.5,
    "+50 %, restarts each 15 min": 1.0,
    "x2, plain": 3.0,
    "x2, restarts each 15 min": 0.5,
}

# power (None: not printed), median, 90th percentile: canary requests, pairs, or minutes
NEEDED: dict[str, tuple[float | None, float | None, float | None]] = {
    "body 0.1": (None, 462, 1107),
    "body 0.2": (None, 136, 313),
    "body 0.3": (None, 76, 155),
    "body 0.5": (None, 45, 80),
    "all edges 0.2": (None, 2440, 5183),
    "all edges 0.3": (None, 1296, 3003),
    "all edges 0.5": (None, 444, 1040),
    "all edges 1": (None, 134, 276),
    "errors 0.003": (None, 3076, 6569),
    "errors 0.005": (None, 1434, 2854),
    "errors 0.01": (None, 546, 1015),
    "errors 0.02": (None, 211, 397),
    "errors 0.05": (None, 89, 147),
    "probes slower 0": (0.008, None, None),
    "probes slower 0.1": (0.60, 489, None),
    "probes slower 0.2": (None, 149, None),
    "probes slower 0.5": (None, 30, None),
    "probes slower 1": (None, 14, None),
    "probes harmless 0.2": (None, 93, None),
    "quality lost 0.92": (None, None, None),
    "quality lost 0.9": (0.35, None, None),
    "quality lost 0.88": (0.99, 679, None),
    "quality lost 0.84": (None, 207, None),
    "quality kept 0.03": (None, 673, None),
    "quality kept 0.05": (None, 254, None),
    "memory 0": (0.005, None, None),
    "memory 1": (0.35, None, None),
    "memory 2": (None, 38, None),
    "memory 4": (None, 22, None),
}
