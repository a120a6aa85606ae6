#!/usr/bin/env python3
"""Draws what Ray2mesh has written: how many rays went through the cells at a depth, as a map, and through
those of a plane through both poles."""

import argparse
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot
import numpy
from matplotlib.colors import LogNorm

from results import RADIUS_KM, read_coverage, read_events, read_stations


def draw_map(axes, rays, layer, events, stations, norm):
    rows, columns = rays.shape[1:]
    edges = numpy.linspace(-180, 180, columns + 1), numpy.linspace(-90, 90, rows + 1)
    mesh = axes.pcolormesh(*edges, numpy.ma.masked_equal(rays[layer], 0), norm=norm, cmap="viridis")
    axes.plot(*zip(*((lon, lat) for lat, lon in stations)), "^", color="black", markersize=3, label="stations")
    axes.plot(*zip(*((lon, lat) for lat, lon, _ in events)), "*", color="red", markersize=6, label="earthquakes")
    height = RADIUS_KM / rays.shape[0]
    axes.set_title(f"Rays per cell, {layer * height:,.0f} to {(layer + 1) * height:,.0f} km deep")
    axes.set(xlim=(-180, 180), ylim=(-90, 90), xlabel="longitude", ylabel="latitude", aspect="equal")
    axes.legend(loc="lower left", fontsize="small")
    return mesh


def draw_section(axes, rays, longitude, norm):
    layers, rows, columns = rays.shape
    radii = numpy.linspace(RADIUS_KM, 0, layers + 1)
    latitudes = numpy.radians(numpy.linspace(-90, 90, rows + 1))
    near = int((longitude + 180) % 360 / 360 * columns)
    far = (near + columns // 2) % columns
    for column, angles in (near, latitudes), (far, numpy.pi - latitudes):
        slab = numpy.ma.masked_equal(rays[:, :, column], 0)
        axes.pcolormesh(angles, radii, slab, norm=norm, cmap="viridis")
    axes.set_title(f"In the plane of {longitude:g} degrees east")
    axes.set(ylim=(0, RADIUS_KM), yticks=[], xticks=[])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("survey", metavar="SURVEY", type=pathlib.Path, help="the directory that survey.py has made")
    parser.add_argument("output", metavar="OUT", type=pathlib.Path, help="the directory that Ray2mesh wrote to")
    parser.add_argument("picture", metavar="PICTURE", help="the picture's file, such as rays.png or rays.svg")
    parser.add_argument("--depth", type=float, default=700, help="of the map, in km (700)")
    parser.add_argument("--longitude", type=float, default=140, help="of the plane, in degrees east (140)")
    options = parser.parse_args()
    try:
        rays, _ = read_coverage(options.output / "coverage.vtk")
        events = read_events(options.survey / "events.zmap")
        stations = read_stations(options.survey / "stations.txt").values()
        norm = LogNorm(1, max(2, rays.max()))
        figure = pyplot.figure(figsize=(13, 5), layout="constrained")
        left, right = figure.add_gridspec(1, 2, width_ratios=(2, 1))
        layer = min(int(options.depth / RADIUS_KM * rays.shape[0]), rays.shape[0] - 1)
        mesh = draw_map(figure.add_subplot(left), rays, layer, events, stations, norm)
        draw_section(figure.add_subplot(right, projection="polar"), rays, options.longitude, norm)
        figure.colorbar(mesh, ax=figure.axes, label="rays", shrink=0.8)
        figure.savefig(options.picture, dpi=120)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"picture.py: {error}")
    print(options.picture)


if __name__ == "__main__":
    main()
