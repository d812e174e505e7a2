#!/bin/bash
#SBATCH --job-name=train
#SBATCH --output=/scratch/ada/%x-%j.out
#SBATCH --open-mode=append
#SBATCH -t 2:00:00
#SBATCH --mem=0
# train: by kedge VERSION for the site generic-slurm. To submit it by hand: sbatch FILE

export KEDGE_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" KEDGE_JOB_NAME=train
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/ada/records/KEY
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

cd /scratch/ada

kedge=/opt/kedge/bin/kedge
image=/scratch/ada/pytorch.sif

"$kedge" exec --record-to "$run_record" "$image" python train.py
