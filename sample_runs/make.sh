#!/bin/sh
# Makes the sample runs anew, from the repository's root, with the environment of `make install`.
set -eu
make_run() { # name, then the arguments of `stabilizer train`
  name=$1; shift
  rm -rf build/sample && mkdir -p build
  .venv/bin/python -m stabilizer train "$@" --seed 11 --set samples.every=100 --runs build/sample || [ $? = 1 ]
  rm -rf build/sample/*/checkpoints build/sample/*/requests
  for part in run.json status.json summary.json metrics samples events.jsonl findings.jsonl actions.jsonl; do
    rm -rf "sample_runs/$name/$part" # expected.toml and reference.json stay
    mkdir -p "sample_runs/$name" && mv "$(echo build/sample/*)/$part" "sample_runs/$name/"
  done
}
make_run addition-healthy addition --steps 400
make_run addition-unstable addition --variant unstable --steps 120 --remedy suggest
make_run addition-rescued addition --variant unstable --steps 270 --remedy auto-full
make_run length-healthy length
make_run length-vs-published length --steps 150 --set rollout.prompts=4 --set rollout.group_size=4 --set policy.minibatches=1
