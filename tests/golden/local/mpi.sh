#!/bin/bash
#KEDGE --name=train
#KEDGE --directory=/home/ada/my work
#KEDGE --output=/home/ada/my work/{name}-{id}.out
#KEDGE --time=1:00:00
#KEDGE --cpus=8
#KEDGE --memory=8G
# train: by kedge VERSION for the site local. To submit it by hand: kedge local-queue submit FILE

export KEDGE_JOB_ID="${KEDGE_LOCAL_JOB_ID}" KEDGE_JOB_NAME=train
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/home/ada/.local/state/kedge/jobs/records/K
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2
# what it uses is written beside its output, for 'kedge jobs --efficiency' and 'kedge rerun'
log=${streams%%$'\n'*}
run_record="$log.record.json"
if ! [ -f "$log" ] || ! [ -w "${log%/*}" ]; then
    run_record="$record/run.record.json"
fi

set -eo pipefail

cd '/home/ada/my work'

kedge=/home/ada/.local/bin/kedge
image=/data/pytorch.sif

"$kedge" launch --site local --mpi --tasks 4 --record-to "$run_record" "$image" python train.py
