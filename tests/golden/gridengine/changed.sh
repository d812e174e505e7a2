#!/bin/bash
#$ -N train
#$ -l exclusive=true
#$ -l cpu=skylake
#$ -ar 17
#$ -S /bin/bash
#$ -cwd
#$ -o /home/ada/code/train-$JOB_ID_$TASK_ID.out
#$ -t 1-20:2
#$ -a 203001010000
#$ -l h_rt=2:00:00,s_rt=1:59:00
#$ -p -400
#$ -m n
#$ -A "two words"

# train: by kedge VERSION for the site generic-gridengine. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$JOB_ID" KEDGE_JOB_NAME=train
export KEDGE_ARRAY_INDEX="$SGE_TASK_ID"
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/home/ada/.local/state/kedge/jobs/records/K
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began.$KEDGE_ARRAY_INDEX"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended.$KEDGE_ARRAY_INDEX"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2
# what it uses is written beside its output, for 'kedge jobs --efficiency' and 'kedge rerun'
log=${streams%%$'\n'*}
run_record="$log.$KEDGE_ARRAY_INDEX.record.json"
if ! [ -f "$log" ] || ! [ -w "${log%/*}" ]; then
    run_record="$record/run.$KEDGE_ARRAY_INDEX.record.json"
fi

set -eo pipefail

cd /home/ada/code

kedge=/usr/bin/kedge
image=/scratch/ada/pytorch.sif

"$kedge" exec --record-to "$run_record" "$image" python train.py
