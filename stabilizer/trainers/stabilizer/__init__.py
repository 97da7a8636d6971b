"""Our own trainer, as one among the others."""

from __future__ import annotations

from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.stabilizer import config, exported, log
from stabilizer.trainers.trainer import Family, Trainer

FAMILY = Family(
    trainers=(Trainer(id="stabilizer", schema=config.OWN), Trainer(id=exported.TRAINER)),
    readers=(reader(log, Rank.OWN),),
    named=exported.named,
)
