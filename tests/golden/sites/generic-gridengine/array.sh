#!/bin/bash
#$ -N train
#$ -l h_rt=2:00:00
#$ -l gpu=1
#$ -P proj
#$ -S /bin/bash
#$ -cwd
#$ -j y
#$ -o /dev/null
#$ -t 1-100
#$ -tc 10

# train: by kedge VERSION for the site generic-gridengine. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$JOB_ID" KEDGE_JOB_NAME=train
export KEDGE_ARRAY_INDEX=$((0 + (SGE_TASK_ID - 1) * 1))
exec >>/scratch/proj/ada/code/train-"${KEDGE_JOB_ID%%[!0-9]*}"_"$KEDGE_ARRAY_INDEX".out 2>&1 || exit 1
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/proj/ada/.kedge/jobs/records/KEY
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

export OMP_NUM_THREADS=8
export KEDGEENV_OMP_NUM_THREADS=8
export NOTE="a 'b' \$(c)"
export KEDGEENV_NOTE="a 'b' \\\$(c)"
set -eo pipefail

cd /scratch/proj/ada/code

kedge=/scratch/proj/ada/bin/kedge
image=/scratch/proj/ada/pytorch.sif

"$kedge" exec --nv --record-to "$run_record" --bind /scratch/proj/ada/data:/data:ro "$image" \
    python train.py --note "it's \$5"
# submitted with: qsub -terse job.sh
