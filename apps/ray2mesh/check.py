#!/usr/bin/env python3
"""Compares what Ray2mesh has written with TauP, as ObsPy has it: times of first arrivals, and, with
--coverage, the length of all rays in each cell, from TauP's own paths in small steps.

Exit status 1 if a time differs by more than --most, or lengths by more than --most-length."""

import argparse
import pathlib
import sys

import numpy
from obspy.taup import TauPyModel

from results import RADIUS_KM, read_coverage, read_events, read_stations, read_times

# What TauP calls the rays that Ray2mesh looks for: PKP is also what goes through the inner core, or is
# reflected by it totally.
PHASES = {"P": ["p", "P"], "PKP": ["PKP", "PKIKP", "PKiKP"], "S": ["s", "S"]}

# A ray may be just there for one of two, and just not for the other, so near to its last distance.
EDGE_DEG = 0.5


def inner_slowness(model):
    """The slowness of P at the inner core's surface, in s/rad."""
    depth = model.model.iocb_depth
    return (RADIUS_KM - depth) / model.model.s_mod.v_mod.evaluate_below(depth, "p")[0]


def first(model, arrivals):
    """The first arrival, or None. What the inner core reflects though it could go in is left out."""
    steepest = inner_slowness(model)
    found = (a for a in arrivals if a.name != "PKiKP" or a.ray_param >= steepest)
    return min(found, key=lambda arrival: arrival.time, default=None)


def first_times(model, depth, distance):
    """When each phase arrives first, or None."""
    found = {}
    for phase, names in PHASES.items():
        arrival = first(model, model.get_travel_times(depth, distance, phase_list=names))
        found[phase] = arrival and arrival.time
    return found


def is_edge(model, depth, distance, phase):
    near = [first_times(model, depth, min(180, max(0, distance + by)))[phase] for by in (-EDGE_DEG, EDGE_DEG)]
    return any(time is None for time in near)


def check_times(model, rows, most):
    worst = {phase: (0, "nowhere") for phase in PHASES}
    counts = dict.fromkeys(PHASES, 0)
    wrong = 0
    for row in rows:
        depth, distance = row["depth_km"], row["distance_deg"]
        for phase, time in first_times(model, depth, distance).items():
            ours = row[phase]
            if (time is None) != (ours is None):
                if not is_edge(model, depth, distance, phase):
                    print(f"{phase} from {depth} km at {distance} degrees: {ours} s, and TauP's {time} s")
                    wrong += 1
            elif time is not None:
                counts[phase] += 1
                worst[phase] = max(worst[phase], (abs(ours - time), f"{depth} km, {distance} degrees"))
    for phase, (difference, where) in worst.items():
        print(f"{phase}: {counts[phase]} times within {difference:.3f} s of TauP's ({where})")
        wrong += difference > most
    return wrong


def unit(latitude, longitude):
    latitude, longitude = numpy.radians([latitude, longitude])
    flat = numpy.cos(latitude)
    return numpy.array([flat * numpy.cos(longitude), flat * numpy.sin(longitude), numpy.sin(latitude)])


def places(source, receiver, angles, radii):
    """Points of a ray in space."""
    direction = receiver - source * (source @ receiver)
    direction /= numpy.linalg.norm(direction)
    return (numpy.outer(numpy.cos(angles), source) + numpy.outer(numpy.sin(angles), direction)) * radii[:, None]


def add_ray(lengths, points, step_km=2.0):
    """Adds a ray's length to the cells, step by step."""
    shape = lengths.shape
    for first, last in zip(points, points[1:]):
        length = numpy.linalg.norm(last - first)
        steps = max(1, int(numpy.ceil(length / step_km)))
        middles = first + (last - first) * ((numpy.arange(steps) + 0.5) / steps)[:, None]
        radii = numpy.linalg.norm(middles, axis=1)
        shares = (
            1 - radii / RADIUS_KM,
            numpy.arcsin(numpy.clip(middles[:, 2] / radii, -1, 1)) / numpy.pi + 0.5,
            numpy.arctan2(middles[:, 1], middles[:, 0]) / (2 * numpy.pi) + 0.5,
        )
        cells = tuple(numpy.clip((share * n).astype(int), 0, n - 1) for share, n in zip(shares, shape))
        numpy.add.at(lengths, cells, length / steps)


def check_coverage(model, survey, output, rows, most):
    _, ours = read_coverage(output / "coverage.vtk")
    events, stations = read_events(survey / "events.zmap"), read_stations(survey / "stations.txt")
    direct = numpy.zeros(ours.shape)
    for row in rows:
        latitude, longitude, depth = events[int(row["event"])]
        source, receiver = unit(latitude, longitude), unit(*stations[row["station"]])
        for phase, names in PHASES.items():
            if row[phase] is None:
                continue
            arrival = first(model, model.get_ray_paths(depth, row["distance_deg"], phase_list=names))
            if arrival:
                path = arrival.path
                add_ray(direct, places(source, receiver, path["dist"], RADIUS_KM - path["depth"]))
    difference = numpy.abs(ours - direct).sum() / direct.sum()
    print(f"{direct.sum():,.0f} km of rays; {100 * difference:.2f} % of it in other cells than TauP's paths")
    return difference > most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey", metavar="SURVEY", type=pathlib.Path, help="the directory that survey.py has made")
    parser.add_argument("output", metavar="OUT", type=pathlib.Path, help="the directory that Ray2mesh wrote to")
    parser.add_argument("--model", default="ak135", help="TauP's (ak135)")
    parser.add_argument("--every", metavar="N", type=int, default=1, help="check each Nth ray's times (1)")
    parser.add_argument("--coverage", action="store_true", help="check the cells as well, with all rays")
    parser.add_argument("--most", type=float, default=0.1, help="difference of a time, in s (0.1)")
    parser.add_argument("--most-length", type=float, default=0.01, help="share of the length elsewhere (0.01)")
    options = parser.parse_args()
    model = TauPyModel(options.model)
    rows = read_times(options.output / "times.csv")
    wrong = check_times(model, rows[:: options.every], options.most)
    if options.coverage:
        wrong += check_coverage(model, options.survey, options.output, rows, options.most_length)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
