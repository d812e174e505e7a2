# SPDX-License-Identifier: BSD-3-Clause
"""Options with values that sbatch takes and refuses: tests of the checks and of the real sbatch share them."""

from __future__ import annotations

_VALID = """
--dependency=singleton --dependency=aftercorr:12 --dependency=afterburstbuffer:12 --dependency=afterok:1?afterany:2
--array=[0-29]%10 --wait-all-nodes=1 --nodes=2k --gpus=a100:1,v100:1 --gpus-per-node=0 --gres=gpu:0 --time=0
--mail-type=TIME_LIMIT_80,ARRAY_TASKS --open-mode=append --distribution=block:cyclic --distribution=plane=4
--signal=B:USR1@60 --begin=now+1hour --begin=2030-01-01T10:00 --exclusive=user --hint=nomultithread --mem=0
--propagate=STACK,CORE --cpu-freq=high --gpu-bind=single:1 --profile=task,energy --kill-on-invalid-dep=yes
"""
_REFUSED = """
--mail-type=FAILED --mail-type=end|fail --open-mode=w --distribution=foo --distribution=plane --dependency=afterok:$ID
--nodes=4-2 --nodes=1-2,x --gpus=1.5 --gres=gpu:4, --gres=gpu=1 --gres=gpus:1 --mem=1P --signal=foo --begin=soon
--exclusive=yes --wait-all-nodes=2 --hint=fast --cpus-per-gpu=0 --threads-per-core=x --tmp=1.5G --hold=x --gpu-bind=foo
--propagate=foo --profile=foo --time-min=1h --priority=-1 --switches=x --requeue=yes --kill-on-invalid-dep=maybe
"""
VALID = _VALID.split()
REFUSED = _REFUSED.split()
TAKEN_LATER = ("--gpus=1.5", "--gres=gpu:4,", "--gres=gpu=1")  # of those, by 24.11: it reads what it can
