"""SkyRL."""

from __future__ import annotations

from stabilizer.trainers.naming import named_by
from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.skyrl import config, knobs, log, validity
from stabilizer.trainers.trainer import Checks, Family, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="skyrl",
            packages=("skyrl_train",),
            schema=config.SKYRL,
            checks=Checks(newest=validity.NEWEST, rules=validity.skyrl, defaults=lambda version: validity.DEFAULTS),
            advice=knobs.SKYRL,
            metrics=(log.NAMES,),
        ),
    ),
    readers=(reader(log, Rank.CONSOLE, printed=True),),
    named=named_by(log.wrote, log.naming),
)
