"""Reads what Ray2mesh reads and writes."""

import csv
import pathlib

import numpy

RADIUS_KM = 6371.0


def read_coverage(path):
    """Rays and lengths in km of a coverage.vtk: arrays by layer from the surface down, latitude from the
    south on, and longitude from -180 degrees on."""
    lines = pathlib.Path(path).read_text().split("\n")
    shape = None
    fields = {}
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["DIMENSIONS"]:
            shape = [int(word) - 1 for word in reversed(words[1:])]
        elif words[:1] == ["SCALARS"]:
            cells = shape[0] * shape[1] * shape[2]
            values = lines[number + 2 : number + 2 + cells]
            fields[words[1]] = numpy.array(values, dtype=float).reshape(shape)
    return fields["rays"], fields["length_km"]


def read_times(path):
    """The lines of a times.csv as dictionaries, with None where no ray arrives."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for name, value in row.items():
            if name != "station":
                row[name] = float(value) if value else None
    return rows


def read_events(path):
    """Latitude, longitude from -180 to 180, and depth in km of each earthquake."""
    table = numpy.loadtxt(path, usecols=(1, 0, 6), ndmin=2)
    return [(latitude, (longitude + 180) % 360 - 180, max(0, depth)) for latitude, longitude, depth in table]


def read_stations(path):
    """Latitude, and longitude from -180 to 180, of each station, by name."""
    found = {}
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            network, name, latitude, longitude = line.split("|")[:4]
            found[f"{network}.{name}"] = float(latitude), (float(longitude) + 180) % 360 - 180
    return found
