#!/bin/bash
#PBS -N train
#PBS -l select=2:ncpus=4:mpiprocs=4:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=2:00:00
#PBS -A proj
#PBS -S /bin/bash
#PBS -j oe
#PBS -o /scratch/proj/ada/.kedge/jobs/records/KEY/

# train: by kedge VERSION for the site generic-pbs. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$PBS_JOBID" KEDGE_JOB_NAME=train
exec >>/scratch/proj/ada/code/train-"${KEDGE_JOB_ID%%[!0-9]*}".out 2>&1 || exit 1
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/proj/ada/.kedge/jobs/records/KEY
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { kill "$listener"; echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
# 'kedge cancel --signal' wakes this shell, which sends the command the signal that is named there
(
    # shellcheck disable=SC2154 # of the trap
    trap 'read -r name <"$record/signal"; for child in $(<"/proc/$$/task/$$/children"); do
        [ "$child" = "$BASHPID" ] || kill -s "$name" "$child"; done' URG
    trap 'kill $!; exit' TERM
    : >"$record/signal"
    while :; do
        sleep 1000000 &
        wait $!
        [ $? -gt 128 ] || break  # it was no signal
        kill $!
    done
) </dev/null >/dev/null 2>&1 &
listener=$!
disown  # whoever waits for all processes does not wait for this one
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

export OMP_NUM_THREADS=8
export KEDGEENV_OMP_NUM_THREADS=8
export NOTE="a 'b' \$(c)"
export KEDGEENV_NOTE="a 'b' \\\$(c)"
set -eo pipefail

cd /scratch/proj/ada/code

kedge=/scratch/proj/ada/bin/kedge
image=/scratch/proj/ada/pytorch.sif

"$kedge" launch --site generic-pbs --mpi --tasks-per-node 4 --nv --record-to "$run_record" \
    --bind /scratch/proj/ada/data:/data:ro "$image" python train.py --note "it's \$5"
# submitted with: qsub job.sh
