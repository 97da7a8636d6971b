#!/bin/sh
# A reward that can't match the published curve (TRL's TLDR example), from the repository's root: preflight, then why.
here=sample_runs/length-vs-published
stabilizer=${STABILIZER:-stabilizer}
$stabilizer preflight $here/config.py --processes 1
$stabilizer compare $here $here/reference.json -o "${1:-compare.html}"
