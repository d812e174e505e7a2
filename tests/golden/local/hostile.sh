#!/bin/bash
#KEDGE --name="it's \"a\" $(job) `of`\n\u65e5\u672c # %j/\\"
#KEDGE --directory=/home/ada/my work
#KEDGE --output=/home/ada/my work/{name}-{id}.out
# it's "a" $(job) `of` 日本 # %j/\: by kedge VERSION for the site local. To submit it by hand: kedge local-queue submit FILE

export KEDGE_JOB_ID="${KEDGE_LOCAL_JOB_ID}" KEDGE_JOB_NAME="it's \"a\" \$(job) \`of\`
日本 # %j/\\"
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

export NOTE="it's \"a\" \$(job) \`of\`
日本 # %j/\\"
set -eo pipefail

cd '/home/ada/my work'

# shellcheck disable=SC2016 # dollar signs are the program's, not this shell's
printf %s 'a
b' '$(id)'
