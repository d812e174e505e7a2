#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs as root before each job and gives it the variables that ABCI's jobs have.
hosts=$SGE_JOB_SPOOL_DIR/hosts
if [ -n "$PE_HOSTFILE" ]; then
    cut -d ' ' -f 1 "$PE_HOSTFILE" > "$hosts"
else
    hostname > "$hosts"
fi
chmod 644 "$hosts"
environment=$SGE_JOB_SPOOL_DIR/environment
local=$(sed -n 's/^TMPDIR=//p' "$environment")
printf 'SGE_JOB_HOSTLIST=%s\nSGE_LOCALDIR=%s\n' "$hosts" "$local" >> "$environment"
