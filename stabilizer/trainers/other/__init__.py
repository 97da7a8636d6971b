"""Trainers of which only a little is known."""

from __future__ import annotations

from stabilizer.trainers.other import knobs
from stabilizer.trainers.trainer import Family, Trainer

FAMILY = Family(trainers=(Trainer(id="stable-baselines3", advice=knobs.SB3),))
