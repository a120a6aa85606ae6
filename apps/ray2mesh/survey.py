#!/usr/bin/env python3
"""Makes the files that Ray2mesh reads, with ObsPy: DIR/model.tvel, DIR/events.zmap and
DIR/stations.txt.

Without --quakeml and --stationxml, earthquakes and stations are made up: earthquakes along the edges of
plates where many are, stations all over the Earth. The same seed makes the same ones."""

import argparse
import math
import pathlib
import random
import shutil
import sys

import obspy
import obspy.taup
from obspy.core.event import Catalog, Event, Magnitude, Origin
from obspy.core.inventory import Inventory, Network, Station

# Parts of the edges: latitude and longitude of two ends, and how deep earthquakes are there, in km.
EDGES = [
    ((-45, -75), (-20, -70), 250),
    ((-20, -70), (5, -78), 600),
    ((8, -83), (18, -104), 150),
    ((35, -120), (48, -125), 40),
    ((52, 175), (60, 210), 200),
    ((36, 141), (52, 158), 600),
    ((22, 122), (35, 139), 500),
    ((-8, 110), (12, 93), 300),
    ((-10, 120), (-5, 150), 400),
    ((-22, 170), (-10, 160), 250),
    ((-35, 181), (-16, 186), 650),
    ((35, 22), (38, 44), 60),
    ((28, 85), (36, 70), 200),
    ((-50, 10), (65, -20), 15),
]


def degrees_east(longitude):
    """The same longitude, from -180 to 180."""
    return (longitude + 180) % 360 - 180


def made_event(draw):
    first, last, deepest = draw.choice(EDGES)
    along = draw.random()
    latitude, longitude = (a + along * (b - a) + draw.gauss(0, 1) for a, b in zip(first, last))
    origin = Origin(
        time=obspy.UTCDateTime(2020, 1, 1) + draw.uniform(0, 365 * 86400),
        latitude=round(latitude, 3),
        longitude=round(degrees_east(longitude), 3),
        depth=round(min(draw.expovariate(4 / deepest), deepest), 1) * 1000,
    )
    return Event(origins=[origin], magnitudes=[Magnitude(mag=round(draw.uniform(5, 8), 1))])


def made_station(number, draw):
    """Somewhere: each part of the surface has as many as another one of its size."""
    latitude = math.degrees(math.asin(draw.uniform(-1, 1)))
    return Station(
        code=f"S{number:04}",
        latitude=round(latitude, 3),
        longitude=round(draw.uniform(-180, 180), 3),
        elevation=0,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--model", choices=["ak135", "iasp91"], default="ak135", help="the Earth (ak135)")
    parser.add_argument("--quakeml", metavar="FILE", help="earthquakes, in a format that ObsPy reads")
    parser.add_argument("--stationxml", metavar="FILE", help="stations, in a format that ObsPy reads")
    parser.add_argument("--events", metavar="N", type=int, default=40, help="earthquakes to make up (40)")
    parser.add_argument("--stations", metavar="N", type=int, default=100, help="stations to make up (100)")
    parser.add_argument("--seed", type=int, default=1, help="of what is made up (1)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    try:
        if options.quakeml:
            found = obspy.read_events(options.quakeml)
            catalog = Catalog([event for event in found if event.origins and event.origins[0].depth is not None])
        else:
            catalog = Catalog([made_event(draw) for _ in range(options.events)])
        if options.stationxml:
            inventory = obspy.read_inventory(options.stationxml)
        else:
            made = [made_station(number, draw) for number in range(options.stations)]
            inventory = Inventory(networks=[Network(code="XX", stations=made)], source="made up")
        options.directory.mkdir(parents=True, exist_ok=True)
        models = pathlib.Path(obspy.taup.__file__).parent / "data"
        shutil.copyfile(models / f"{options.model}.tvel", options.directory / "model.tvel")
        catalog.write(str(options.directory / "events.zmap"), format="ZMAP")
        inventory.write(str(options.directory / "stations.txt"), format="STATIONTXT", level="station")
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"survey.py: {error}")
    print(f"{options.directory}: {len(catalog)} earthquakes, {sum(len(n) for n in inventory)} stations")


if __name__ == "__main__":
    main()
