"""What every other part is built from: records, metric names, knobs, statistics of a series, and text for people.

A module belongs here when parts that don't know each other need it. Nothing here reads a run, opens a network
connection or imports another part of the project.
"""
