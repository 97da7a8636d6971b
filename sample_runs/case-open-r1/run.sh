#!/bin/sh
# Seven processes and eight answers (Open-R1), from the repository's root: what refuses it, what would do, what the log said.
# train.log is put together after the traceback users posted. Verdicts are exit codes, 1 from a warning on, and no reason to stop here.
here=sample_runs/case-open-r1
stabilizer=${STABILIZER:-stabilizer}
$stabilizer preflight $here/config.sh --version 0.15.2
$stabilizer diagnose $here/train.log
$stabilizer plan --trainer open-r1 --version 0.15.2 --gpus 8 --vllm server --num-generations 8 --model-size 1.5B
